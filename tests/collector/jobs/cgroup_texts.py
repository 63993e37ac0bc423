"""Forms of `/proc/PID/cgroup` from real systems with the owner that each names, and forged ones."""

from __future__ import annotations

from typing import NamedTuple

from collector.jobs.cgroups import CgroupOwner

C = "4c1f" * 16
"""Id of a container."""
D = "9a0b" * 16
SHORT = C[:12]
POD = "12345678-1234-1234-1234-123456789abc"
UNDER = POD.replace("-", "_")
MIRROR = "0123456789abcdef0123456789abcdef"
OTHER_POD = "fedcba98-1234-1234-1234-123456789abc"
ALLOC = "5b2c9f7e-0d4a-4c1b-9a63-2f1e8d7c6b5a"
"""Allocation of Nomad."""


def slurm(job: str, step: str = "", uid: int | None = None) -> CgroupOwner:
    """Return the owner of a Slurm job."""
    return CgroupOwner("slurm", job, step, uid)


def pod(uid: str = POD, container: str = SHORT) -> CgroupOwner:
    """Return the owner of a container in a pod."""
    return CgroupOwner("kubernetes", uid, container)


def box(name: str) -> CgroupOwner:
    """Return the owner of a container that has a name."""
    return CgroupOwner("container", name)


def unit(name: str) -> CgroupOwner:
    """Return the owner of a service or scope."""
    return CgroupOwner("systemd", name)


def version_1(path: str, *, empty: str = "") -> str:
    """Return the text of a host with cgroup version 1, whose hierarchies of `empty` are those that the scheduler does
    not constrain."""
    hierarchies = (
        "pids",
        "perf_event",
        "net_cls,net_prio",
        "memory",
        "freezer",
        "devices",
        "cpuset",
        "cpu,cpuacct",
        "blkio",
    )
    lines = [f"{at}:{name}:{'/' if name in empty.split() else path}" for at, name in enumerate(hierarchies, 2)]
    return "\n".join([*lines, f"1:name=systemd:{path}"])


