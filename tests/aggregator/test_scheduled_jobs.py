"""Lists of nodes together with the scheduler's word: names, GPUs that no prolog told of, ends, and silence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from aggregator.jobs.hints import hints
from aggregator.jobs.scheduled import EPILOG_SECONDS, NEWER_RUN, UNSURE_SECONDS, SchedulerWord, wait_words, waiting
from aggregator.jobs.service import JobService
from aggregator.scheduler import squeue
from aggregator.scheduler.listed import JobListing, ListedJob, whole_nodes
from aggregator.scheduler.names import SLURM
from aggregator.web.job_list import jobs_body
from aggregator.web.job_page import JobParts, job_body
from api.jobs import JobAccount, JobPhase, JobReply, JobRow, JobsReply
from kilowatch.text.jobs import job_lines, summary_lines
from present.fleet.job_headline import job_headline
from present.job import asked_row
from telemetry.devices import Gpu
from telemetry.wire.jobs import (
    UNLIMITED,
    Allocation,
    AllocationKind,
    GpuProcess,
    Job,
    JobKey,
    JobSourceState,
    NodeJobs,
    Precision,
    UserPrivacy,
)
from tui.screens.job_text import job_lines as tui_lines

RECORDED = Path(__file__).parents[2] / "../shared/data/slurm/recorded"
SECOND = 10**9
START = 1_790_000_000 * SECOND
GPUS = tuple(Gpu(uuid=f"GPU-{n}", index=n, minor=n, name="H100") for n in range(4))
KEY = JobKey("slurm", "lab", "7")
BARE = JobKey("slurm", "", "7")


def at(seconds: float) -> int:
    """Return a time, in seconds after the start."""
    return START + int(seconds * SECOND)


class Scene:
    """One node with four GPUs, whose numbers in Slurm run backwards, and the word of the scheduler."""

    def __init__(self, assumed: str = "") -> None:
        word = SchedulerWord(lambda *_: ([3, 2, 1, 0], assumed), lambda _: GPUS, START)
        self.jobs = JobService(word=word)
        self.version = 0

    def node(
        self,
        seconds: float,
        *allocations: Allocation,
        users: UserPrivacy = UserPrivacy.NAMES,
        processes: tuple[GpuProcess, ...] = (),
        jobs: tuple[Job, ...] = (),
    ) -> None:
        """Receive a list of the node."""
        self.version += 1
        message = NodeJobs(
            session=1,
            version=self.version,
            at=at(seconds),
            users=users,
            allocations=allocations,
            processes=processes,
            jobs=jobs,
        )
        self.jobs.receive("n1.lab.example", msgspec.json.encode(message), {gpu.uuid for gpu in GPUS}, at(seconds))

    def squeue(self, seconds: float, *listed: ListedJob) -> list[str]:
        """Receive a listing; return what does not fit."""
        for _ in self.jobs.hear(JobListing(at=at(seconds), cluster="lab", jobs=listed), seconds, at(seconds)):
            pass
        return self.jobs.unlisted.problems()

    def row(self, key: JobKey = KEY, seconds: float = 100) -> JobRow:
        """Return a job as the API shows it."""
        return self.jobs.row(key, at(seconds))

    def held(self, key: JobKey = KEY) -> dict[str, tuple[str, Precision]]:
        """Return the GPUs that a job holds, with the source and the precision of their begin."""
        rows = self.jobs.ledger.jobs[key].allocations
        return {row.gpu: (row.source, row.begin_from) for row in rows if row.end is None}


def listed(
    *gpus: int, key: JobKey = KEY, state: str = "RUNNING", end: float = 0, begin: float = 1, **facts: object
) -> ListedJob:
    """Return a job of squeue with GPUs by Slurm's numbers."""
    job = Job(
        key=key,
        name="train",
        user="ada",
        account="physics",
        queue="gpu",
        gpus=2,
        submitted=at(0),
        begin=at(begin),
        end=at(end) if end else 0,
        state=state,
    )
    job = msgspec.structs.replace(job, **facts)
    return ListedJob(job=job, holds=not end, gpus={"n1": gpus} if gpus else {})


