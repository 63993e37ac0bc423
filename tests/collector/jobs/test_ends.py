"""Ends of jobs whose epilog did not run: by evidence, never by silence, and for good."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from collector.jobs.ends import NEWER_RUN, NEXT_HOLDER, NODE_RESTART, MachineStart, conclusions
from collector.jobs.merge import JobMerge, MergedJobs
from collector.jobs.slurm import SlurmConfig, SlurmJobs
from collector.jobs.source import FoundProcess, JobsAnswer, JobsInput, Ownership
from telemetry.devices import Gpu
from telemetry.notations.slurm import shares_gpus
from telemetry.wire.jobs import ENDED_SECONDS, AllocationKind, JobKey, Precision
from tests.collector.jobs.given import at, process

GPUS = tuple(Gpu(uuid=f"GPU-{n}", index=n, minor=n, name="H100") for n in range(4))
OWN_GPU, OWN_TYPES = "Name=gpu File=/dev/nvidia[0-3]\n", "GresTypes=gpu\n"
HOUR = 3600.0


class Node:
    """The hooks' files of a node, and the collector that reads them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "jobs"
        self.folder.mkdir(mode=0o755)
        self.gres = folder / "gres.conf"
        self.gres.write_text(OWN_GPU)
        self.conf = folder / "slurm.conf"
        self.conf.write_text(OWN_TYPES)
        self.boot = MachineStart("this", at(-1000))
        self.slurm = SlurmJobs(SlurmConfig(folder=self.folder, gres_file=self.gres), lambda: self.boot)
        self.merge = JobMerge()

    def prolog(
        self, job: str, begin: float, gpus: str = "0", restart: int = 0, end: float = 0, boot: str = "this"
    ) -> Path:
        """Write what the prolog does, and the epilog."""
        path = self.folder / f"slurm-{job}-{restart}"
        path.write_text(
            f"cluster=loop\njob={job}\nrestart={restart}\nuser=ada\ngpus={gpus}\nboot={boot}\nbegin={at(begin)}\n"
            + (f"end={at(end)}\n" if end else "")
        )
        path.chmod(0o644)
        return path

    def read(self, seconds: float, *processes: FoundProcess) -> JobsAnswer:
        return self.slurm.read(JobsInput(at=at(seconds), node="n1", gpus=GPUS, processes=tuple(processes)))

    def holders(self, seconds: float, *processes: FoundProcess) -> set[tuple[str, int]]:
        """Number and restart of the jobs that hold a GPU."""
        answer = self.read(seconds, *processes)
        return {(each.job.id, each.job.restart) for each in answer.allocations if not each.end}

    def look(self, seconds: float, *processes: FoundProcess) -> MergedJobs:
        """Have the collector look."""
        given = JobsInput(at=at(seconds), node="n1", gpus=GPUS, processes=tuple(processes))
        answer = self.slurm.read(given)
        return self.merge.update(given, dict[tuple[int, int], Ownership](), {"slurm-hook": answer})

    def restart(self) -> None:
        """Begin anew with what is on disk."""
        self.merge = JobMerge(self.merge.open, self.merge.ended)


def of_job(job: str, pid: int, read: float, gpu: str = "GPU-0") -> FoundProcess:
    """Return a process of a job."""
    return process(pid, started=1, gpu=gpu, read=read, cgroup=f"5:devices:/slurm/uid_1000/job_{job}/step_0\n")