BOX = box(SHORT)
OWN = "/user.slice/user-1000.slice/user@1000.service"
ADA = CgroupOwner("user", uid=1000)
BURSTABLE = f"kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice"
ROWS: list[tuple[str, CgroupOwner | None]] = [
    # Slurm, version 1
    ("6:freezer:/slurm_vm/uid_65534/job_3/step_batch", slurm("3", "batch", 65534)),
    ("5:devices:/slurm_vm/uid_0/job_1/step_0/task_0", slurm("1", "0", 0)),
    ("10:devices:/slurm/uid_2101171/job_280678/step_interactive/task_0", slurm("280678", "interactive", 2101171)),
    ("7:memory:/\n6:freezer:/slurm_n1/uid_1000/job_42/step_extern\n0::/", slurm("42", "extern", 1000)),
    ("4:cpuset:/slurm/uid_1000/job_7", slurm("7", "", 1000)),
    ("9:memory:/docker/" + C + "/slurm_n2/uid_5/job_8/step_0", slurm("8", "0", 5)),
    (version_1("/slurm/uid_1000/job_9/step_0/task_0", empty="pids blkio hugetlb"), slurm("9", "0", 1000)),
    ("11:freezer:/slurm/uid_1000/job_42/step_extern\n4:memory:/user.slice/user-1000.slice\n"
     "1:name=systemd:/user.slice/user-1000.slice/session-9.scope\n0::/user.slice/user-1000.slice/session-9.scope",
     slurm("42", "extern", 1000)),  # pam_slurm_adopt
    ("8:freezer:/slurm/uid_1000/job_7/step_0 (deleted)", slurm("7", "0", 1000)),
    # Slurm, version 2
    ("0::/system.slice/slurmstepd.scope/job_1392969/step_0/user/task_0", slurm("1392969", "0")),
    ("0::/system.slice/n17_slurmstepd.scope/job_7/step_batch/user/task_special", slurm("7", "batch")),
    ("0::/system.slice/slurmstepd.scope/job_42/step_extern/user", slurm("42", "extern")),
    ("0::/system.slice/slurmstepd.scope/job_42", slurm("42")),
    ("0::/system.slice/slurmstepd.scope/job_42/step_0/slurm", slurm("42", "0")),
    ("0::/system.slice/slurmstepd.scope/job_42/step_0/user/libpod-" + C + ".scope", slurm("42", "0")),
    (f"0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0/kubelet/kubepods/pod{POD}/{C}", slurm("42", "0")),
    ("0::/benchmark.slice/slurmstepd.scope/job_42/step_0/user/task_0", slurm("42", "0")),
    ("0::/site.slice/site-batch.slice/slurmstepd.scope/job_42/step_0/user/task_0", slurm("42", "0")),
    ("0::/system.slice/slurmstepd.scope/s8G5M22WGXB100/step_0/user/task_0", slurm("s8G5M22WGXB100", "0")),
    ("0::/../slurmstepd.scope/job_42/step_0/user/task_0", slurm("42", "0")),
    ("0::/../../system.slice/slurmstepd.scope/job_42/step_batch/user/task_0", slurm("42", "batch")),
    # slurmd in a container
    (f"0::/system.slice/docker-{C}.scope/system.slice/slurmstepd.scope/job_4/step_0/user/task_0", slurm("4", "0")),
    (f"0::/kubepods.slice/{BURSTABLE}/cri-containerd-{C}.scope/system.slice/slurmstepd.scope/job_4/step_0/user/task_0",
     slurm("4", "0")),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{C}.scope/container/system.slice/slurmstepd.scope/"
     "s8G5M22WGXB100/step_0/user/task_0", slurm("s8G5M22WGXB100", "0")),
    (f"0::/docker/{D}/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod{UNDER}.slice/cri-containerd-{C}.scope/"
     "system.slice/slurmstepd.scope/job_4/step_0/user/task_0", slurm("4", "0")),
    ("0::/machine.slice/systemd-nspawn@n1.service/payload/system.slice/slurmstepd.scope/job_4/step_0", slurm("4", "0")),
    ("6:devices:/lxc/101/ns/slurm/uid_1000/job_4/step_0", slurm("4", "0", 1000)),
    # Slurm itself
    ("0::/system.slice/slurmstepd.scope/system", None),
    ("0::/system.slice/slurmd.service", None),
    ("0::/system.slice/n17_slurmd.service", None),
    # PBS and LSF
    ("9:memory:/pbs_jobs.service/jobid/4711.server", CgroupOwner("pbs", "4711")),
    (version_1("/pbs_jobs.service/jobid/4711[3].server", empty="pids"), CgroupOwner("pbs", "4711[3]")),
    ("0::/pbs_jobs.service/jobs/4711.server", CgroupOwner("pbs", "4711")),
    ("0::/pbs_jobs.service/jobs/4711", CgroupOwner("pbs", "4711")),
    ("0::/pbs_jobs.service/jobs/4711[3].server.site.org", CgroupOwner("pbs", "4711[3]")),
    ("0::/pbs_jobs.service/jobs/4711.2/child", CgroupOwner("pbs", "4711.2")),  # task of an array
    ("0::/pbs_jobs.service/jobs", unit("pbs_jobs.service")),
    ("5:cpuacct:/lsf/cluster1/job.4711.12345.1790000000", CgroupOwner("lsf", "4711")),
    ("0::/lsf/cluster1/job.4711[3].12345.1790000000", CgroupOwner("lsf", "4711[3]")),
    # HTCondor names the slot
    ("0::/system.slice/condor.service/condor_var_lib_condor_execute_slot1_1@n1", CgroupOwner("htcondor", "slot1_1@n1")),
    ("0::/system.slice/condor.service/htcondor/condor_data_slot2@n1.site.org", CgroupOwner("htcondor", "slot2@n1.site.org")),
    ("8:memory:/htcondor/condor_var_lib_condor_execute_slot1_1@n1\n0::/", CgroupOwner("htcondor", "slot1_1@n1")),
    ("8:memory:/htcondor/condor_var_lib_condor_execute_slot1", CgroupOwner("htcondor", "slot1")),
    ("0::/system.slice/htcondor/condor_var_lib_condor_execute_slot1_23@n1", CgroupOwner("htcondor", "slot1_23@n1")),
    ("0::/system.slice/htcondor/condor_var_lib_condor_execute_slot1_23@n1/control", CgroupOwner("htcondor", "slot1_23@n1")),
    ("0::/system.slice/condor.service", unit("condor.service")),
    ("0::/system.slice/htcondor/condor_var_lib_condor_execute", None),
    # Kubernetes
    (f"0::/kubepods.slice/{BURSTABLE}/cri-containerd-{C}.scope", pod()),
    (f"0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{UNDER}.slice/"
     f"cri-containerd-{C}.scope/init.scope", pod()),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{C}.scope", pod()),
    (f"0::/kubepods/burstable/pod{POD}/{C}", pod()),
    (f"11:devices:/kubepods/besteffort/pod{POD}/{C}\n0::/", pod()),
    (f"0::/kubepods/pod{POD}/{C}", pod()),
    (version_1(f"/kubepods/burstable/pod{POD}/{C}"), pod()),
    (f"0::/kubepods.slice/{BURSTABLE}/crio-{C}.scope", pod()),
    (f"10:pids:/kubepods/burstable/pod{POD}/crio-{C}", pod()),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{C}.scope/container", pod()),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{C}.scope", None),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/docker-{C}.scope", pod()),
    (f"0::/kubepods/burstable/pod{MIRROR}/{C}", pod(MIRROR)),
    (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice", pod(container="")),
    (f"12:cpu:/system.slice/containerd.service/kubepods-burstable-pod{UNDER}.slice:cri-containerd:{C}", pod()),
    (f"0::/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-burstable.slice/"
     f"kubelet-kubepods-burstable-pod{UNDER}.slice/cri-containerd-{C}.scope", pod()),
    (f"0::/docker/{D}/kubelet/kubepods/burstable/pod{POD}/{C}", pod()),
    (f"0::/system.slice/docker-{D}.scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
     f"kubelet-kubepods-besteffort-pod{UNDER}.slice/cri-containerd-{C}.scope", pod()),
    (f"0::/machine.slice/libpod-{D}.scope/container/kubelet.slice/kubelet-kubepods.slice/"
     f"kubelet-kubepods-pod{UNDER}.slice/cri-containerd-{C}.scope", pod()),
    (f"0::/docker/{D}/kubepods/besteffort/pod{POD}/{C}", pod()),
    (f"9:freezer:/actions_job/{D}/kubepods/burstable/pod{MIRROR}/{C}", pod(MIRROR)),
    (f"0::/lxc.payload.k3s/kubepods.slice/{BURSTABLE}/cri-containerd-{C}.scope", pod()),
    (f"0::/system.slice/k3s.service/kubepods/burstable/pod{POD}/{C}", pod()),
    (f"0::/system.slice/kubelet.service/kubepods/burstable/pod{POD}/{C}", pod()),
    (f"0::/system.slice/snap.microk8s.daemon-kubelite.service/kubepods/pod{POD}/{C}", pod()),
    (f"0::/kubepods/burstable/pod{POD}/{C}/docker/{D}", pod()),
    (f"0::/kubepods/pod{POD}/{C}/kubelet/kubepods/pod{OTHER_POD}/{D}", pod()),
    (f"0::/../../kubepods-besteffort-pod{UNDER}.slice/cri-containerd-{C}.scope", pod()),
    (f"0::/../../../{BURSTABLE}/cri-containerd-{C}.scope", pod()),
    (f"0::/../../pod{POD}/{C}", pod()),
    (f"0::/../../../burstable/pod{POD}/{C}", pod()),
    # containers
    (f"0::/../cri-containerd-{C}.scope", BOX),
    (f"0::/docker/{C}", BOX),
    (f"0::/system.slice/docker-{C}.scope", BOX),
    (f"4:memory:/docker/{C}\n3:cpu,cpuacct:/docker/{C}\n1:name=systemd:/docker/{C}", BOX),
    (f"0::/docker/{C}/docker/{D}", BOX),
    (f"0::{OWN}/user.slice/docker-{C}.scope", BOX),
    (f"0::/machine.slice/libpod-{C}.scope", BOX),
    (f"0::/machine.slice/libpod-{C}.scope/container", BOX),
    (f"0::{OWN}/user.slice/libpod-{C}.scope/container", BOX),
    (f"0::{OWN}/user.slice/user-libpod_pod_{D}.slice/libpod-{C}.scope", BOX),
    (f"0::{OWN}/app.slice/train.service/libpod-payload-{C}", BOX),
    (f"0::/system.slice/train.service/libpod-payload-{C}", BOX),
    (f"0::/machine.slice/libpod-conmon-{C}.scope", None),
    (f"9:memory:/libpod_parent/libpod-{C}", BOX),
    (f"0::/system.slice/nerdctl-{C}.scope", BOX),
    (f"0::/default/{C}", BOX),
    (f"0::/k8s.io/{C}", BOX),
    (f"0::/system.slice/cri-containerd-{C}.scope", BOX),
    (f"0::/system.slice/docker-{C}.scope (deleted)", BOX),
    (f"8:memory:/ecs/{MIRROR}/{MIRROR}-1234567890", box(MIRROR)),
    (f"0::/ecs/cluster/{C}", BOX),
    (f"0::/ecstasks.slice/ecstasks-{MIRROR}.slice/docker-{C}.scope", BOX),
    ("0::/lxc.payload.trainer/system.slice/vllm.service", box("trainer")),
    ("6:memory:/lxc/101/ns", box("101")),
    ("0::/lxc/101/ns/user.slice/user-1000.slice/session-1.scope", box("101")),
    ("0::/machine.slice/systemd-nspawn@lab.service/payload", box("systemd-nspawn@lab.service")),
    ("0::/machine.slice/machine-lab.scope", box("machine-lab.scope")),
    (r"0::/machine.slice/machine-qemu\x2d1\x2dgpu.scope/libvirt/emulator", box(r"machine-qemu\x2d1\x2dgpu.scope")),
    # units
    ("0::/system.slice/vllm.service", unit("vllm.service")),
    ("0::/system.slice/system-vllm.slice/vllm@0.service", unit("vllm@0.service")),
    ("0::/gpu.slice/train.service/workers", unit("train.service")),
    ("1:name=systemd:/system.slice/jupyter.service\n0::/system.slice/jupyter.service", unit("jupyter.service")),
    (version_1("/system.slice/ollama.service", empty="perf_event hugetlb"), unit("ollama.service")),
    ("0::/system.slice/run-r1f2e.scope", unit("run-r1f2e.scope")),
    ("0::/system.slice/cron.service", unit("cron.service")),
    ("0::/azure.slice/walinuxagent.service", unit("walinuxagent.service")),
    (f"0::/nomad.slice/share.slice/{ALLOC}.train.scope", unit(f"{ALLOC}.train.scope")),
    # users
    ("0::/user.slice/user-1000.slice/session-3.scope", ADA),
    (f"0::{OWN}/app.slice/app-code.scope", ADA),
    (f"0::{OWN}/app.slice/run-u7.service", ADA),
    ("7:cpuset:/\n1:name=systemd:/user.slice/user-1000.slice/session-3.scope\n0::/user.slice/user-1000.slice/session-3.scope",
     ADA),
    ("1:name=systemd:/user.slice/user-0.slice/session-c1.scope\n0::/", CgroupOwner("user", uid=0)),
    # nothing
    ("0::/", None),
    ("0::/../..", None),
    ("0::/init.scope", None),
    ("12:pids:/\n11:devices:/\n1:name=systemd:/", None),
    ("", None),
]  # fmt: skip