def hooked(gpu: str, end: float = 0, key: JobKey = KEY) -> Allocation:
    """Return what the prolog wrote of a GPU."""
    return Allocation(
        job=key,
        gpu=gpu,
        begin=at(1.4),
        end=at(end) if end else 0,
        begin_from=Precision.HOOK,
        end_from=Precision.HOOK,
        source="slurm-hook",
    )


def used(gpu: str, key: JobKey = BARE, end: float = 0) -> Allocation:
    """Return what a process in a cgroup shows."""
    return Allocation(
        job=key, gpu=gpu, kind=AllocationKind.USED, begin=at(3), end=at(end) if end else 0, source="slurm-cgroup"
    )


def test_a_job_of_the_prolog_has_the_facts_that_only_the_scheduler_knows() -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-3"), jobs=(Job(key=KEY, user="ada", begin=at(1.4), state="RUNNING"),))
    assert scene.row().job_name == ""
    assert scene.squeue(5, listed(0)) == []
    row = scene.row()
    assert (row.job_name, row.account, row.submitted, row.gpus_asked) == ("train", "physics", at(0), 2)
    assert scene.held() == {"GPU-3": ("slurm-hook", Precision.HOOK)}, "the prolog's is more exact"
    assert row.begin == at(1), "the scheduler's own second"
    scene.node(60, hooked("GPU-3"), jobs=(Job(key=KEY, user="ada", begin=at(1.4), state="RUNNING"),))
    scene.squeue(61, listed(0, state="SUSPENDED"))
    scene.node(62, hooked("GPU-3"), jobs=(Job(key=KEY, state="RUNNING"),))
    assert (scene.row().state, scene.row().job_name) == ("SUSPENDED", "train")
    assert scene.jobs.lists["n1.lab.example"].jobs[0].name == "train", "rules and pages see it too"


def test_gpus_are_known_without_a_prolog_and_given_back_when_the_scheduler_says() -> None:
    """The numbers are gone from the listing while the job completes: it still has them."""
    scene = Scene()
    scene.node(2)
    scene.squeue(5, listed(0, 1))
    assert scene.held() == {f"GPU-{n}": (SLURM.source, Precision.SCHEDULER) for n in (3, 2)}
    scene.node(10)
    scene.squeue(20, listed(state="COMPLETING"))
    scene.node(22)
    assert set(scene.held()) == {"GPU-3", "GPU-2"}
    scene.squeue(30, listed(state="COMPLETED", end=24))
    rows = scene.jobs.ledger.jobs[KEY].allocations
    assert {(row.begin, row.end, row.end_from, row.lost) for row in rows} == {
        (at(1), at(24), Precision.SCHEDULER, False)
    }
    assert (scene.row().phase, scene.row().state) == (JobPhase.ENDED, "COMPLETED")
    scene.squeue(400)
    scene.node(410)
    assert scene.row().state == "COMPLETED"


def test_a_mapping_is_assumed_until_a_process_or_the_prolog_shows_it() -> None:
    scene = Scene(assumed="no gres.conf")
    scene.node(2)
    scene.squeue(5, listed(0, 1))

    def assumed() -> dict[str, bool]:
        return {
            row.gpu: row.assumed
            for row in scene.jobs.ledger.jobs[KEY].allocations
            if row.kind is AllocationKind.ALLOCATED
        }

    assert assumed() == {"GPU-3": True, "GPU-2": True}
    scene.node(6, used("GPU-3"), processes=(GpuProcess(gpu="GPU-3", pid=9, job=BARE),))
    assert assumed() == {"GPU-3": False, "GPU-2": True}
    scene.node(8, hooked("GPU-2"))
    assert assumed() == {"GPU-3": False, "GPU-2": False}