def test_a_job_ends_when_a_newer_run_of_it_begins_and_with_the_next_job_on_its_gpu(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.prolog("33", 0, gpus="0,1")
    assert node.holders(10 * HOUR) == {("33", 0)}, "silence is no evidence"
    node.prolog("33", 300, gpus="3", restart=1)
    assert node.holders(1000) == {("33", 1)}
    node.prolog("34", 900, gpus="2,3")
    assert node.holders(1000) == {("34", 0)}
    ends = {
        (a.job.id, a.job.restart, a.gpu): (a.end, a.end_from, a.end_by) for a in node.read(1000).allocations if a.end
    }
    assert ends == {
        ("33", 0, "GPU-0"): (at(300), Precision.PROCESS, NEWER_RUN),
        ("33", 0, "GPU-1"): (at(300), Precision.PROCESS, NEWER_RUN),
        ("33", 1, "GPU-3"): (at(900), Precision.PROCESS, NEXT_HOLDER),
    }
    assert {(job.key.id, job.key.restart, job.state, job.end) for job in node.read(1000).jobs} == {
        ("33", 0, "ended", at(300)),
        ("33", 1, "ended", at(900)),
        ("34", 0, "RUNNING", 0),
    }


def test_an_epilog_that_ends_a_newer_run_does_not_say_when_an_older_one_ended(tmp_path: Path) -> None:
    """It writes its end into all files of the job that have none."""
    node = Node(tmp_path)
    node.prolog("33", 0)
    node.look(1)
    node.prolog("33", 300, restart=1)
    node.look(301)
    node.prolog("33", 0, end=400)
    node.prolog("33", 300, restart=1, end=400)
    for found in (node.look(401).allocations, node.read(401).allocations):
        ends = {(each.job.restart, each.end, each.end_by) for each in found}
        assert ends == {(0, at(300), NEWER_RUN), (1, at(400), "")}


def test_a_job_on_other_gpus_and_one_that_ended_are_no_evidence(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.prolog("32", 0, end=50)
    node.prolog("33", 100)
    node.prolog("34", 200, gpus="1,2")
    assert node.holders(1000) == {("33", 0), ("34", 0)}
    (first,) = [each for each in node.read(1000).allocations if each.job.id == "32"]
    assert (first.end, first.end_from, first.end_by) == (at(50), Precision.HOOK, "")


@pytest.mark.parametrize(
    ("gres", "slurm", "shared"),
    [
        (OWN_GPU, None, None),
        (OWN_GPU, OWN_TYPES, False),
        (None, OWN_TYPES, False),
        (OWN_GPU, "Include common.conf\n", None),
        (OWN_GPU, OWN_TYPES + " include common.conf\n", None),
        (OWN_GPU, OWN_TYPES + "#Include common.conf\n", False),
        (OWN_GPU, "Include common.conf\nGresTypes=gpu,shard\n", True),
        (OWN_GPU, "GresTypes=gpu,\\\nshard\n", True),
        (OWN_GPU, "GresTypes=gpu,\\ # parts\n  shard\n", True),
        (OWN_GPU, "GresTypes=gpu\\\n\nMpiDefault=none\n", False),
        (OWN_GPU, "ClusterName=loop GresTypes=gpu,shard\n", True),
        (OWN_GPU + "Name=shard Count=16\n", None, True),
        (OWN_GPU, "ClusterName=loop\nGresTypes = gpu,shard # parts\n", True),
        (None, "grestypes=gpu,mps\n", True),
        (OWN_GPU + "# Name=shard\n", "#GresTypes=gpu,shard\n", False),
        (None, None, None),
    ],
)
def test_a_gpu_that_slurm_gives_to_several_at_a_time_is_no_evidence(
    tmp_path: Path, gres: str | None, slurm: str | None, shared: bool | None
) -> None:
    """A prolog is told of a shard as of a GPU: Slurm 22.05 says SLURM_JOB_GPUS=0 to two jobs with `--gres=shard:2`."""
    node = Node(tmp_path)
    for file, text in ((node.gres, gres), (node.conf, slurm)):
        file.unlink() if text is None else file.write_text(text)
    node.prolog("33", 0)
    node.prolog("34", 100)
    assert shares_gpus(node.gres) is shared
    both = {("33", 0), ("34", 0)}
    assert node.holders(1000) == ({("34", 0)} if shared is False else both)


def test_a_slurm_conf_of_blank_lines_is_read_in_time_that_grows_with_its_length(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.conf.write_text(OWN_TYPES + "\n" * 100_000)
    begun = time.process_time()
    assert shares_gpus(node.gres) is False
    assert time.process_time() - begun < 5, "it was 49 s"


def test_a_process_of_a_job_is_evidence_against_its_end_until_the_next_has_one(tmp_path: Path) -> None:
    """A clock that was set back has the older job begin later."""
    node = Node(tmp_path)
    node.prolog("34", 0)
    node.prolog("33", 100)
    assert node.holders(50) == {("33", 0), ("34", 0)}, "it began in the future"
    assert node.holders(1000, of_job("34", 7, 1000)) == {("33", 0), ("34", 0)}
    both = of_job("34", 7, 1000), of_job("33", 8, 1000)
    assert node.holders(1000, *both) == {("33", 0)}


def test_a_job_of_before_the_node_s_last_start_has_ended(tmp_path: Path) -> None:
    """Where the folder of the hooks outlives it."""
    node = Node(tmp_path)
    node.prolog("33", 0)
    node.prolog("35", 0, gpus="1", boot="")
    node.look(60, of_job("33", 7, 58))
    node.boot = MachineStart("another", at(500))
    assert node.holders(600) == {("35", 0)}, "an older prolog wrote no start of the machine"
    ended = [each for each in node.look(600).allocations if each.end]
    assert {(each.kind, each.end, each.end_after, each.end_by) for each in ended} == {
        (AllocationKind.ALLOCATED, at(500), at(58), NODE_RESTART),
        (AllocationKind.USED, at(58), 0, ""),
    }


def test_the_end_by_a_restart_is_the_same_at_every_look(tmp_path: Path) -> None:
    """The clock and the time since the start are read one after the other: their difference is never the same. A list
    that differs is sent again."""
    node = Node(tmp_path)
    file = node.prolog("33", 0, boot="another")
    file.write_text(file.read_text().replace(f"begin={at(0)}", f"begin={10**18}"))
    slurm = SlurmJobs(SlurmConfig(folder=node.folder, gres_file=node.gres))
    given = JobsInput(at=2 * at(0), node="n1", gpus=GPUS, processes=())
    answers = [slurm.read(given) for _ in range(5)]
    assert answers == [answers[0]] * 5
    assert {each.end_by for each in answers[0].allocations} == {NODE_RESTART}


def test_a_concluded_end_is_for_good_unless_the_epilog_says_otherwise(tmp_path: Path) -> None:
    """The prolog removes files of jobs that ended an hour ago, and with them the evidence."""
    node = Node(tmp_path)
    node.prolog("33", 0)
    node.look(1)
    later = node.prolog("34", 100)
    node.look(101)
    node.prolog("34", 100, end=200)
    node.look(201)
    later.unlink()
    for seconds in (202, 202 + ENDED_SECONDS, 10 * HOUR):
        found = node.look(seconds)
        assert [each.job.id for each in found.allocations if not each.end] == []
        node.restart()
    assert found.allocations == (), "and it leaves the list like any other"


@dataclass
class CountedRun:
    """A run that counts how often somebody looks at its key."""

    number: int
    end: int
    looks: list[int]
    boot_id: str = "this"

    @property
    def key(self) -> JobKey:
        self.looks.append(self.number)
        return JobKey("slurm", "loop", str(self.number))

    @property
    def gpus(self) -> tuple[int, ...]:
        return (self.number % 8,)

    @property
    def begin(self) -> int:
        return at(self.number)


@pytest.mark.parametrize("end", [0, at(2 * HOUR)], ids=["open", "ended"])
def test_the_work_grows_with_the_number_of_files(end: int) -> None:
    """A node of short jobs has 2,000 files of the last hour, and they are judged every second."""

    def looks(runs: int) -> int:
        found: list[int] = []
        files = [CountedRun(number, end, found) for number in range(runs)]
        ends = conclusions(files, lambda _: False, MachineStart("this", 0), at(HOUR), exclusive=lambda: True)
        assert len(ends) == (0 if end else runs - 8)
        return len(found)

    assert looks(400) <= 2.5 * looks(200)


def test_a_late_epilog_is_more_exact(tmp_path: Path) -> None:
    node = Node(tmp_path)
    node.prolog("33", 0)
    node.prolog("34", 100)
    node.look(101)
    node.prolog("33", 0, end=90)
    (first,) = [each for each in node.look(110).allocations if each.job.id == "33"]
    assert (first.end, first.end_from, first.end_by, first.end_after) == (at(90), Precision.HOOK, "", 0)


def test_what_a_job_uses_lies_within_what_it_was_given(tmp_path: Path) -> None:
    """A process that it left behind is shown as such, and holds no GPU."""
    node = Node(tmp_path)
    node.prolog("33", 2)
    node.look(3, of_job("33", 7, 3))
    node.prolog("33", 2, end=50)
    for seconds in (52, 57, 57 + ENDED_SECONDS / 2):
        found = node.look(seconds, of_job("33", 7, seconds))
        spans = {(each.kind.value, each.begin, each.end) for each in found.allocations}
        assert spans == {("allocated", at(2), at(50)), ("used", at(3), at(50))}
        assert [each.job for each in found.processes] == [JobKey("slurm", "loop", "33")]
    (node.folder / "slurm-33-0").unlink()
    node.restart()
    found = node.look(2 * HOUR, of_job("33", 7, 2 * HOUR))
    assert found.allocations == ()