class Forged(NamedTuple):
    """A path that somebody made."""

    text: str
    owner: CgroupOwner | None
    claim: CgroupOwner
    named: str = ""
    """Last folder whose name root gave, where a folder belongs to somebody else; empty where the path alone shows it."""


JOB_40 = slurm("40", "0")
FORGED: list[Forged] = [
    # below what systemd delegates to a user
    Forged(f"0::{OWN}/slurm/uid_1001/job_40/step_0", ADA, slurm("40", "0", 1001)),
    Forged(f"4:cpuset:/\n1:name=systemd:{OWN}/slurm_n1/uid_1001/job_40", ADA, slurm("40", "", 1001)),
    Forged(f"0::{OWN}/app.slice/slurmstepd.scope/job_40/step_0/user", ADA, JOB_40),
    Forged(f"0::{OWN}/app.slice/slurmstepd.scope/s8G5M22WGXB100/step_0/user", ADA, slurm("s8G5M22WGXB100", "0")),
    Forged("0::/user.slice/user-1000.slice/session-3.scope/n1_slurmstepd.scope/job_40", ADA, slurm("40")),
    Forged(f"0::{OWN}/pbs_jobs.service/jobid/40.server", ADA, CgroupOwner("pbs", "40")),
    Forged(f"0::{OWN}/pbs_jobs.service/jobs/40.server", ADA, CgroupOwner("pbs", "40")),
    Forged(f"0::{OWN}/lsf/cluster1/job.40.1.2", ADA, CgroupOwner("lsf", "40")),
    Forged(f"0::{OWN}/htcondor/condor_x_slot1_1@n1", ADA, CgroupOwner("htcondor", "slot1_1@n1")),
    Forged(f"0::{OWN}/condor.service/condor_x_slot1_1@n1", ADA, CgroupOwner("htcondor", "slot1_1@n1")),
    Forged(f"0::{OWN}/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{C}.scope", BOX, pod()),
    Forged(f"0::/../../user.slice/user-1000.slice/user@1000.service/kubepods/pod{POD}/x", ADA, pod(container="")),
    Forged(f"0::{OWN}/user.slice/libpod-{C}.scope/container/system.slice/slurmstepd.scope/job_40/step_0", BOX, JOB_40),
    # one hierarchy tells the truth
    Forged(f"9:freezer:/slurm/uid_1000/job_41/step_0\n1:name=systemd:{OWN}/slurm/uid_1001/job_40",
           slurm("41", "0", 1000), slurm("40", "", 1001)),
    # within a job of the same scheduler
    Forged("0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0/slurm/uid_1001/job_40",
           slurm("42", "0"), slurm("40", "", 1001)),
    Forged("0::/system.slice/slurmstepd.scope/job_42/step_0/user/slurmstepd.scope/job_40", slurm("42", "0"), slurm("40")),
    Forged(f"0::/system.slice/slurmstepd.scope/job_42/step_0/user/libpod-{C}.scope/slurm/uid_1001/job_40",
           slurm("42", "0"), slurm("40", "", 1001)),
    # below a service that was given its part of the tree
    Forged("0::/system.slice/jupyter.service/slurmstepd.scope/job_40/step_0", unit("jupyter.service"), JOB_40),
    Forged("0::/system.slice/jupyter.service/system.slice/slurmstepd.scope/job_40/step_0", unit("jupyter.service"), JOB_40),
    Forged(f"0::/system.slice/jupyter.service/kubepods/pod{POD}/{C}", BOX, pod()),
    Forged(f"0::/system.slice/jupyter.service/docker/{C}/slurm/uid_1001/job_40/step_0", BOX, slurm("40", "0", 1001)),
    Forged("0::/system.slice/run-r1f2e.scope/slurm/uid_1001/job_40/step_0",
           unit("run-r1f2e.scope"), slurm("40", "0", 1001)),
    # in a container, but not where a scheduler within it makes them
    Forged(f"0::/docker/{C}/mine/slurmstepd.scope/job_40/step_0", BOX, JOB_40),
    Forged(f"0::/kubepods/pod{POD}/{C}/x/slurm/uid_1001/job_40/step_0", pod(), slurm("40", "0", 1001)),
    Forged(f"0::/lxc.payload.lab/system.slice/vllm.service/kubepods/pod{POD}/x", box("lab"), pod(container="")),
    # not from the root
    Forged("0::/students/slurm/uid_1001/job_40/step_0", None, slurm("40", "0", 1001)),
    Forged(f"0::/students/kubepods/burstable/pod{POD}/x", None, pod(container="")),
    # where they would be right, in folders that are not root's
    Forged("0::/slurm/uid_1001/job_40/step_0", None, slurm("40", "0", 1001), "/slurm"),
    Forged("0::/batch.slice/slurmstepd.scope/job_40/step_0", unit("slurmstepd.scope"), JOB_40, "/batch.slice"),
    Forged(f"0::/docker/{C}/system.slice/slurmstepd.scope/job_40/step_0", BOX, JOB_40, f"/docker/{C}"),
    Forged(f"0::/lxc.payload.lab/kubepods/pod{POD}/x", box("lab"), pod(container=""), "/lxc.payload.lab"),
    Forged(f"0::/kubepods/pod{POD}/{C}/system.slice/slurmstepd.scope/job_40/step_0", pod(), JOB_40, f"/kubepods/pod{POD}/{C}"),
]  # fmt: skip