def test_a_job_that_has_a_node_for_itself_has_its_gpus_though_none_is_named() -> None:
    alone = replace(listed(gpus=0), whole=("n1",), exclusive=True)
    scene = Scene()
    scene.node(2)
    scene.squeue(3, alone)
    assert scene.held() == {f"GPU-{n}": (SLURM.source, Precision.SCHEDULER) for n in range(4)}
    assert all(row.assumed for row in scene.jobs.ledger.jobs[KEY].allocations)
    scene.squeue(9, listed(gpus=0, state="CANCELLED", end=8))
    assert scene.held() == {}
    assert scene.row().end == at(8)


@pytest.mark.parametrize(
    ("state", "asked", "exclusive", "whole"),
    [
        ("RUNNING", 0, True, ("n1", "n2")),
        ("RUNNING", 2, True, ()),
        ("RUNNING", 0, False, ()),
        ("COMPLETING", 0, True, ()),
    ],
)
def test_a_node_is_a_jobs_whole_where_it_runs_alone_and_asked_for_no_gpu(
    state: str, asked: int, exclusive: bool, whole: tuple[str, ...]
) -> None:
    assert whole_nodes(state, asked, ["n1", "n2"], exclusive=exclusive) == whole


def test_a_cgroup_and_the_scheduler_name_one_job() -> None:
    """A cgroup knows the number alone, also of one that began before the scheduler answered."""
    scene = Scene()
    scene.node(2)
    scene.squeue(5, listed(0))
    scene.node(6, used("GPU-3"))
    assert set(scene.jobs.ledger.jobs) == {KEY}
    scene.node(7, used("GPU-3", end=6.5))
    assert [row.kind for _, row in scene.jobs.ledger.of_node("n1.lab.example")].count(AllocationKind.USED) == 1
    early = Scene()
    early.node(2, used("GPU-3"))
    early.squeue(5, listed(0))
    early.node(6, used("GPU-3"))
    assert set(early.jobs.ledger.jobs) == {KEY}
    assert early.row().job_name == "train"
    rows = early.jobs.ledger.jobs[KEY].allocations
    assert {(row.kind, row.begin, row.end) for row in rows} == {
        (AllocationKind.ALLOCATED, at(1), None),
        (AllocationKind.USED, at(3), None),
    }


def test_a_run_that_was_requeued_is_another_one() -> None:
    scene = Scene()
    again = JobKey("slurm", "lab", "7", 1)
    scene.node(2)
    scene.squeue(5, listed(0))
    scene.node(6, used("GPU-3"))
    scene.squeue(9, listed(key=again, state="PENDING", begin=-START / SECOND))
    scene.node(10, used("GPU-3", end=8))
    scene.squeue(150, listed(1, key=again, begin=140))
    scene.node(151, used("GPU-3", end=8))
    first, second = scene.row(), scene.row(again)
    assert (first.end is not None, second.end) == (True, None)
    assert set(scene.held(again)) == {"GPU-2"}
    assert {row.gpu for row in scene.jobs.ledger.jobs[KEY].allocations} == {"GPU-3"}


def test_a_job_waits_from_when_it_could_begin_and_a_requeued_run_from_its_own_time() -> None:
    """As squeue of Slurm 22.05 wrote of a job that was requeued: submitted anew, and eligible two minutes later."""
    scene = Scene()
    scene.node(2)
    scene.squeue(5, listed(0, begin=8, eligible=at(3), time_limit=300))
    row = scene.row()
    assert (row.submitted, row.eligible, row.wait_seconds, row.time_limit_seconds) == (at(0), at(3), 5, 300)
    again = JobKey("slurm", "lab", "7", 1)
    between = listed(0, key=again, state="COMPLETING", begin=9, submitted=at(10))
    scene.squeue(10, between)
    assert scene.row(again).wait_seconds is None, "it did not begin before it was submitted"
    scene.squeue(140, listed(0, key=again, begin=134, submitted=at(10), eligible=at(131), time_limit=300))
    second = scene.row(again)
    assert (second.submitted, second.eligible, second.wait_seconds) == (at(10), at(131), 3)
    assert scene.row().wait_seconds == 5, "the first run keeps its own"


