"""Forms of `/proc/PID/cgroup` from real systems, each with the owner that it names."""

from __future__ import annotations

import random

import pytest

from collector.jobs.cgroups import FORMS, CgroupOwner, claim_of, owner_of

C = "4c1f" * 16
"""Id of a container."""
D = "9a0b" * 16
SHORT = C[:12]
POD = "12345678-1234-1234-1234-123456789abc"
UNDER = POD.replace("-", "_")
MIRROR = "0123456789abcdef0123456789abcdef"


def slurm(job: str, step: str = "", uid: int | None = None) -> CgroupOwner:
    """Return the owner of a Slurm job."""
    return CgroupOwner("slurm", job, step, uid)


def pod(uid: str = POD, container: str = SHORT) -> CgroupOwner:
    """Return the owner of a container in a pod."""
    return CgroupOwner("kubernetes", uid, container)


BOX = CgroupOwner("container", SHORT)
ROWS: list[tuple[str, CgroupOwner | None]] = [
    # Slurm
    ("6:freezer:/slurm_vm/uid_65534/job_3/step_batch", slurm("3", "batch", 65534)),
    ("5:devices:/slurm_vm/uid_0/job_1/step_0/task_0", slurm("1", "0", 0)),
    ("10:devices:/slurm/uid_2101171/job_280678/step_interactive/task_0",
     slurm("280678", "interactive", 2101171)),
    ("7:memory:/\n6:freezer:/slurm_n1/uid_1000/job_42/step_extern\n0::/", slurm("42", "extern", 1000)),
    ("4:cpuset:/slurm/uid_1000/job_7", slurm("7", "", 1000)),
    ("9:memory:/docker/" + C + "/slurm_n2/uid_5/job_8/step_0", slurm("8", "0", 5)),
    ("0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0", slurm("1392969", "0")),
    ("0::/system.slice/n17_slurmstepd.scope/job_7/step_batch/user/task_special", slurm("7", "batch")),
    ("0::/system.slice/slurmstepd.scope/job_42/step_extern/user", slurm("42", "extern")),
    ("0::/system.slice/slurmstepd.scope/job_42", slurm("42")),
    ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/libpod-" + C + ".scope", slurm("42", "0")),
    ("0::/system.slice/slurmstepd.scope/system", None),
    ("0::/system.slice/slurmd.service", None),
    ("0::/system.slice/n17_slurmd.service", None),
    # Kubernetes
    (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/"
     f"cri-containerd-{C}.scope", pod()),
    (f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDER}.slice/"
     f"cri-containerd-{C}.scope/init.scope", pod()),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{C}.scope", pod()),
    (f"0::/kubepods/burstable/pod{POD}/{C}", pod()),
    (f"11:devices:/kubepods/besteffort/pod{POD}/{C}\n0::/", pod()),
    (f"0::/kubepods/pod{POD}/{C}", pod()),
    (f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/crio-{C}.scope",
     pod()),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{C}.scope/container", pod()),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{C}.scope", None),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/docker-{C}.scope", pod()),
    (f"0::/kubepods/burstable/pod{MIRROR}/{C}", pod(MIRROR)),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice", pod(container="")),
    (f"12:cpu:/system.slice/containerd.service/kubepods-burstable-pod{UNDER}.slice:cri-containerd:{C}",
     pod()),
    (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
     f"kubelet-kubepods-burstable-pod{UNDER}.slice/cri-containerd-{C}.scope", pod()),
    (f"0::/docker/{D}/kubelet/kubepods/burstable/pod{POD}/{C}", pod()),
    (f"0::/system.slice/k3s.service/kubepods/burstable/pod{POD}/{C}", pod()),
    # containers
    (f"0::/docker/{C}", BOX),
    (f"0::/system.slice/docker-{C}.scope", BOX),
    (f"4:memory:/docker/{C}\n3:cpu,cpuacct:/docker/{C}\n1:name=systemd:/docker/{C}", BOX),
    (f"0::/docker/{C}/docker/{D}", BOX),
    (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/docker-{C}.scope", BOX),
    (f"0::/machine.slice/libpod-{C}.scope", BOX),
    (f"0::/machine.slice/libpod-{C}.scope/container", BOX),
    (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{C}.scope/container", BOX),
    (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/user-libpod_pod_{D}.slice/"
     f"libpod-{C}.scope", BOX),
    (f"0::/machine.slice/libpod-conmon-{C}.scope", None),
    (f"9:memory:/libpod_parent/libpod-{C}", BOX),
    (f"0::/system.slice/nerdctl-{C}.scope", BOX),
    (f"0::/default/{C}", BOX),
    (f"0::/k8s.io/{C}", BOX),
    (f"0::/system.slice/cri-containerd-{C}.scope", BOX),
    (f"0::/system.slice/docker-{C}.scope (deleted)", BOX),
    (f"8:memory:/ecs/{MIRROR}/{MIRROR}-1234567890", CgroupOwner("container", MIRROR)),
    (f"0::/ecs/cluster/{C}", BOX),
    ("0::/lxc.payload.trainer/system.slice/vllm.service", CgroupOwner("container", "trainer")),
    ("6:memory:/lxc/101/ns", CgroupOwner("container", "101")),
    ("0::/machine.slice/systemd-nspawn@lab.service/payload",
     CgroupOwner("container", "systemd-nspawn@lab.service")),
    ("0::/machine.slice/machine-lab.scope", CgroupOwner("container", "machine-lab.scope")),
    # units
    ("0::/system.slice/vllm.service", CgroupOwner("systemd", "vllm.service")),
    ("0::/system.slice/system-vllm.slice/vllm@0.service", CgroupOwner("systemd", "vllm@0.service")),
    ("0::/gpu.slice/train.service/workers", CgroupOwner("systemd", "train.service")),
    ("1:name=systemd:/system.slice/jupyter.service\n0::/system.slice/jupyter.service",
     CgroupOwner("systemd", "jupyter.service")),
    ("0::/system.slice/run-r1f2e.scope", CgroupOwner("systemd", "run-r1f2e.scope")),
    ("0::/system.slice/cron.service", CgroupOwner("systemd", "cron.service")),
    # users
    ("0::/user.slice/user-1000.slice/session-3.scope", CgroupOwner("user", uid=1000)),
    ("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-code.scope",
     CgroupOwner("user", uid=1000)),
    ("1:name=systemd:/user.slice/user-0.slice/session-c1.scope\n0::/", CgroupOwner("user", uid=0)),
    # nothing
    ("0::/", None),
    ("0::/../..", None),
    ("0::/init.scope", None),
    ("12:pids:/\n11:devices:/\n1:name=systemd:/", None),
    ("", None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "owner"), ROWS, ids=[row[0][:70] for row in ROWS])
def test_a_form_names_its_owner(text: str, owner: CgroupOwner | None) -> None:
    assert owner_of(f"{text}\n" if text else text) == owner


OWN = "/user.slice/user-1000.slice/user@1000.service"
ADA = CgroupOwner("user", uid=1000)
FORGED: list[tuple[str, CgroupOwner, CgroupOwner | None]] = [
    (f"0::{OWN}/slurm/uid_1001/job_40/step_0", ADA, slurm("40", "0", 1001)),
    (f"4:cpuset:/\n1:name=systemd:{OWN}/slurm_n1/uid_1001/job_40", ADA, slurm("40", "", 1001)),
    (f"0::{OWN}/app.slice/slurmstepd.scope/job_40/step_0/user", ADA, slurm("40", "0")),
    ("0::/user.slice/user-1000.slice/session-3.scope/n1_slurmstepd.scope/job_40", ADA, slurm("40")),
    (f"0::{OWN}/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{C}.scope", BOX, pod()),
    (f"0::/../../user.slice/user-1000.slice/user@1000.service/kubepods/pod{POD}/x", ADA, pod(container="")),
    ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0/slurm/uid_1001/job_40", slurm("42", "0"), None),
    ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/slurmstepd.scope/job_40", slurm("42", "0"), None),
]  # fmt: skip


@pytest.mark.parametrize(("text", "owner", "claimed"), FORGED, ids=[row[0][:70] for row in FORGED])
def test_what_users_name_themselves_is_no_job_of_a_scheduler(
    text: str, owner: CgroupOwner, claimed: CgroupOwner | None
) -> None:
    assert owner_of(f"{text}\n") == owner
    assert claim_of(f"{text}\n") == claimed


def test_nobody_else_claims_anything() -> None:
    assert [text for text, _ in ROWS if claim_of(text) is not None] == []


def test_each_form_has_rows_of_its_own() -> None:
    """And there are forty at least, each another one."""
    used = set()
    for text, _ in ROWS:
        first = next((form.name for form in FORMS if form.pattern.search(text)), None)
        used.add(first)
    assert used >= {form.name for form in FORMS}
    assert len({text for text, _ in ROWS}) == len(ROWS) >= 40


def test_a_damaged_line_names_an_owner_or_none_and_never_fails() -> None:
    """Ten thousand mutations of the rows: cut, doubled, with letters exchanged."""
    chance = random.Random(18)
    letters = "/-_.:\n 0af" + chr(0x2028) + "\\\x00é"
    for _ in range(10_000):
        text = chance.choice(ROWS)[0]
        for _ in range(chance.randrange(1, 6)):
            at = chance.randrange(len(text) + 1)
            end = min(len(text), at + chance.randrange(12))
            middle = "".join(chance.choices(letters, k=chance.randrange(4)))
            text = text[:at] + middle + text[end if chance.random() < 0.5 else at :]
        found = owner_of(text)
        if found is not None:
            assert found.scheduler in {"slurm", "kubernetes", "container", "systemd", "user"}
            assert found.id or found.scheduler == "user"
            assert "\n" not in found.id + found.step
            assert found.uid is None or 0 <= found.uid < 10**10
