"""Jobs of Slurm by what its prolog and epilog wrote: files of every kind, and a real Slurm."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path

import pytest

from collector.jobs.slurm import MOST_FILES, SlurmConfig, SlurmJobs
from collector.jobs.source import JobsAnswer, JobsInput
from telemetry.devices import Gpu
from telemetry.notations.slurm import expanded, gres_order
from telemetry.wire.jobs import JobKey, Precision
from tests.collector.jobs.given import START, at, process
from tests.second_user import NOBODY, needs_root
from tests.slurm.cluster import SlurmCluster, needs_slurm, running

HOOKS = Path(__file__).parents[3] / "deploy" / "slurm"
GPUS = tuple(Gpu(uuid=f"GPU-{n}", index=n, minor=n, name="H100") for n in range(4))
CGROUP = "5:devices:/slurm/uid_1000/job_{}/step_0/task_0\n0::/system.slice/slurmd.service\n"


def write(folder: Path, job: str = "7", restart: str = "0", **more: str) -> Path:
    """Write what the prolog writes."""
    folder.mkdir(mode=0o755, exist_ok=True)
    its = {"cluster": "loop", "job": job, "restart": restart, "user": "ada", "gpus": "0", "begin": str(START), **more}
    path = folder / f"slurm-{job}-{restart}"
    path.write_text("".join(f"{key}={value}\n" for key, value in its.items()))
    path.chmod(0o644)
    return path


def read(folder: Path, *, gres: Path | None = None, **given: object) -> JobsAnswer:
    """Ask once."""
    config = SlurmConfig(folder=folder, gres_file=gres or folder / "gres.conf")
    asked = JobsInput(**{"at": START, "node": "n1", "gpus": GPUS, **given})  # type: ignore[arg-type]
    return SlurmJobs(config).read(asked)


def held(answer: JobsAnswer) -> Mapping[str, set[str]]:
    """Return the GPUs that each job has now."""
    found: dict[str, set[str]] = {}
    for each in answer.allocations:
        if not each.end:
            found.setdefault(each.job.id, set()).add(each.gpu[4:])
    return found


def test_a_job_has_the_gpus_that_the_prolog_wrote_until_the_epilog_did(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    write(folder, gpus="1,2", account="physics", partition="gpu", nodes="2", array="6_1")
    answer = read(folder)
    assert held(answer) == {"7": {"1", "2"}}
    (job,) = answer.jobs
    assert job.key == JobKey("slurm", "loop", "7")
    assert (job.user, job.account, job.queue, job.nodes, job.owner) == ("ada", "physics", "gpu", 2, "Array/6_1")
    assert (job.state, job.begin, job.end) == ("RUNNING", START, 0)
    write(folder, gpus="1,2", end=str(at(60)), exit="3:0")
    ended = read(folder)
    assert {(a.gpu, a.begin, a.end, a.end_from) for a in ended.allocations} == {
        (f"GPU-{n}", START, at(60), Precision.HOOK) for n in (1, 2)
    }
    assert [(each.state, each.exit_code) for each in ended.jobs] == [("FAILED", 3)]
    write(folder, end=str(at(60)), exit="0:15")
    assert [(each.state, each.exit_code) for each in read(folder).jobs] == [("FAILED", -15)]
    write(folder, end=str(at(60)), exit="0:0")
    assert [(each.state, each.exit_code) for each in read(folder).jobs] == [("ended", None)]


def test_a_job_without_gpus_of_its_own_is_named_all_the_same(tmp_path: Path) -> None:
    """One that has the whole node for itself."""
    write(tmp_path / "jobs", gpus="")
    answer = read(tmp_path / "jobs")
    assert ([job.key.id for job in answer.jobs], answer.allocations) == (["7"], ())


def test_a_process_belongs_to_the_newest_start_of_its_job(tmp_path: Path) -> None:
    """A cgroup has no count of restarts."""
    folder = tmp_path / "jobs"
    write(folder, end=str(at(5)))
    write(folder, restart="1", begin=str(at(9)))
    processes = (process(10, cgroup=CGROUP.format(7)), process(11, cgroup=CGROUP.format(8)), process(12, cgroup="0::/"))
    owners = read(folder, processes=processes).owners
    assert {each[0]: (its.job.restart, its.step) for each, its in owners.items()} == {10: (1, "0")}


@pytest.mark.parametrize(
    ("lines", "node", "order", "why"),
    [
        ("NodeName=n[1-2] Name=gpu Type=h100 File=/dev/nvidia3\nNodeName=n1 Name=gpu File=/dev/nvidia[0-2]", "n1", [3, 0, 1, 2], ""),
        ("Name=gpu File=/dev/nvidia[2-3]  # the others are ours\nName=gpu file=/dev/nvidia[0,1]", "n1", [2, 3, 0, 1], ""),
        ("nodename=n1 name=GPU file=/dev/nvidia1", "n1.lab.example", [1], ""),
        ("NodeName=n2 Name=gpu File=/dev/nvidia3", "n1", [0, 1, 2, 3], "names no File= of this node"),
        ("AutoDetect=nvml", "n1", [0, 1, 2, 3], "names no File= of this node"),
        ("Name=gpu File=/dev/dri/card0", "n1", [0, 1, 2, 3], "is no /dev/nvidiaN"),
        ("NodeName=r[1-2]n[1-2] Name=gpu File=/dev/nvidia[3,2,1,0]", "r2n1", [3, 2, 1, 0], ""),
        ("NodeName=n[1,,2] Name=gpu File=/dev/nvidia3", "n1", [0, 1, 2, 3], "invalid literal"),
        ("NodeName=n[1-99999999] Name=gpu File=/dev/nvidia3", "n1", [0, 1, 2, 3], "more than 65536 names"),
        (None, "n1", [0, 1, 2, 3], "No such file"),
    ],
)  # fmt: skip
def test_slurms_numbers_are_those_of_gres_conf(
    tmp_path: Path, lines: str | None, node: str, order: list[int], why: str
) -> None:
    file = tmp_path / "gres.conf"
    if lines is not None:
        file.write_text(lines)
    found, assumed = gres_order(file, node, GPUS)
    assert found == order
    assert (why in assumed) if why else assumed == ""
    write(tmp_path / "jobs", gpus="0")
    answer = read(tmp_path / "jobs", gres=file, node=node)
    assert held(answer) == {"7": {str(order[0])}}
    assert bool(answer.state.message) is bool(why), "what is assumed is said"


@pytest.mark.parametrize(
    ("lines", "order", "why"),
    [
        ("Name=gpu Type=mi300x File=/dev/dri/renderD[130-131,128-129]", [130, 131, 128, 129], ""),
        ("AutoDetect=rsmi", [128, 129, 130, 131], "names no File="),
    ],
)
def test_slurms_numbers_of_amds_gpus_are_those_of_their_render_nodes(
    tmp_path: Path, lines: str, order: list[int], why: str
) -> None:
    """Slurm sets ROCR_VISIBLE_DEVICES by the same numbers."""
    gpus = [Gpu(uuid=str(n), index=n - 128, name="AMD Instinct MI300X", minor=n) for n in range(128, 132)]
    file = tmp_path / "gres.conf"
    file.write_text(lines)
    found, assumed = gres_order(file, "n1", gpus)
    assert (found, why in assumed) == (order, True)


def test_a_list_of_nodes_is_expanded_as_slurm_does() -> None:
    assert expanded("r[1-2]n[09-10]") == ["r1n09", "r1n10", "r2n09", "r2n10"]
    assert expanded("n[01-03,7],head,gpu-[9-10]-a") == ["n01", "n02", "n03", "n7", "head", "gpu-9-a", "gpu-10-a"]


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"begin": ""}, "it has no begin"),
        ({"begin": "1790000000"}, "its begin is no time in ns"),
        ({"end": str(START - 1)}, "it ends before it begins"),
        ({"gpus": "0,x"}, "invalid literal"),
        ({"gpus": "0,0"}, "no numbers of GPUs"),
        ({"gpus": "-1"}, "no numbers of GPUs"),
        ({"user": "é"}, "can't decode"),
        ({"user": "a" * 5000}, "no plain file of at most 4096 bytes"),
    ],
)
def test_a_file_that_no_hook_wrote_is_not_believed_and_the_others_are(
    tmp_path: Path, changed: dict[str, str], problem: str
) -> None:
    write(tmp_path / "jobs", "7", **changed)
    write(tmp_path / "jobs", "8", gpus="3")
    answer = read(tmp_path / "jobs")
    assert held(answer) == {"8": {"3"}}
    assert "slurm-7-0 is not believed" in answer.state.message
    assert problem in answer.state.message


def test_a_gpu_that_the_node_has_not_is_said(tmp_path: Path) -> None:
    write(tmp_path / "jobs", gpus="2,9")
    answer = read(tmp_path / "jobs")
    assert held(answer) == {"7": {"2"}}
    assert "job 7 has GPU 9 of Slurm, which is none of this node's" in answer.state.message


def test_whoever_could_blame_another_is_not_believed(tmp_path: Path) -> None:
    """Links, files and folders that others may write; a file under another job's name."""
    folder = tmp_path / "jobs"
    write(folder, "1").chmod(0o666)
    write(tmp_path / "elsewhere", "2").rename(tmp_path / "true")
    (folder / "slurm-2-0").symlink_to(tmp_path / "true")
    write(folder, "3").rename(folder / "slurm-4-0")
    os.mkfifo(folder / "slurm-5-0")
    answer = read(folder)
    assert held(answer) == {}
    for part in (
        "others may write it (mode 0666)",
        "Too many levels of symbolic links",
        "of different jobs",
        "and 1 more",
    ):
        assert part in answer.state.message
    folder.chmod(0o777)
    refused = read(folder)
    assert (refused.state.state, refused.jobs) == ("failing", ())
    assert "others may write it (mode 0777): chmod go-w" in refused.state.message