def test_no_limit_is_known_and_shown_as_no_number() -> None:
    scene = Scene()
    scene.node(2)
    scene.squeue(5, listed(0, time_limit=UNLIMITED))
    row = scene.row()
    assert (row.time_limit_seconds, row.unlimited) == (None, True)
    scene.squeue(6, listed(0, time_limit=7200))  # which an operator may set while it runs
    assert (scene.row().time_limit_seconds, scene.row().unlimited) == (7200, False)


def test_the_accounting_says_what_squeue_was_not_asked_in_time() -> None:
    """A job that came and went between two listings."""
    scene = Scene()
    scene.node(2, hooked("GPU-3"), jobs=(Job(key=KEY, begin=at(1.4)),))
    scene.node(9, hooked("GPU-3", end=8))
    assert (scene.row().wait_seconds, scene.row().time_limit_seconds) == (None, None)
    account = JobAccount(
        state="COMPLETED", begin=at(1), end=at(8), submitted=at(-60), eligible=at(-30), time_limit_seconds=3600
    )
    scene.jobs.settle({KEY: account})
    row = scene.row()
    assert (row.submitted, row.eligible, row.time_limit_seconds) == (at(-60), at(-30), 3600)
    assert row.wait_seconds == pytest.approx(31.4), "to the prolog, which is its begin here"


@pytest.mark.skipif(not RECORDED.is_dir(), reason="no ../shared/data/slurm")
def test_a_recorded_job_waited_a_second_and_may_run_for_an_hour() -> None:
    listing = squeue.listing_of((RECORDED / "squeue-with-dbd.json").read_bytes(), 1795336043 * SECOND)
    word = SchedulerWord(lambda *_: ([0, 1, 2, 3], ""), lambda _: GPUS, listing.at)
    jobs = JobService(word=word)
    uuids = {gpu.uuid for gpu in GPUS}
    jobs.receive("vm", msgspec.json.encode(NodeJobs(session=1, version=1, at=listing.at)), uuids, listing.at)
    for _ in jobs.hear(listing, 0.0, listing.at):
        pass
    row = jobs.row(listing.jobs[0].key, listing.at)
    assert (row.job_name, row.gpus_asked, row.wait_seconds) == ("train", 2, 1)
    assert (row.time_limit_seconds, row.unlimited) == (3600, False)
    assert (
        asked_row(row, row.begin + 31 * 60 * SECOND).whole == "2 GPUs for at most 60 min; waited 1 s; runs for 31 min"
    )


def test_the_end_that_the_epilog_wrote_is_not_undone_by_an_older_listing() -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-3"))
    scene.squeue(5, listed(0))
    scene.node(20, hooked("GPU-3", end=19))
    scene.squeue(18, listed(0))
    scene.node(21, hooked("GPU-3", end=19))
    (row,) = scene.jobs.ledger.jobs[KEY].allocations
    assert (row.end, row.end_from) == (at(19), Precision.HOOK)


def test_a_scheduler_that_does_not_answer_ends_nothing_for_a_while() -> None:
    scene = Scene()
    scene.node(2)
    scene.squeue(5, listed(0))
    scene.node(5 + UNSURE_SECONDS - 1)
    assert set(scene.held()) == {"GPU-3"}
    scene.node(5 + UNSURE_SECONDS + 1)
    assert scene.row().phase is JobPhase.LOST
    scene.squeue(400, listed(0))
    assert set(scene.held()) == {"GPU-3"}, "it goes on"


def test_an_aggregator_that_starts_anew_goes_on_before_the_first_answer() -> None:
    scene = Scene()
    scene.node(2)
    scene.squeue(5, listed(0))
    after = Scene()
    after.jobs.ledger.restore([tracked.record() for tracked in scene.jobs.ledger.jobs.values()])
    after.node(6)
    assert set(after.held()) == {"GPU-3"}
    assert after.row().job_name == "train"


