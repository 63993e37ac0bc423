"""From a PID to user, program and job: the real /proc of this machine, and copies of others."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from collector.jobs.cgroups import reading_of
from collector.jobs.config import JobsConfig
from collector.jobs.processes import GONE, NO_PERMISSION, OTHER_NAMESPACE, ProcReader
from collector.jobs.source import FoundProcess
from collector.jobs.users import PersonFilter, UserNames
from collector.source import ListedProcess, ListedProcesses
from telemetry.wire.jobs import JobKey, UserPrivacy
from tests.collector.jobs.cgroup_texts import FORGED, Forged
from tests.second_user import as_nobody, needs_root

C = "4c1f" * 16


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of ours."""
    process = subprocess.Popen(["sleep", "600"])
    yield process
    process.kill()
    process.wait()


def reader(*, root: Path = Path("/proc"), config: JobsConfig | None = None, passwd: Path | None = None) -> ProcReader:
    """Return a reader that trusts the PIDs."""
    names = UserNames() if passwd is None else UserNames(passwd)
    return ProcReader(names, PersonFilter(config or JobsConfig()), root=root, same_pids=True)


def listed(*pids: int) -> dict[str, ListedProcesses]:
    """Return the list of one GPU."""
    rows = tuple(ListedProcess(pid, "compute", 1 << 30, None, 0.5) for pid in pids)
    return {"GPU-0": ListedProcesses(5, rows)}


def machine(folder: Path, **processes: tuple[str, int, int, str]) -> Path:
    """Make the /proc of another machine: name, real user, start in ticks and cgroup by PID."""
    for key, (name, uid, ticks, cgroup) in processes.items():
        pid = key.removeprefix("p")
        its = folder / pid
        its.mkdir(parents=True)
        fields = " ".join(["S", *(["0"] * 18), str(ticks), "0", "0"])
        (its / "stat").write_text(f"{pid} ({name}) {fields}\n")
        (its / "status").write_text(f"Name:\t{name}\nUid:\t{uid}\t0\t0\t0\nGid:\t5\t5\t5\t5\n")
        (its / "cgroup").write_text(cgroup)
    return folder


def reader_of(folder: Path, uid: int | None = None, cgroup: str = "", *, cgroups: Path = Path("/none")) -> ProcReader:
    """Return the reader of a machine whose process 7 has a user and a cgroup; without a user, of the same as before."""
    passwd = folder / "passwd"
    passwd.write_text("ada:x:1000:1000::/home/ada:/bin/sh\ngrace:x:1001:5:::\n# none\nbad:x:no:1\n")
    root = folder / "proc"
    if uid is not None:
        shutil.rmtree(root, ignore_errors=True)
        machine(root, p7=("a (b) c", uid, 500, cgroup))
    return ProcReader(UserNames(passwd), PersonFilter(JobsConfig()), root=root, cgroups=cgroups, same_pids=True)


def one(found: tuple[FoundProcess, ...]) -> FoundProcess:
    """Return the only process."""
    (process,) = found
    return process


def test_a_process_of_this_machine_has_its_user_program_and_start(sleeper: subprocess.Popen[bytes]) -> None:
    mine = reader()
    found = mine.find(listed(sleeper.pid))
    process = one(found.processes)
    assert process.process.name == "sleep"
    assert process.process.user == user_name(os.getuid())
    assert process.uid == os.getuid()
    assert process.owner == reading_of(Path(f"/proc/{sleeper.pid}/cgroup").read_text()).owner
    assert mine.boot < process.process.started
    assert process.process.hidden == ""
    assert found.owners.keys() == {process.id}
    again = one(mine.find(listed(sleeper.pid)).processes)
    assert again == process, "its identity stays"