@needs_root
def test_a_file_of_another_user_is_not_believed(tmp_path: Path) -> None:
    os.chown(write(tmp_path / "jobs"), NOBODY, NOBODY)
    answer = read(tmp_path / "jobs")
    assert answer.jobs == ()
    assert f"it belongs to user {NOBODY}, not to root" in answer.state.message


def test_without_a_folder_there_is_no_slurm(tmp_path: Path) -> None:
    assert read(tmp_path / "jobs").state.state == "absent"


def test_a_folder_that_nobody_clears_is_bounded(tmp_path: Path) -> None:
    for number in range(MOST_FILES + 5):
        write(tmp_path / "jobs", str(number + 1), gpus="")
    answer = read(tmp_path / "jobs")
    assert len(answer.jobs) == MOST_FILES
    assert max(int(job.key.id) for job in answer.jobs) == MOST_FILES + 5
    assert "the newest jobs are read" in answer.state.message


# -- The hooks -------------------------------------------------------------------------------------


def run(name: str, folder: Path, **more: str) -> None:
    """Run a hook as Slurm does."""
    its = {"SLURM_JOB_ID": "7", "SLURM_JOB_USER": "ada", "SLURM_JOB_GPUS": "0,1", "SLURM_CLUSTER_NAME": "loop", "KILOWATCH_JOBS": str(folder)}  # fmt: skip
    done = subprocess.run([HOOKS / name], env={**its, **more}, capture_output=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_hooks_write_what_is_read_whatever_a_user_calls_things(tmp_path: Path) -> None:
    folder = tmp_path / "run" / "jobs"
    run(
        "prolog",
        folder,
        SLURM_JOB_PARTITION="gpu\nuser=root\ngpus=3",
        SLURM_JOB_ACCOUNT="$(reboot)`x`",
        SLURM_JOB_COMMENT="for Ann\ngpus=3; kilowatch: gpus=6 idle=ok\nuser=root",
    )
    (job,) = read(folder).jobs
    assert job.purpose == "gpus=6 idle=okuser=root", "one line, whatever it says"
    assert (job.user, job.account, job.queue) == ("ada", "rebootx", "gpuuserrootgpus3")
    assert held(read(folder)) == {"7": {"0", "1"}}
    run("epilog", folder, SLURM_JOB_EXIT_CODE2="0:9")
    (ended,) = read(folder).jobs
    assert (ended.exit_code, ended.end >= ended.begin > 0) == (-9, True)
    assert sorted(path.name for path in folder.iterdir()) == ["slurm-7-0"]


def test_the_hooks_never_fail_a_job(tmp_path: Path) -> None:
    """A prolog that fails drains its node."""
    (tmp_path / "file").write_text("")
    for name in ("prolog", "epilog"):
        run(name, tmp_path / "file" / "jobs")
        run(name, tmp_path / "never", SLURM_JOB_ID="")
    run("epilog", tmp_path / "none")
    assert not (tmp_path / "none").exists()


def test_the_prolog_removes_what_ended_long_ago_and_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "jobs"
    ended, long_running, lately = (
        write(folder, "1", end=str(at(9))),
        write(folder, "2"),
        write(folder, "3", end=str(at(9))),
    )
    for path in (ended, long_running):
        os.utime(path, (1, 1))
    run("prolog", folder)
    assert not ended.exists()
    assert long_running.exists()
    assert lately.exists()


def test_the_prolog_removes_what_a_restart_of_the_node_ended_an_hour_ago(tmp_path: Path) -> None:
    """Where the folder outlives the restart. A folder is there in place of /proc, whose uptime no test can set."""
    folder, proc = tmp_path / "jobs", tmp_path / "proc"
    (proc / "sys/kernel/random").mkdir(parents=True)
    (proc / "sys/kernel/random/boot_id").write_text("this\n")
    hook = tmp_path / "prolog"
    hook.write_text((HOOKS / "prolog").read_text().replace("/proc/", f"{proc}/"))
    hook.chmod(0o755)
    before, here, unsaid = write(folder, "1", boot="that"), write(folder, "2", boot="this"), write(folder, "3", boot="")
    older, early = write(folder, "4"), write(folder, "5", boot="thi")
    lately = write(folder, "6", boot="that", end=str(at(9)))
    every = [before, here, unsaid, older, early, lately]
    (proc / "uptime").write_text("3599.99 7000.00\n")
    run(str(hook), folder)
    assert all(path.exists() for path in every), "a collector may not have read them"
    (proc / "uptime").write_text("3600.01 7000.00\n")
    boot = (proc / "sys/kernel/random/boot_id").rename(proc / "away")
    run(str(hook), folder)
    assert all(path.exists() for path in every), "nobody knows which start it is"
    boot.rename(proc / "sys/kernel/random/boot_id")
    run(str(hook), folder)
    assert [path for path in every if path.exists()] == [here, unsaid, older, lately]
    (proc / "uptime").unlink()
    write(folder, "1", boot="that")
    run(str(hook), folder)
    assert before.exists(), "nobody knows when it was"


# -- A real Slurm ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmCluster]:
    """Two nodes of four GPUs whose numbers in Slurm are not those of their devices."""
    with running(tmp_path_factory.mktemp("slurm"), ("n1", "n2"), 4, HOOKS) as cluster:
        yield cluster


def on(cluster: SlurmCluster, node: str) -> JobsAnswer:
    """Ask on a node, by a source that has just been started."""
    return read(cluster.folder / f"jobs-{node}", gres=cluster.folder / "gres.conf", node=node)


def said(cluster: SlurmCluster, job: str, node: str) -> set[str]:
    """Return the GPUs of a job on a node as Slurm itself says, as numbers of devices."""
    text = cluster.text("scontrol", "show", "job", "-d", job)
    found: set[str] = set()
    for nodes, index in re.findall(r"Nodes=(\S+) .*?GRES=\S*\(IDX:([0-9,-]+)\)", text):
        if node in expanded(nodes):
            found |= {str(3 - int(each)) for each in expanded(f"[{index}]")}
    return found


def times(cluster: SlurmCluster, job: str) -> dict[str, float]:
    """Return begin and end of a job as Slurm says, seconds since 1970."""
    text = cluster.text("scontrol", "show", "job", job)
    found = re.findall(r"(StartTime|EndTime)=(\d\S+)", text)
    return {name: datetime.fromisoformat(when).timestamp() for name, when in found}


@needs_slurm
@pytest.mark.systems
def test_jobs_of_a_real_slurm_have_the_gpus_and_times_that_it_says(slurm: SlurmCluster) -> None:
    """Two on one node, one over both, one that fails, one that is cancelled."""
    two = slurm.submit("sleep 600", "--gres=gpu:2", "-w", "n1")
    one = slurm.submit("sleep 600", "--gres=gpu:1", "-w", "n1")
    slurm.until(lambda: set(held(on(slurm, "n1"))) == {two, one})
    answer = on(slurm, "n1")
    assert answer.state.message == ""
    assert held(answer) == {two: said(slurm, two, "n1"), one: said(slurm, one, "n1")}
    assert {len(each) for each in held(answer).values()} == {1, 2}
    for job in answer.jobs:
        (prolog,) = slurm.hook_ran("prolog", "n1", job.key.id)
        assert prolog.before <= job.begin <= prolog.after
        assert times(slurm, job.key.id)["StartTime"] <= job.begin / 1e9 + 1
        assert (job.key.cluster, job.nodes, job.queue, job.state) == ("loop", 1, "all", "RUNNING")
    both = slurm.submit("sleep 600", "--gres=gpu:1", "-N", "2")
    slurm.until(lambda: both in held(on(slurm, "n1")) and both in held(on(slurm, "n2")))
    assert held(on(slurm, "n2")) == {both: said(slurm, both, "n2")}
    failing = slurm.submit("exit 3", "--gres=gpu:1", "-w", "n2")
    slurm.text("scancel", one)
    slurm.until(lambda: {job.key.id for job in on(slurm, "n1").jobs if job.end} >= {one})
    slurm.until(lambda: {job.key.id for job in on(slurm, "n2").jobs if job.end} >= {failing})
    (ended,) = [job for job in on(slurm, "n2").jobs if job.key.id == failing]
    assert (ended.state, ended.exit_code) == ("FAILED", 3)
    (cancelled,) = [job for job in on(slurm, "n1").jobs if job.key.id == one]
    assert (cancelled.state, cancelled.exit_code) == ("ended", None), "not a completed one"
    (epilog,) = slurm.hook_ran("epilog", "n2", failing)
    assert epilog.before <= ended.end <= epilog.after
    assert times(slurm, failing)["EndTime"] <= ended.end / 1e9 + 1
    assert set(held(on(slurm, "n1"))) == {two, both}
    slurm.text("scancel", two, both)
    slurm.until(lambda: held(on(slurm, "n1")) == held(on(slurm, "n2")) == {})


@needs_slurm
@pytest.mark.systems
def test_arrays_idle_allocations_and_restarts_of_a_real_slurm(slurm: SlurmCluster) -> None:
    array = slurm.submit("sleep 600", "--gres=gpu:1", "-w", "n1", "--array=0-1")
    slurm.until(lambda: len(held(on(slurm, "n1"))) == 2)
    owners = {job.owner for job in on(slurm, "n1").jobs if not job.end}
    assert owners <= {f"Array/{array}_0", f"Array/{array}_1", ""}
    slurm.text("scancel", array)
    slurm.text("salloc", "--no-shell", "--gres=gpu:4", "-w", "n2", "-J", "idle")
    slurm.until(lambda: sorted(map(len, held(on(slurm, "n2")).values())) == [4])
    slurm.text("scancel", "--name", "idle")
    slurm.until(lambda: held(on(slurm, "n1")) == held(on(slurm, "n2")) == {})
    again = slurm.submit("sleep 600", "--gres=gpu:1", "-w", "n2", "--requeue")
    slurm.until(lambda: again in held(on(slurm, "n2")))
    slurm.text("scontrol", "requeue", again)
    slurm.until(lambda: again not in held(on(slurm, "n2")))

    # Its daemon refuses a second run within the second of the first's end ("already killed, do not launch").
    slurm.until(lambda: slurm.text("squeue", "-h", "-j", again, "-o", "%T") == "PENDING")
    slurm.text("scontrol", "update", f"JobId={again}", "StartTime=now+5")
    slurm.until(lambda: again in held(on(slurm, "n2")))
    runs = [job for job in on(slurm, "n2").jobs if job.key.id == again]
    assert sorted((job.key.restart, bool(job.end)) for job in runs) == [(0, True), (1, False)]
    slurm.text("scancel", again)
    slurm.until(lambda: held(on(slurm, "n2")) == {})


def test_the_commands_and_settings_of_the_page_are_true(tmp_path: Path) -> None:
    """The hooks where the page puts them do what is read."""
    root = HOOKS.parents[1]
    page = (root / "docs" / "slurm.md").read_text()
    commands = re.findall(r"^ +(install .*)$", page, re.MULTILINE)
    assert len(commands) == 2
    for command in commands:
        here = command.replace("/etc/slurm", str(tmp_path))
        subprocess.run(here.split(), check=True, cwd=root, timeout=60)
    for hook, state in (("Prolog", "RUNNING"), ("Epilog", "FAILED")):
        (path,) = re.findall(rf"^ +{hook}=/etc/slurm/(\S+)$", page, re.MULTILINE)
        run(str(tmp_path / path), tmp_path / "jobs", SLURM_JOB_EXIT_CODE2="1:0")
        assert [job.state for job in read(tmp_path / "jobs").jobs] == [state]
    (settings,) = re.findall(r"\[jobs\.slurm\]\n\s*folder = \"(\S+)\"\n\s*gres_file = \"(\S+)\"", page)
    assert SlurmConfig() == SlurmConfig(folder=Path(settings[0]), gres_file=Path(settings[1]))