@pytest.mark.parametrize("users", [UserPrivacy.HASHED, UserPrivacy.OFF])
def test_persons_that_a_node_keeps_to_itself_are_not_learned_from_the_scheduler(users: UserPrivacy) -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-3"), users=users)
    scene.squeue(5, listed(0, 1))
    row = scene.row()
    assert (row.job_name, row.user, row.account) == ("train", "", "")
    assert "ada" not in str(scene.jobs.lists["n1.lab.example"])


def test_two_sources_that_disagree_are_both_shown() -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-0"))
    scene.squeue(5, listed(0))
    assert set(scene.held()) == {"GPU-0", "GPU-3"}
    assert scene.row().differences == ["n1.lab.example: squeue names other GPUs than the prolog"]


def differ(account: JobAccount, end: float = 20, jobs: Sequence[Job] = ()) -> list[str]:
    """Return the differences between a job that the hooks saw from 1.4 s to `end` and its account."""
    scene = Scene()
    scene.node(2, hooked("GPU-3"))
    scene.squeue(5, listed(0))
    scene.node(30, hooked("GPU-3", end=end), jobs=tuple(jobs))
    scene.squeue(31, listed(state="FAILED", end=20, exit_code=3))
    scene.jobs.settle({KEY: account})
    return scene.row().differences


def test_what_the_accounting_says_otherwise_is_shown() -> None:
    same = JobAccount(state="FAILED", begin=at(1), end=at(20), exit_code=3)
    assert differ(same) == []
    assert differ(msgspec.structs.replace(same, begin=None)) == ["sacct knows no begin of this run"]
    assert differ(same, end=80) == ["it gave its last GPU back 60 s later than its end in sacct"]
    assert differ(msgspec.structs.replace(same, begin=at(31))) == [
        "it had its first GPU 30 s earlier than its begin in sacct"
    ]
    assert differ(msgspec.structs.replace(same, state="TIMEOUT")) == ["FAILED here, TIMEOUT in sacct"]
    assert differ(msgspec.structs.replace(same, exit_code=4)) == ["exit code 3 here, 4 in sacct"]


def test_an_end_that_nobody_saw_is_the_accountings() -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-3"))
    scene.node(60)
    assert scene.jobs.unlisted.without_account(at(60)) == [KEY]
    scene.jobs.settle({KEY: JobAccount(state="NODE_FAIL", begin=at(1), end=at(42))})
    (row,) = scene.jobs.ledger.jobs[KEY].allocations
    assert (row.end, row.end_from, row.lost) == (at(42), Precision.ACCOUNTING, False)
    assert (scene.row().state, scene.row().phase) == ("NODE_FAIL", JobPhase.ENDED)
    assert scene.jobs.unlisted.without_account(at(60)) == []


def ended_by(scene: Scene, key: JobKey = KEY) -> set[tuple[float | None, str]]:
    """Return when the allocations of a job ended, in seconds after the start, and what that was concluded from."""
    rows = scene.jobs.ledger.jobs[key].allocations
    return {(None if row.end is None else (row.end - START) / SECOND, row.end_by) for row in rows}