def test_a_process_that_lives_on_is_not_read_again_and_its_end_is_known(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = reader()
    for _ in range(2):  # a young process may still become another program
        before = one(mine.find(listed(sleeper.pid)).processes)
    with monkeypatch.context() as patched:
        patched.setattr(mine, "_read", lambda *_: pytest.fail("it is read again"))
        assert one(mine.find(listed(sleeper.pid)).processes) == before
    sleeper.kill()
    sleeper.wait()
    gone = mine.find(listed(sleeper.pid))
    assert (one(gone.processes).process.hidden, gone.owners) == (GONE, {})
    mine.close()


def user_name(uid: int) -> str:
    """Return the name of a user."""
    names = UserNames()
    names.refresh()
    return names.name(uid)


@pytest.mark.parametrize(
    ("uid", "cgroup", "key", "step", "source"),
    [
        (1000, "6:freezer:/slurm_n1/uid_1000/job_42/step_0\n", ("slurm", "42"), "0", "slurm-cgroup"),
        (0, "6:freezer:/slurm_n1/uid_1000/job_42/step_0\n", ("slurm", "42"), "0", "slurm-cgroup"),
        (1000, "6:freezer:/slurm_n1/uid_0/job_42/step_0\n", ("slurm", "42"), "0", "slurm-cgroup"),
        (1000, f"0::/kubepods/burstable/pod{'ab' * 16}/{C}\n", ("kubernetes", "ab" * 16), C[:12], "process"),
        (1000, f"0::/docker/{C}\n", ("container", C[:12]), "", "process"),
        (1000, "0::/system.slice/vllm.service\n", ("systemd", "vllm.service"), "", "process"),
        (1000, "9:memory:/pbs_jobs.service/jobid/4711.server\n", ("pbs", "4711"), "", "process"),
        (1001, "0::/user.slice/user-1001.slice/session-1.scope\n", ("user", "grace"), "", "process"),
        (0, "0::/user.slice/user-1001.slice/session-1.scope\n", ("user", "grace"), "", "process"),
        (1000, "0::/\n", ("user", "ada"), "", "process"),
        (0, "0::/user.slice/user-70000.slice/session-1.scope\n", ("user", "70000"), "", "process"),
    ],
)
def test_the_job_is_that_of_the_cgroup_else_of_the_user(
    tmp_path: Path, uid: int, cgroup: str, key: tuple[str, str], step: str, source: str
) -> None:
    found = reader_of(tmp_path, uid, cgroup).find(listed(7))
    (owner,) = found.owners.values()
    assert (owner.job, owner.step, owner.source) == (JobKey(key[0], "", key[1]), step, source)
    assert one(found.processes).process.name == "a (b) c"
    assert found.claim == ""


@pytest.mark.parametrize(
    ("cgroup", "claim"),
    [
        ("4:cpuset:/\n6:freezer:/slurm_n1/uid_1001/job_40/step_0\n", "PID 7 claims to be slurm 40 by a cgroup"),
        ("0::/user.slice/user-1001.slice/session-1.scope\n", "PID 7 runs in the login of another user"),
    ],
)
def test_a_process_in_the_cgroup_of_another_user_is_its_own_users(tmp_path: Path, cgroup: str, claim: str) -> None:
    mine = reader_of(tmp_path, 1000, cgroup)
    found = mine.find(listed(7))
    (owner,) = found.owners.values()
    assert owner.job == JobKey("user", "", "ada")
    assert found.claim.startswith(claim)
    assert not {"1001", "1000", "grace", "ada"} & set(re.findall(r"\w+", found.claim)), "no person leaves by it"


def test_a_container_that_the_user_of_a_job_made_has_numbers_of_its_own(tmp_path: Path) -> None:
    """`podman run --user 5` in a job: the user is root in there, and the process somebody else."""
    mine = reader_of(tmp_path, 100_004, "6:freezer:/slurm_n1/uid_1001/job_42/step_0\n")
    uid_map = tmp_path / "proc/7/uid_map"
    for rows, job in (
        ("0 1001 1\n1 100000 65536\n", JobKey("slurm", "", "42")),
        ("0 1000 1\n1 100000 65536\n", JobKey("user", "", "100004")),  # another user's container
        ("0 0 4294967295\n", JobKey("user", "", "100004")),  # none at all
        ("bad", JobKey("user", "", "100004")),
    ):
        uid_map.write_text(rows)
        (owner,) = reader_of(tmp_path).find(listed(7)).owners.values()
        assert owner.job == job, rows
    (owner,) = mine.find(listed(7)).owners.values()
    assert owner.job == JobKey("user", "", "100004")


@pytest.mark.parametrize("forged", [each for each in FORGED if not each.named], ids=lambda each: each.text[:90])
def test_what_a_forged_cgroup_claims_is_told(tmp_path: Path, forged: Forged) -> None:
    found = reader_of(tmp_path, 1000, f"{forged.text}\n").find(listed(7))
    (owner,) = found.owners.values()
    assert owner.job.id != forged.claim.id
    assert found.claim.startswith(f"PID 7 claims to be {forged.claim.scheduler} {forged.claim.id} by a cgroup")


@needs_root
@pytest.mark.parametrize(
    ("controllers", "where"),
    [("", ""), ("", "unified"), ("freezer", "freezer"), ("name=systemd", "systemd"), ("cpu,cpuacct", "cpu,cpuacct")],
)
def test_names_that_a_user_gave_to_folders_of_cgroups_are_not_believed(
    tmp_path: Path, controllers: str, where: str
) -> None:
    """Of a slice that root delegated, and of a container whose root is nobody here."""
    path = "slurm/uid_1000/job_40/step_0"
    folders = tmp_path / "cgroups" / where / path
    folders.mkdir(parents=True)
    jobs = []
    for folder in (folders, *list(folders.parents)[:3]):
        mine = reader_of(tmp_path, 1000, f"4:{controllers}:/{path}\n", cgroups=tmp_path / "cgroups")
        (owner,) = mine.find(listed(7)).owners.values()
        jobs.append(f"{owner.job.scheduler} {owner.job.id}")
        os.chown(folder, 1000, 1000)
    assert jobs == ["slurm 40", "slurm 40", "slurm 40", "user ada"]
    mine = reader_of(tmp_path, cgroups=tmp_path / "elsewhere")
    (owner,) = mine.find(listed(7)).owners.values()
    assert owner.job == JobKey("slurm", "", "40"), "where the folders are not to be seen the path decides"


def test_the_server_of_mps_works_for_its_clients(tmp_path: Path) -> None:
    root = machine(tmp_path, p7=("nvidia-cuda-mps", 0, 5, "0::/\n"), p8=("python", 0, 5, "0::/\n"))
    found = reader(root=root).find(listed(7, 8))
    assert [pid for pid, _ in found.owners] == [8]


def test_a_pid_that_is_used_again_is_another_process(tmp_path: Path) -> None:
    root = machine(tmp_path, p7=("python", 0, 500, "0::/system.slice/a.service\n"))
    mine = reader(root=root)
    first = mine.find(listed(7))
    for file in (root / "7").iterdir():
        file.unlink()
    (root / "7").rmdir()
    machine(tmp_path, p7=("python", 0, 900, "0::/system.slice/b.service\n"))
    second = mine.find(listed(7))
    assert one(first.processes).id != one(second.processes).id
    assert [owner.job.id for owner in second.owners.values()] == ["b.service"]


def test_what_has_ended_is_gone_and_nobodys() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    found = reader().find(listed(process.pid))
    assert one(found.processes).process.hidden == GONE
    assert one(found.processes).process.started == 0
    assert found.owners == {}


def test_in_a_pid_namespace_of_our_own_nothing_is_looked_up(tmp_path: Path, sleeper: subprocess.Popen[bytes]) -> None:
    """A PID of the host would be some other process here."""
    root = machine(tmp_path, **{f"p{sleeper.pid}": ("python", 1000, 5, "0::/docker/" + C)})
    (root / "self/ns").mkdir(parents=True)
    (root / "self/ns/pid").touch()
    mine = ProcReader(UserNames(), PersonFilter(JobsConfig()), root=root)
    assert mine.foreign()
    found = mine.find(listed(sleeper.pid))
    process = one(found.processes).process
    assert (process.hidden, process.user, process.name) == (OTHER_NAMESPACE, "", "")
    assert found.owners == {}


def test_a_pid_of_zero_is_a_process_of_another_namespace() -> None:
    assert one(reader().find(listed(0)).processes).process.hidden == OTHER_NAMESPACE


@needs_root
def test_a_process_that_may_not_be_read_is_hidden_and_never_guessed(tmp_path: Path) -> None:
    """As with hidepid=1: the folder is there, and its files are not for us."""
    root = machine(tmp_path / "proc", p7=("python", 0, 5, "0::/\n"))
    for file in (root / "7").iterdir():
        file.chmod(0)
    for folder in (root / "7", root, tmp_path, *tmp_path.parents[:-2]):
        folder.chmod(0o755)

    def look() -> list[str]:
        found = reader(root=root).find(listed(7))
        return [one(found.processes).process.hidden, str(found.refused), str(len(found.owners))]

    assert as_nobody(look) == [NO_PERMISSION, "1", "0"]


def filtered(tmp_path: Path, users: UserPrivacy, secret: str = "long random word") -> ProcReader:
    """Return a reader whose persons leave in some form."""
    (tmp_path / "secret").write_text(secret)
    (tmp_path / "passwd").write_text("ada:x:1000:1000::/home/ada:/bin/sh\n")
    config = JobsConfig(users=users, secret_file=tmp_path / "secret")
    root = tmp_path / "proc"
    if not root.exists():
        machine(root, p7=("python", 1000, 5, "0::/\n"))
    return reader(root=root, config=config, passwd=tmp_path / "passwd")


def test_hashed_users_are_the_same_on_nodes_of_one_secret_and_not_elsewhere(tmp_path: Path) -> None:
    hashed = []
    for secret in ("long random word", "long random word", "another word"):
        found = filtered(tmp_path, UserPrivacy.HASHED, secret).find(listed(7))
        (owner,) = found.owners.values()
        user = one(found.processes).process.user
        assert (len(user), owner.job) == (12, JobKey("user", "", user))
        assert set(user) <= set("0123456789abcdef")
        hashed.append(user)
    assert hashed[0] == hashed[1] != hashed[2]


def test_without_users_no_name_and_no_number_of_one_is_left(tmp_path: Path) -> None:
    found = filtered(tmp_path, UserPrivacy.OFF).find(listed(7))
    (owner,) = found.owners.values()
    assert owner.job == JobKey("user", "", "hidden")
    assert "ada" not in repr(one(found.processes).process)
    assert "1000" not in repr(one(found.processes).process)


@pytest.mark.parametrize(
    ("comm", "cmdline", "name"),
    [
        ("ray::Trainer.wh", b"ray::Trainer.who" + b"\0" * 300, "ray::Trainer"),
        ("ray::Trainer", b"ray::Trainer(rank=0).fit" + b"\0" * 300, "ray::Trainer"),
        ("ray::half", b"ray::half\0", "ray::half"),
        ("ray::" + "L" * 10, b"ray::" + b"L" * 90 + b".step\0", "ray::" + "L" * 59),
        ("ray::half", b"", "ray::half"),
        ("ray::half", b"python\0--token=hunter2\0", "ray::half"),
        ("ray::half", b"ray::half\0--token=hunter2\0", "ray::half"),
        ("python", b"ray::half\0", "python"),
        ("ray::a b", b"ray::a\x1b[31mb\xff\0", "ray::a[31mb\ufffd"),
    ],
)
def test_a_worker_of_ray_has_its_class_as_its_name(tmp_path: Path, comm: str, cmdline: bytes, name: str) -> None:
    """Without the method, and of the command line nothing else."""
    root = machine(tmp_path / "proc", p5=(comm, 1000, 7, "0::/"))
    (root / "5" / "cmdline").write_bytes(cmdline)
    mine = reader(root=root)
    assert one(mine.find(listed(5)).processes).process.name == name
    (root / "5" / "cmdline").write_bytes(b"ray::Other.x\0")
    renamed = one(mine.find(listed(5)).processes).process.name
    assert renamed == ("ray::Other" if comm.startswith("ray::") else name), "a worker runs others"
