"""Jobs of PBS and LSF: answers of `qstat` and `bjobs` in their documented forms, and lists of nodes that see their cgroups.

The forms are those that OpenPBS and LSF 10.1 are shown to print in public; neither ran here.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.assembly.scheduler_choice import word_of
from aggregator.config import AggregatorConfig
from aggregator.jobs.service import JobService
from aggregator.jobs.stored import JobQuery
from aggregator.scheduler import lsf, pbs
from aggregator.scheduler.listed import JobListing, ListedJob
from aggregator.scheduler.poll import LSF_QUESTIONS, PBS_QUESTIONS, TablePoll
from aggregator.scheduler.tables import JobForm, TableReader, accounts_of
from aggregator.settings.batch import LsfAskConfig, PbsAskConfig
from aggregator.settings.condor import CondorAskConfig
from aggregator.settings.slurm import SlurmAskConfig
from api.jobs import JobPhase, JobRow
from collector.jobs.cgroups import reading_of
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.notations.batch import without_server
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, NodeJobs, UserPrivacy
from telemetry.wire.topics import Topic
from tests.aggregator.heard_poll import HeardPoll
from tests.aggregator.node import ScriptedNode, inventory
from tests.aggregator.test_evidence import fetched
from tests.aggregator.test_scheduler_poll import command
from tests.aggregator.test_service import config, running
from tests.brokers import Broker
from tests.endtoend.node import runs
from tests.kit.waiting import until

SECOND = 10**9
START = 1_790_000_000  # Mon Sep 21 14:13:20 2026, UTC
GPUS = tuple(Gpu(uuid=f"GPU-{n}", index=n, minor=n, name="H100") for n in range(4))
PBS_ON = AggregatorConfig(pbs=PbsAskConfig(enabled=True))
LSF_ON = AggregatorConfig(lsf=LsfAskConfig(enabled=True))


def at(seconds: float) -> int:
    """Return a time, in seconds after the start."""
    return START * SECOND + int(seconds * SECOND)


def day(seconds: float, form: str = "%a %b %e %H:%M:%S %Y") -> str:
    """Return a time as both print it for a caller in UTC."""
    return time.strftime(form, time.gmtime(START + seconds))


def qsub(state: str = "R", begin: float = 1, **more: Any) -> dict[str, Any]:
    """Return what qstat prints of a job, with a part of what else there is."""
    return {
        "Job_Name": "train", "Job_Owner": "ada@login1.lab.example", "job_state": state, "queue": "gpu", "server": "pbs.lab.example",
        "ctime": day(-600), "etime": day(-300), "mtime": day(begin), "exec_host": "n1/0*8", "Rerunable": "True",
        "exec_vnode": "(n1:ncpus=8:ngpus=2)", "stime": day(begin), "run_count": 1, "project": "_pbs_project_default",
        "Resource_List": {"ncpus": 8, "ngpus": 2, "nodect": 1, "select": "1:ncpus=8:ngpus=2", "walltime": "48:00:00"},
        "resources_used": {"cpupercent": 0, "walltime": "00:00:49"}, "Variable_List": {"PBS_O_HOME": "/home/ada", "queue": "mine"},
        **more,
    }  # fmt: skip


def qstat(**jobs: dict[str, Any]) -> bytes:
    """Return an answer of qstat; names of jobs without their server."""
    named = {f"{name.removeprefix('j')}.pbs": its for name, its in jobs.items()}
    answer = {"timestamp": START, "pbs_version": "23.06.06", "pbs_server": "pbs", "Jobs": named}
    return json.dumps(answer, indent=4).encode()


def bsub(number: str = "4711", stat: str = "RUN", **more: str) -> dict[str, str]:
    """Return what bjobs prints of a job."""
    form = "%b %e %H:%M:%S %Y"
    return {
        "JOBID": number, "JOBINDEX": "0", "STAT": stat, "USER": "ada", "QUEUE": "gpu", "PROJ_NAME": "physics", "JOB_NAME": "train",
        "EXEC_HOST": "8*n1.lab.example", "SUBMIT_TIME": day(-600, form), "START_TIME": day(1, form), "FINISH_TIME": f"{day(3601, form)} L",
        "RUNTIMELIMIT": "1440.0", "EXIT_CODE": "", "EXIT_REASON": "", "GPU_NUM": "2", "GPU_ALLOC": "n1.lab.example:0,1,0,1", **more,
    }  # fmt: skip


def bjobs(*jobs: Mapping[str, str]) -> bytes:
    """Return an answer of bjobs."""
    return json.dumps({"COMMAND": "bjobs", "JOBS": len(jobs), "RECORDS": jobs}, indent=2).encode()


def read(table: JobForm, output: bytes, seconds: float = 100) -> JobListing:
    """Return what is read of an answer."""
    return TableReader(table).listing_of(output, at(seconds))


def only(table: JobForm, output: bytes, seconds: float = 100) -> ListedJob:
    """Return the one job of an answer with which nothing is wrong."""
    listing = read(table, output, seconds)
    assert listing.problems == ()
    (job,) = listing.jobs
    return job


# -- Forms -------------------------------------------------------------------------------------------


def test_a_job_of_pbs_as_qstat_has_it() -> None:
    listed = only(pbs.TABLE, qstat(j4711=qsub()))
    assert listed.job == Job(
        key=JobKey("pbs", "pbs", "4711"),
        name="train",
        user="ada",
        queue="gpu",
        submitted=at(-600),
        eligible=at(-300),
        begin=at(1),
        state="RUNNING",
        nodes=1,
        gpus=2,
        time_limit=172_800,
    )
    assert (listed.holds, listed.gpus, listed.counts) == (True, {}, {"n1": 2})


def test_a_job_of_lsf_as_bjobs_has_it() -> None:
    listed = only(lsf.TABLE, bjobs(bsub()))
    assert listed.job == Job(
        key=JobKey("lsf", "", "4711"),
        name="train",
        user="ada",
        account="physics",
        queue="gpu",
        submitted=at(-600),
        begin=at(1),
        state="RUNNING",
        nodes=1,
        gpus=2,
        time_limit=86_400,
    )
    assert (listed.holds, listed.gpus) == (True, {"n1.lab.example": (0, 1)})


@pytest.mark.parametrize(
    ("job", "state", "code"),
    [
        (qsub("F", Exit_status=0, obittime=day(50)), "COMPLETED", None),
        (qsub("F", Exit_status="3", history_timestamp=START + 50), "FAILED", 3),
        (qsub("F", Exit_status=271, history_timestamp=str(START + 50)), "FAILED", -15),
        (qsub("F", Exit_status=-29, obittime=day(50)), "TIMEOUT", None),
        (qsub("X", Exit_status=-27, obittime=day(50)), "OUT_OF_MEMORY", None),
        (qsub("F", Exit_status=-1, obittime=day(50)), "FAILED", None),
        (qsub("F", obittime=day(50)), "ended", None),
    ],
)
def test_how_a_job_of_pbs_ended(job: dict[str, Any], state: str, code: int | None) -> None:
    listed = only(pbs.TABLE, qstat(j7=job))
    assert (listed.job.state, listed.job.exit_code, listed.job.end) == (state, code, at(50))
    assert (listed.holds, listed.counts) == (False, {})


@pytest.mark.parametrize(
    ("stat", "more", "state", "code"),
    [
        ("DONE", {}, "COMPLETED", None),
        ("EXIT", {"EXIT_CODE": "3"}, "FAILED", 3),
        ("EXIT", {"EXIT_CODE": "130", "EXIT_REASON": "TERM_OWNER: job killed by owner"}, "CANCELLED", 130),
        ("EXIT", {"EXIT_CODE": "140", "EXIT_REASON": "TERM_RUNLIMIT: job killed after reaching LSF run time limit"}, "TIMEOUT", 140),
        ("EXIT", {"EXIT_CODE": "-", "EXIT_REASON": "TERM_MEMLIMIT: job killed"}, "OUT_OF_MEMORY", None),
    ],
)  # fmt: skip
def test_how_a_job_of_lsf_ended(stat: str, more: dict[str, str], state: str, code: int | None) -> None:
    finish = day(50, "%b %e %H:%M:%S %Y")
    listed = only(lsf.TABLE, bjobs(bsub(stat=stat, FINISH_TIME=f"{finish} L", **more)))
    assert (listed.job.state, listed.job.exit_code, listed.job.end) == (state, code, at(50))
    assert (listed.holds, listed.gpus) == (False, {})


@pytest.mark.parametrize(
    ("table", "answer", "state", "holds"),
    [
        *((pbs.TABLE, qstat(j7=qsub(word)), "PENDING", False) for word in "QHWT"),
        (pbs.TABLE, qstat(j7=qsub("E")), "COMPLETING", True),
        *((pbs.TABLE, qstat(j7=qsub(word)), "SUSPENDED", True) for word in "SU"),
        *((lsf.TABLE, bjobs(bsub(stat=word)), "PENDING", False) for word in ("PEND", "PSUSP")),
        *((lsf.TABLE, bjobs(bsub(stat=word)), "SUSPENDED", True) for word in ("USUSP", "SSUSP")),
        *((lsf.TABLE, bjobs(bsub(stat=word)), "", True) for word in ("UNKWN", "ZOMBI")),
    ],
)
def test_states(table: JobForm, answer: bytes, state: str, holds: bool) -> None:
    """The finish of a job of LSF that runs is an estimate, and the start of one that waits is one of a run before."""
    listed = only(table, answer)
    assert (listed.job.state, listed.holds, listed.job.end) == (state, holds, 0)
    assert listed.job.begin == (at(1) if holds else 0)


def test_what_is_not_there_is_not_known() -> None:
    empty = dict.fromkeys(bsub(), "") | {"JOBID": "7", "STAT": "PEND", "GPU_NUM": "-"}
    assert only(lsf.TABLE, bjobs(empty)).job == Job(key=JobKey("lsf", "", "7"), state="PENDING")
    bare = {"job_state": "R", "Job_Name": "x", "Resource_List": {"select": "2:ncpus=2:ngpus=2+1:ngpus=1"}}
    listing = read(pbs.TABLE, qstat(j7=bare))
    assert listing.jobs[0].job == Job(key=JobKey("pbs", "pbs", "7"), name="x", state="RUNNING", gpus=5)
    assert listing.problems == ("qstat dates no begin of 1 jobs that run",)


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("Sep 21 14:13:21 2026", at(1)),
        ("Sep 21 14:13:21 2026 X", at(1)),
        ("Sep 21 14:13", 0),  # of which year it is nobody knows, and where it begins within the minute
        ("Sep 21 16:13:21 2026", 0),  # yet to come: of another time zone
        ("Feb 31 14:13:21 2026", 0),
        ("Sen 21 14:13:21 2026", 0),
        ("1790000001", at(1)),
        ("9999999999999", 0),
    ],
)
def test_times(written: str, found: int) -> None:
    listing = read(lsf.TABLE, bjobs(bsub(START_TIME=written)))
    assert listing.jobs[0].job.begin == found
    assert bool(listing.problems) == (not found)


def test_a_begin_that_was_ahead_is_read_once_it_is_past() -> None:
    reader = TableReader(lsf.TABLE)
    answer = bjobs(bsub())
    assert reader.listing_of(answer, at(-100)).jobs[0].job.begin == 0
    assert reader.listing_of(answer, at(5)).jobs[0].job.begin == at(1)


@pytest.mark.parametrize(
    ("limit", "found"),
    [("1440.0", 86_400), ("90", 5400), ("24:00:00", 86_400), ("1:30", None), ("-", None), ("", None)],
)
def test_time_limits_of_lsf(limit: str, found: int | None) -> None:
    assert only(lsf.TABLE, bjobs(bsub(RUNTIMELIMIT=limit))).job.time_limit == found


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("n1:0,1,0,1;n2:3", {"n1": (0, 1), "n2": (3,)}),
        ("n1:0:3/2,1:3/2", {}),  # instances of MIG
        ("n1:", {}),
        ("-", {}),
        ("n1:99999999", {}),
    ],
)
def test_gpus_of_lsf(written: str, found: Mapping[str, Sequence[int]]) -> None:
    assert only(lsf.TABLE, bjobs(bsub(GPU_ALLOC=written))).gpus == found


def test_gpus_of_pbs_are_counted_by_node() -> None:
    nodes = "(n1[0]:ncpus=8:ngpus=2:mem=1kb+n1[1]:ngpus=2)+(n2.lab:ncpus=1:ngpus=4)+(n3:ncpus=4)"
    assert only(pbs.TABLE, qstat(j7=qsub(exec_vnode=nodes))).counts == {"n1": 4, "n2.lab": 4}


def test_tasks_of_arrays_are_jobs_and_arrays_are_none() -> None:
    listing = read(pbs.TABLE, qstat(**{"12[]": qsub("B"), "12[4]": qsub(), "13": qsub("M")}))
    assert [(each.key.id, each.job.owner) for each in listing.jobs] == [("12[4]", "Array/12_4")]
    listing = read(lsf.TABLE, bjobs(bsub("12", JOBINDEX="4"), bsub("13[2]")))
    assert [each.key.id for each in listing.jobs] == ["12[4]", "13[2]"]


def test_accounts_and_projects_of_pbs() -> None:
    jobs = {"1": {"Account_Name": "physics"}, "2": {"project": "chem"}, "3": {}}
    found = read(pbs.TABLE, qstat(**{name: qsub(**more) for name, more in jobs.items()})).jobs
    assert [each.job.account for each in found] == ["physics", "chem", ""]


# -- What is no JSON ---------------------------------------------------------------------------------


def broken(text: str, *changes: tuple[str, str]) -> bytes:
    """Return an answer with parts of it changed."""
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    return text.encode()


@pytest.mark.parametrize(
    "change",
    [
        ('"PBS_O_HOME": "/home/ada"', '"PBS_O_HOME": "it\\\'s a\\,b"'),  # until 2020 (2049)
        ('"PBS_O_HOME": "/home/ada"', '"foo":005,\n"bar":inf'),  # issue 1255 of OpenPBS
        ('"PBS_O_HOME": "/home/ada"', '"PBS_O_HOME":"say "hi" there"'),
        ('"PBS_O_HOME": "/home/ada"', '"PBS_O_HOME":"a\tb\x01"'),
        ('"Jobs": {', '"Jobs": {{'),
    ],
)
def test_answers_of_qstat_that_are_no_json_are_read_by_their_lines(change: tuple[str, str]) -> None:
    whole = qstat(j1=qsub(), j2=qsub("Q"))
    found = broken(whole.decode(), change)
    with pytest.raises(msgspec.DecodeError):
        msgspec.json.decode(found)
    assert read(pbs.TABLE, found) == read(pbs.TABLE, whole)


def test_releases_that_begin_the_list_anew_with_each_job() -> None:
    """As those until 2018 did for several jobs (pull request 585 of OpenPBS)."""
    first, second = (qstat(**{name: qsub()}).decode() for name in ("j1", "j2"))
    tail = second[second.index('"Jobs"') :]
    found = f"{first[: first.rindex('}', 0, first.rindex('}'))].rstrip()},\n{tail}".encode()
    assert read(pbs.TABLE, found) == read(pbs.TABLE, qstat(j1=qsub(), j2=qsub()))


def test_words_before_and_behind_an_answer() -> None:
    """qstat -t prints what it compares (issue 2541 of OpenPBS), bjobs that it waits for LSF."""
    answer = b"seq1 1, seq2 2\n" + qstat(j1=qsub()) + b"\nqstat: done\n"
    assert only(pbs.TABLE, answer).key.id == "1"
    waited = b"Cannot connect to LSF. Please wait ...\n" + bjobs(bsub())
    assert only(lsf.TABLE, waited).key.id == "4711"


def test_a_name_that_is_a_number_is_a_name() -> None:
    answer = broken(qstat(j1=qsub()).decode(), ('"Job_Name": "train"', '"Job_Name":007'))
    assert only(pbs.TABLE, answer).job.name == "007"
    assert only(pbs.TABLE, qstat(j1=qsub(Job_Name=12))).job.name == "12"


def test_a_user_whose_environment_looks_like_a_job_changes_no_other() -> None:
    """Where a line break in a variable is printed as one."""
    mine = '"PBS_O_HOME":"x\n"2.pbs": {\n"job_state": "F",\n"Exit_status": 1\n'
    answer = broken(qstat(j1=qsub(), j2=qsub(), j3=qsub()).decode(), ('"PBS_O_HOME": "/home/ada"', mine))
    listing = read(pbs.TABLE, answer)
    assert "3" in [each.key.id for each in listing.jobs]
    assert "2" not in [each.key.id for each in listing.jobs if each.job.state != "RUNNING"]
    assert "qstat lists 2 twice: it is not believed" in listing.problems
    closing = broken(
        qstat(j1=qsub(), j2=qsub()).decode(), ('"PBS_O_HOME": "/home/ada"', '"PBS_O_HOME":"x\n}\n"queue": "other"')
    )
    listing = read(pbs.TABLE, closing)
    assert [each.key.id for each in listing.jobs] == ["2"]
    assert listing.problems == ("a job of qstat can't be read: ValueError queue stands twice",)


def test_a_job_that_cannot_be_read_costs_no_other() -> None:
    listing = read(lsf.TABLE, bjobs(bsub("x"), bsub(stat="NEW"), bsub("8")))
    assert [each.key.id for each in listing.jobs] == ["8"]
    assert listing.problems == (
        "a job of bjobs can't be read: ValueError 'x' is no id of a job",
        "a job of bjobs can't be read: ValueError STAT 'NEW' is not known",
    )


@pytest.mark.parametrize("table", [pbs.TABLE, lsf.TABLE])
@pytest.mark.parametrize("output", [b"cannot connect", b"{", b'{"a": [}', b'{"a": 1}', b"\xff\xfe", b"[1]"])
def test_what_is_no_answer_is_refused(table: JobForm, output: bytes) -> None:
    with pytest.raises(ValueError, match=f"{table.command} prints no JSON"):
        read(table, output)


def test_no_job_is_an_answer() -> None:
    assert read(pbs.TABLE, b"").jobs == read(lsf.TABLE, b"\n").jobs == ()
    assert read(pbs.TABLE, b'{"timestamp": 1, "pbs_server": "pbs"}').jobs == ()
    assert read(lsf.TABLE, bjobs()).jobs == ()


def test_of_ten_thousand_jobs_those_that_are_as_before_are_not_read_again() -> None:
    reader = TableReader(lsf.TABLE)
    jobs = [bsub(str(number)) for number in range(1, 10_001)]
    before = {each.key: each for each in reader.listing_of(bjobs(*jobs), at(100)).jobs}
    jobs[7] = bsub("8", stat="SSUSP")
    after = reader.listing_of(bjobs(*jobs), at(115)).jobs
    assert len(after) == 10_000
    assert [each.key.id for each in after if each is not before[each.key]] == ["8"]


# -- Together with nodes -----------------------------------------------------------------------------


class Scene:
    """A node, and the scheduler that is asked."""

    def __init__(self, settings: AggregatorConfig) -> None:
        self.table = pbs.TABLE if settings.pbs.enabled else lsf.TABLE
        self.jobs = JobService(word=word_of(settings, lambda _: GPUS, at(0)))
        self.version = 0

    def node(self, seconds: float, *allocations: Allocation, users: UserPrivacy = UserPrivacy.NAMES) -> None:
        """Receive a list of the node."""
        self.version += 1
        message = NodeJobs(
            session=1,
            version=self.version,
            at=at(seconds),
            users=users,
            allocations=allocations,
            jobs=tuple(Job(key=key, user="ada") for key in sorted({each.job for each in allocations})),
            processes=tuple(GpuProcess(gpu=each.gpu, pid=7, job=each.job) for each in allocations if not each.end),
        )
        self.jobs.receive("n1.lab.example", msgspec.json.encode(message), {gpu.uuid for gpu in GPUS}, at(seconds))

    def ask(self, seconds: float, answer: bytes) -> list[str]:
        """Receive what the scheduler prints; return what does not fit."""
        listing = read(self.table, answer, seconds)
        for _ in self.jobs.hear(listing, seconds, at(seconds)):
            pass
        return [*listing.problems, *self.jobs.unlisted.problems()]

    def row(self, seconds: float = 200) -> JobRow:
        """Return the only job as the API shows it."""
        (key,) = self.jobs.ledger.jobs
        return self.jobs.row(key, at(seconds))

    def held(self) -> set[tuple[str, str, str, bool]]:
        """Return each GPU that a job has now: its id, the GPU, the source, and whether that is assumed."""
        return {
            (key.id, row.gpu, row.source, row.assumed)
            for key, tracked in self.jobs.ledger.jobs.items()
            for row in tracked.allocations
            if row.end is None
        }

    def found(self, name: str) -> list[str]:
        """Return the ids of the jobs that a user means by a name."""
        return [row.id for row in self.jobs.matching(JobQuery(id=without_server(name)), at(200))]


def used(path: str, gpu: int = 0, begin: float = 3, end: float = 0) -> Allocation:
    """Return what a process in a cgroup shows, as a collector reads it."""
    owner = reading_of(f"0::{path}\n").owner
    assert owner is not None
    return Allocation(
        job=JobKey(owner.scheduler, "", owner.id),
        gpu=GPUS[gpu].uuid,
        kind=AllocationKind.USED,
        begin=at(begin),
        end=at(end) if end else 0,
        source="process",
    )


@pytest.mark.parametrize(
    "path",
    ["/pbs_jobs.service/jobid/4711.pbs", "/pbs_jobs.service/jobs/4711.pbs.lab.example", "/pbs_jobs.service/jobs/4711"],
)
def test_each_form_of_a_cgroup_of_pbs_is_the_servers_job(path: str) -> None:
    scene = Scene(PBS_ON)
    scene.node(5, used(path))
    assert scene.ask(10, qstat(j4711=qsub())) == []
    row = scene.row()
    assert (row.scheduler, row.cluster, row.id, row.job_name) == ("pbs", "pbs", "4711", "train")
    assert (row.user, row.queue, row.state, row.gpus_asked) == ("ada", "gpu", "RUNNING", 2)
    assert (row.submitted, row.eligible, row.wait_seconds) == (at(-600), at(-300), 301)
    assert (row.time_limit_seconds, row.renamed_from) == (172_800, [])
    for name in ("4711", "4711.pbs", "4711.pbs.lab.example"):
        assert scene.found(name) == ["4711"]


@pytest.mark.parametrize(
    ("written", "found"),
    [
        ("4711.pbs", "4711"),
        ("4711[3].pbs-01.lab.example", "4711[3]"),
        ("4711[].725ccdf1a5fb", "4711[]"),
        *((other, other) for other in ("152.3", "4711", "4711_3", "12+1", "lab/train.v2", "sshd.service", "")),
    ],
)
def test_ids_with_the_name_of_a_server(written: str, found: str) -> None:
    """The numbers of HTCondor have a point too."""
    assert without_server(written) == found


def test_each_form_of_a_task_of_an_array_is_found() -> None:
    scene = Scene(PBS_ON)
    scene.node(5, used("/pbs_jobs.service/jobid/12[4].pbs"))
    scene.ask(10, qstat(**{"12[]": qsub("B"), "12[4]": qsub(), "12[5]": qsub("Q")}))
    assert scene.row().owner == "Array/12_4"
    for name in ("12[4]", "12[4].pbs", "12_4", "12[]", "12[].pbs.lab.example"):
        assert scene.found(name) == ["12[4]"]
    assert scene.found("12[5]") == scene.found("1[]") == []


@pytest.mark.parametrize("folder", ["job.12[4].77.1790000000", "job.12.77.1790000000"])
def test_a_task_of_an_array_of_lsf_is_one_job_whatever_its_cgroup_has(folder: str) -> None:
    """Of a folder with the number of the array alone it is the GPU that tells which task it is."""
    scene = Scene(LSF_ON)
    scene.node(5, used(f"/lsf/lab/{folder}", gpu=0))
    scene.ask(10, bjobs(bsub("12", JOBINDEX="4", GPU_ALLOC="n1:0"), bsub("12", JOBINDEX="5", GPU_ALLOC="n1:1")))
    assert set(scene.jobs.ledger.jobs) == {JobKey("lsf", "", "12[4]"), JobKey("lsf", "", "12[5]")}
    assert {key for key, gpu, source, _ in scene.held() if gpu == "GPU-0"} == {"12[4]"}
    assert sorted(scene.found("12[]")) == ["12[4]", "12[5]"]


def test_gpus_that_lsf_gave_are_assumed_until_a_process_is_on_them() -> None:
    """IBM does not say which numbers these are."""
    scene = Scene(LSF_ON)
    scene.node(5)
    assert scene.ask(10, bjobs(bsub())) == []
    assert scene.held() == {("4711", "GPU-0", "bjobs", True), ("4711", "GPU-1", "bjobs", True)}
    scene.node(15, used("/lsf/lab/job.4711.77.1790000000"))
    assert {(gpu, assumed) for _, gpu, source, assumed in scene.held() if source == "bjobs"} == {
        ("GPU-0", False),
        ("GPU-1", True),
    }
    ended = bsub(stat="DONE", FINISH_TIME=day(30, "%b %e %H:%M:%S %Y"), GPU_ALLOC="")
    scene.node(40, used("/lsf/lab/job.4711.77.1790000000", end=29))
    scene.ask(45, bjobs(ended))
    row = scene.row()
    assert (row.phase, row.state, row.end, row.exit_code) == (JobPhase.ENDED, "COMPLETED", at(30), None)
    assert scene.held() == set()


def test_all_gpus_of_a_node_are_given_where_pbs_counts_so_many() -> None:
    scene = Scene(PBS_ON)
    scene.node(5)
    scene.ask(10, qstat(j1=qsub(exec_vnode="(n1[0]:ngpus=2+n1[1]:ngpus=2)")))
    assert scene.held() == {("1", gpu.uuid, "qstat", True) for gpu in GPUS}


def test_which_of_a_nodes_gpus_a_job_of_pbs_has_its_processes_say() -> None:
    scene = Scene(PBS_ON)
    scene.node(5, used("/pbs_jobs.service/jobid/1.pbs", gpu=2))
    scene.ask(10, qstat(j1=qsub()))
    assert scene.held() == {("1", "GPU-2", "process", False)}


def test_a_job_that_ended_unseen_has_its_end_from_the_history() -> None:
    """The node did not tell, and qstat lists no job that has ended."""
    scene = Scene(PBS_ON)
    scene.node(5)
    all_of_it = qsub(exec_vnode="(n1:ngpus=4)")
    scene.ask(10, qstat(j1=all_of_it))
    scene.ask(40, qstat())
    assert scene.held() == set()
    key = JobKey("pbs", "pbs", "1")
    assert scene.jobs.unlisted.without_account(at(41)) == [key]
    ended = qstat(j1=qsub("F", Exit_status=-29, obittime=day(33)))
    scene.jobs.settle(accounts_of(pbs.TABLE, ended, at(41)))
    row = scene.row()
    assert (row.phase, row.state, row.exit_code) == (JobPhase.ENDED, "TIMEOUT", None)
    assert {each.end for each in scene.jobs.ledger.jobs[key].allocations} == {at(33)}
    assert scene.jobs.unlisted.without_account(at(42)) == []
    assert row.differences == []


def test_where_both_tell_an_end_differences_name_the_command() -> None:
    scene = Scene(PBS_ON)
    scene.node(5, used("/pbs_jobs.service/jobid/1.pbs"))
    scene.ask(10, qstat(j1=qsub()))
    scene.node(40, used("/pbs_jobs.service/jobid/1.pbs", end=38))
    scene.jobs.settle(accounts_of(pbs.TABLE, qstat(j1=qsub("F", Exit_status=0, obittime=day(90))), at(99)))
    assert scene.row().differences == ["it gave its last GPU back 52 s earlier than its end in qstat -x"]


def test_a_run_after_a_requeue_is_another_one() -> None:
    scene = Scene(PBS_ON)
    scene.node(5, used("/pbs_jobs.service/jobid/1.pbs"))
    scene.ask(10, qstat(j1=qsub()))
    scene.node(20, used("/pbs_jobs.service/jobid/1.pbs", end=15))
    scene.ask(25, qstat(j1=qsub("Q")))
    scene.node(40, used("/pbs_jobs.service/jobid/1.pbs", end=15), used("/pbs_jobs.service/jobid/1.pbs", begin=32))
    scene.ask(45, qstat(j1=qsub(begin=31, run_count=2)))
    runs_ = {key.restart: tracked.open for key, tracked in scene.jobs.ledger.jobs.items()}
    assert runs_ == {0: False, 1: True}


def test_persons_that_a_node_keeps_to_itself_are_not_learned() -> None:
    scene = Scene(LSF_ON)
    scene.node(5, used("/lsf/lab/job.4711.77.1790000000"), users=UserPrivacy.OFF)
    scene.ask(10, bjobs(bsub(USER="grace")))
    assert (scene.row().user, scene.row().account, scene.row().job_name) == ("ada", "", "train")


def test_what_does_not_fit_names_the_scheduler_and_its_setting() -> None:
    scene = Scene(LSF_ON)
    scene.node(5, used("/lsf/lab/job.4711.77.1790000000"))
    found = scene.ask(100, bjobs(bsub("9", GPU_ALLOC="n9:0")))
    assert found == [
        "LSF's n9: no node of ours that sends its jobs is called so",
        "it does not list 4711, which run here: may its user see them (SECURE_JOB_INFO_LEVEL)?",
    ]


# -- Commands ----------------------------------------------------------------------------------------


class Heard(HeardPoll):
    """A poll with the listings and accounts that it hands on."""

    def __init__(self, settings: PbsAskConfig | LsfAskConfig) -> None:
        super().__init__()
        questions = PBS_QUESTIONS if isinstance(settings, PbsAskConfig) else LSF_QUESTIONS
        self.poll = TablePoll(
            questions, settings, self.impairments, self.hear, lambda: self.ended, self.accounts.update, lambda: at(100)
        )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose commands go before all others."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return tmp_path


async def test_qstat_is_asked_in_utc_with_its_settings_and_the_history_about_ended_jobs(folder: Path) -> None:
    (folder / "jobs").write_bytes(qstat(j1=qsub()))
    (folder / "past").write_bytes(qstat(**{"2[3]": qsub("F", Exit_status=3, obittime=day(50))}))
    command(
        folder,
        "qstat",
        f'echo "$TZ $PBS_SERVER $PBS_CONF_FILE $*" >> {folder}/asked\n'
        f'[ "$1" = -f ] && exec cat {folder}/jobs\ncat {folder}/past; echo "qstat: Unknown Job Id 9.pbs" >&2; exit 153',
    )
    heard = Heard(PbsAskConfig(enabled=True, server="pbs.lab", conf_file=Path("/etc/my.conf")))
    assert await heard.ask() == {"qstat": ("reading", ""), "qstat -x": ("reading", "")}
    heard.ended = [JobKey("pbs", "pbs", "2[3]"), JobKey("pbs", "", "9")]
    assert await heard.ask() == {"qstat": ("reading", ""), "qstat -x": ("reading", "")}
    asked = (folder / "asked").read_text().splitlines()
    assert asked[0] == "UTC pbs.lab /etc/my.conf -f -t -F json"
    assert asked[-1] == "UTC pbs.lab /etc/my.conf -x -f -F json 9 2[3].pbs"
    account = heard.accounts[JobKey("pbs", "pbs", "2[3]")]
    assert (account.state, account.exit_code, account.end) == ("FAILED", 3, at(50))
    assert [each.key.id for each in heard.listings[-1].jobs] == ["1"]


async def test_a_server_without_a_history_is_no_fault(folder: Path) -> None:
    command(
        folder,
        "qstat",
        '[ "$1" = -f ] && exit 0; echo "qstat: PBS is not configured to maintain job history" >&2; exit 36',
    )
    heard = Heard(PbsAskConfig(enabled=True))
    found = await heard.ask()
    assert (found["qstat"], found["qstat -x"][0]) == (("reading", ""), "absent")
    assert heard.impairments.current() == []
    assert list(await Heard(PbsAskConfig(accounting=False)).ask()) == ["qstat"]


async def test_bjobs_is_asked_with_years_and_in_utc(folder: Path) -> None:
    (folder / "jobs").write_bytes(bjobs(bsub()))
    command(folder, "bjobs", f'echo "$TZ $LSB_DISPLAY_YEAR $LSF_ENVDIR $1 $2 $3" > {folder}/asked; cat {folder}/jobs')
    heard = Heard(LsfAskConfig(enabled=True, conf_dir=Path("/lsf/conf")))
    assert await heard.ask() == {"bjobs": ("reading", "")}
    assert (folder / "asked").read_text() == "UTC Y /lsf/conf -u all -a\n"
    assert heard.listings[0].jobs[0].job.begin == at(1)


async def test_an_lsf_without_fields_of_gpus_is_asked_without_them(folder: Path) -> None:
    (folder / "jobs").write_bytes(bjobs(bsub(GPU_NUM="", GPU_ALLOC="")))
    command(
        folder, "bjobs", f'case "$*" in *gpu_*) echo "gpu_num: Bad field name" >&2; exit 255;; esac; cat {folder}/jobs'
    )
    heard = Heard(LsfAskConfig())
    assert await heard.ask() == {"bjobs": ("reading", "")}
    assert (heard.listings[0].jobs[0].gpus, heard.listings[0].jobs[0].job.gpus) == ({}, 0)


@pytest.mark.parametrize("words", ["No job found", "No unfinished job found", "No matching job found"])
async def test_no_job_of_lsf_is_no_fault(folder: Path, words: str) -> None:
    command(folder, "bjobs", f"echo '{words}' >&2; exit 255")
    heard = Heard(LsfAskConfig())
    assert await heard.ask() == {"bjobs": ("reading", "")}
    assert heard.listings[0].jobs == ()


@pytest.mark.parametrize(
    ("script", "state", "words"),
    [
        ("echo 'Connection refused' >&2; echo 'qstat: cannot connect to server pbs (errno=15010)' >&2; exit 2", "failing", "cannot connect to server"),
        ("echo 'qstat: Unauthorized Request, permission' >&2; exit 159", "no permission", "Unauthorized"),
        ("exit 7", "failing", "it ended with 7"),
        ("echo nonsense", "failing", "qstat prints no JSON: nonsense"),
    ],
)  # fmt: skip
async def test_each_fault_has_its_state(folder: Path, script: str, state: str, words: str) -> None:
    command(folder, "qstat", script)
    heard = Heard(PbsAskConfig(accounting=False))
    found = await heard.ask()
    assert (found["qstat"][0], words in found["qstat"][1]) == (state, True), found
    assert [each.part for each in heard.impairments.current()] == ["scheduler/qstat"]
    assert heard.listings == []


async def test_a_command_that_is_missing_or_hangs(folder: Path) -> None:
    heard = Heard(LsfAskConfig(deadline=0.5))
    assert await heard.ask() == {"bjobs": ("absent", "bjobs is not on the PATH of the aggregator")}
    command(folder, "bjobs", f"sleep 600 & echo $! > {folder}/child; wait")
    while not (folder / "child").exists() or not (folder / "child").read_text():
        assert await heard.ask() == {"bjobs": ("failing", "bjobs has not answered in 0.5 s")}
    child = int((folder / "child").read_text())
    await until(lambda: not runs(child))


async def test_a_scheduler_that_does_not_answer_is_asked_less_often(folder: Path) -> None:
    heard = Heard(LsfAskConfig(interval=30))
    pauses = []
    for _ in range(7):
        await heard.ask()
        pauses.append(heard.poll.pause)
    assert pauses == [30, 30, 30, 60, 120, 120, 120]
    command(folder, "bjobs", "exit 0")
    await heard.ask()
    assert heard.poll.pause == 30


# -- The whole ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["pbs", "lsf"])
async def test_an_aggregator_names_the_job_of_a_nodes_cgroup(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """A node on a real bus, a real process in the place of the command."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    begin = int(time.time()) - START - 60
    if name == "pbs":
        answer, tool = qstat(j4711=qsub(begin=begin)), "qstat"
        asked: dict[str, Any] = {"pbs": PbsAskConfig(enabled=True, interval=1)}
        path, key = "/pbs_jobs.service/jobid/4711.pbs", JobKey("pbs", "pbs", "4711")
    else:
        answer, tool = bjobs(bsub(START_TIME=day(begin, "%b %e %H:%M:%S %Y"))), "bjobs"
        asked = {"lsf": LsfAskConfig(enabled=True, interval=1)}
        path, key = "/lsf/lab/job.4711.77.1790000000", JobKey("lsf", "", "4711")
    (tmp_path / "answer").write_bytes(answer)
    command(tmp_path, tool, f'[ "$1" = -x ] || cat {tmp_path}/answer')
    settings = msgspec.structs.replace(config(broker.config, tmp_path / "data", "127.0.0.1:0"), **asked)
    process = used(path, begin=begin + 2)
    message = NodeJobs(
        session=1, version=1, at=time.time_ns(), allocations=(process,), jobs=(Job(key=process.job, user="ada"),)
    )
    node = msgspec.structs.replace(inventory("n1", 4), gpus=GPUS)
    async with running(settings) as aggregator, ScriptedNode(broker.config, "n1", 4, made_of=node) as scripted:
        await scripted.tick()
        await scripted.publish(Topic.JOBS, msgspec.json.encode(message), retain=True)
        await until(lambda: aggregator.jobs.ledger.jobs.get(key) is not None)
        await until(lambda: aggregator.jobs.row(key, time.time_ns()).job_name == "train")
        row = aggregator.jobs.row(key, time.time_ns())
        assert set(aggregator.jobs.ledger.jobs) == {key}
        assert (row.begin, row.time_limit_seconds is None, row.gpus_asked) == (at(begin), False, 2)
        await until(lambda: {each.state for each in aggregator.jobs.sources()} == {"reading"})
        assert aggregator.jobs.sources()[0].name == tool
        for written in ("4711", "4711.pbs.lab.example"):
            status, _, answer = await fetched(aggregator, f"/api/v1/jobs/{written}")
            assert (status, json.loads(answer)["job"]["job_name"]) == (200, "train"), answer


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"pbs": PbsAskConfig(interval=0)}, "aggregator.pbs.interval"),
        ({"lsf": LsfAskConfig(deadline=0)}, "aggregator.lsf.deadline"),
        ({"pbs": PbsAskConfig(server="-x")}, "aggregator.pbs.server"),
        ({"pbs": PbsAskConfig(enabled=True), "lsf": LsfAskConfig(enabled=True)}, "aggregator.lsf.enabled.*here it asks PBS"),
        ({"slurm": SlurmAskConfig(enabled=True), "pbs": PbsAskConfig(enabled=True)}, "aggregator.pbs.enabled.*here it asks Slurm"),
        ({"htcondor": CondorAskConfig(enabled=True), "lsf": LsfAskConfig(enabled=True)}, "here it asks HTCondor"),
    ],
)  # fmt: skip
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        AggregatorConfig(**wrong).check()