def test_a_job_whose_epilog_did_not_run_ends_when_the_scheduler_says() -> None:
    """After a while in which the epilog's word may come, and for good: squeue forgets it, its node never does."""
    scene = Scene()
    lasting = hooked("GPU-3"), used("GPU-3", KEY)
    scene.node(2, *lasting)
    scene.squeue(5, listed(0))
    failed = listed(state="NODE_FAIL", end=60)
    scene.squeue(70, failed)
    scene.squeue(70 + EPILOG_SECONDS - 1, failed)
    assert ended_by(scene) == {(None, "")}
    scene.squeue(70 + EPILOG_SECONDS, failed)
    assert ended_by(scene) == {(60, SLURM.source)}
    row = scene.row(seconds=140)
    assert (row.phase, row.state, row.end) == (JobPhase.ENDED, "NODE_FAIL", at(60))
    assert row.differences == ["n1.lab.example: no epilog said its end: it was at 2026-09-21 14:14:20 UTC, by squeue"]
    scene.squeue(500)
    scene.node(501, *lasting)
    assert ended_by(scene) == {(60, SLURM.source)}
    jobs = scene.jobs
    jobs.absorb([], [KEY])
    jobs.written(jobs.due(600, at(600)), 600, at(600))
    jobs.forget_ended(6000, at(6000))
    assert ended_by(scene) == {(60, SLURM.source)}, "it would begin anew with the next list of its node"
    after = Scene()
    after.node(6001, *lasting)
    after.jobs.absorb([jobs.stored(KEY, at(6000))], [KEY])
    after.squeue(6002)
    assert ended_by(after) == {(60, SLURM.source)}
    scene.node(6100, hooked("GPU-3", end=59), used("GPU-3", KEY, end=58))
    assert ended_by(scene) == {(59, ""), (58, "")}, "what its node saw is more exact"


@pytest.mark.parametrize("state", ["RUNNING", "COMPLETING", "SUSPENDED"])
def test_a_job_that_its_scheduler_lets_have_its_gpus_does_not_end(state: str) -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-3"))
    scene.squeue(5, listed(0))
    for seconds in (60, 600):
        holding = replace(listed(0, state=state, end=30), holds=True)
        scene.squeue(seconds, holding)
    assert ended_by(scene) == {(None, "")}


def test_a_run_ends_when_the_scheduler_lists_a_newer_one_that_has_begun() -> None:
    scene = Scene()
    again = JobKey("slurm", "lab", "7", 1)
    scene.node(2, hooked("GPU-3"))
    scene.squeue(200, listed(key=again, state="PENDING", begin=-START / SECOND))
    assert ended_by(scene) == {(None, "")}
    scene.squeue(211, listed(1, key=again, begin=210))
    assert ended_by(scene) == {(210, f"{NEWER_RUN}squeue")}
    assert set(scene.held(again)) == {"GPU-2"}
    scene.squeue(600)
    scene.node(601, hooked("GPU-3", end=599))
    assert ended_by(scene) == {(210, f"{NEWER_RUN}squeue")}, "the epilog was that of the newer run"
    scene.node(602, hooked("GPU-3", end=205))
    assert ended_by(scene) == {(205, "")}


def test_the_accounting_is_asked_about_a_job_that_lasts_here_and_is_not_listed() -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-3"))
    scene.squeue(1000)
    assert scene.jobs.unlisted.without_account(at(1000)) == [KEY]
    assert scene.jobs.unlisted.without_account(at(1010)) == [], "not again and again"
    scene.jobs.settle({KEY: JobAccount(state="NODE_FAIL", begin=at(1), end=at(60))})
    assert ended_by(scene) == {(60, "sacct")}
    scene.node(1020, hooked("GPU-3"))
    assert ended_by(scene) == {(60, "sacct")}
    assert scene.row().state == "NODE_FAIL"
    listed_one = Scene()
    listed_one.node(2, hooked("GPU-3"))
    listed_one.squeue(1000, listed(0))
    assert listed_one.jobs.unlisted.without_account(at(1000)) == []


def test_an_end_that_a_node_concluded_says_when_it_can_have_been() -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-3"))
    over = msgspec.structs.replace(
        hooked("GPU-3", end=900), end_from=Precision.PROCESS, end_by="the next job on its GPU", end_after=at(58)
    )
    scene.node(901, over)
    (line,) = scene.row().differences
    assert line.endswith(
        "it was between 2026-09-21 14:14:18 UTC and 2026-09-21 14:28:20 UTC, by the next job on its GPU"
    )
    scene.node(902, hooked("GPU-3"))
    assert ended_by(scene) == {(900, "the next job on its GPU")}


def test_what_the_scheduler_hides_or_calls_otherwise_is_said() -> None:
    scene = Scene()
    scene.node(2, hooked("GPU-3"))
    assert scene.squeue(30) == [], "it may be younger than the listing"
    assert scene.squeue(90) == ["it does not list 7, which run here: may its user see them (PrivateData)?"]
    other = ListedJob(
        job=Job(key=JobKey("slurm", "lab", "8"), state="RUNNING", begin=at(1)), holds=True, gpus={"n9": (0,)}
    )
    assert scene.squeue(91, listed(0), other) == ["Slurm's n9: no node of ours that sends its jobs is called so"]


def test_the_account_the_differences_and_a_source_that_fails_are_on_every_surface() -> None:
    scene = Scene(assumed="no gres.conf")
    scene.node(2)
    scene.squeue(5, listed(0))
    scene.squeue(30, listed(state="FAILED", end=20, exit_code=3))
    scene.jobs.settle({KEY: JobAccount(state="TIMEOUT", begin=at(1), end=at(20), exit_code=3)})
    row = msgspec.structs.replace(scene.row(), hints=hints(scene.row()))
    reply = JobReply(at(100), row, scene.jobs.ledger.jobs[KEY].allocations)
    account = "TIMEOUT, from 2026-09-21 14:13:21 UTC to 2026-09-21 14:13:40 UTC, exit code 3"
    parts = JobParts("", "", {}, {})
    page = job_body(reply, job_headline(reply, []), parts, lambda uuid: uuid, {})
    for text in (
        "\n".join(summary_lines(reply)),
        page,
        "\n".join("".join(word for word, _ in line) for line in tui_lines(reply, 120)),
    ):
        assert "in the accounting" in text
        assert "TIMEOUT" in text
        assert "FAILED here, TIMEOUT in sacct" in text
    assert account in "\n".join(summary_lines(reply))
    assert "is assumed by the scheduler's numbers" in "\n".join(summary_lines(reply))
    assert "its number assumed" in page
    failing = JobSourceState(name="squeue", state="failing", message="squeue has not answered in 10 s")
    listing = JobsReply(at(100), [row], sources=[failing, JobSourceState(name="sacct")])
    words = "squeue: failing, squeue has not answered in 10 s"
    assert job_lines(listing)[-1] == words
    assert job_lines(msgspec.structs.replace(listing, jobs=[]))[-1] == words
    assert f"<li>{words}</li>" in jobs_body(listing, {}, 1, private=True)


def test_why_a_job_waited_last_is_kept_when_it_runs_and_a_newer_run_says_why_it_waits() -> None:
    """Slurm says of a job that runs, and of one that it has not looked at yet, no reason."""
    scene = Scene()
    waits = {"state": "PENDING", "begin": 0}
    for second, reason in enumerate(("Priority", "Resources", "")):
        its = replace(listed(**waits, reason=reason), holds=False)  # type: ignore[arg-type]
        scene.squeue(second, its)
    scene.squeue(5, listed(0))
    scene.node(6, hooked("GPU-3"))
    row = scene.row()
    assert (row.state, row.reason) == ("RUNNING", "Resources")
    assert "(Resources)" in asked_row(row, at(10)).value
    scene.squeue(20, listed(key=KEY, state="COMPLETED", end=19))
    scene.squeue(30)
    assert scene.row().reason == "Resources", "as long as it is known"
    assert waiting(scene.jobs.word, "7") is None
    again = msgspec.structs.replace(KEY, restart=1)
    scene.squeue(40, replace(listed(key=again, **waits, reason="BeginTime"), holds=False))  # type: ignore[arg-type]
    newer = waiting(scene.jobs.word, "7")
    assert newer is not None
    assert wait_words(newer) == "waits: BeginTime"
    assert "its next run waits: BeginTime" in hints(scene.row(), newer=wait_words(newer))
    assert waiting(None, "7") is None
