"""Jobs of HTCondor by their queues and histories: ads of jobs in their documented form, and real processes in the place of `condor_q` and
`condor_history`. Nobody ran it against a pool."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.jobs.stored import JobQuery
from aggregator.scheduler import condor_jobs
from aggregator.scheduler.listed import JobListing, ListedJob
from aggregator.scheduler.poll import FAILED_SECONDS, MOST_SCHEDDS, CondorPoll
from aggregator.scheduler.tables import TableReader, accounts_of
from aggregator.settings.condor import CondorAskConfig
from api.jobs import JobAccount, JobPhase
from telemetry.wire.jobs import Job, JobKey, NodeJobs, UserPrivacy
from telemetry.wire.topics import Topic
from tests.aggregator.heard_poll import HeardPoll
from tests.aggregator.node import ScriptedNode, inventory
from tests.aggregator.test_condor_slots import FIRST, GPUS, SECOND, SLOT, START, WHOLE, Scene, ad, at, used
from tests.aggregator.test_scheduler_poll import command
from tests.aggregator.test_service import config, running
from tests.brokers import Broker
from tests.kit.waiting import until

SCHEDD_SECONDS = CondorAskConfig().schedd_interval


def queued(job: str = "152.3", status: int = 2, schedd: str = "submit.lab", **more: Any) -> dict[str, Any]:
    """Return what condor_q prints of a job; a value None is left out."""
    found = {
        "GlobalJobId": f"{schedd}#{job}#{START - 60}", "Owner": "ada", "AcctGroup": "physics", "JobBatchName": "train",
        "Cmd": "/home/ada/bin/run.sh", "QDate": START - 60, "JobStatus": status, "JobCurrentStartDate": START + 1,
        "EnteredCurrentStatus": START + 1, "CompletionDate": 0, "RequestGPUs": 2, "AllowedJobDuration": 7200, "TotalSubmitProcs": 9,
    }  # fmt: skip
    return {name: value for name, value in (found | more).items() if value is not None}


def printed(*ads: dict[str, Any]) -> bytes:
    """Return an answer as condor_q prints it."""
    return ("[\n" + "\n,\n".join(json.dumps(each, indent=2) for each in ads) + "\n]\n").encode()


def read(*ads: dict[str, Any], seconds: float = 100) -> JobListing:
    """Return the listing of an answer."""
    return TableReader(condor_jobs.TABLE).listing_of(printed(*ads), at(seconds))


def only(*ads: dict[str, Any]) -> ListedJob:
    """Return the only job of an answer that has nothing wrong."""
    listing = read(*ads)
    assert listing.problems == ()
    (found,) = listing.jobs
    return found


def heard(scene: Scene, seconds: float, *ads: dict[str, Any]) -> None:
    """Have a scene hear the queues."""
    listing = read(*ads, seconds=seconds)
    queue = JobListing(at=listing.at, cluster="", jobs=listing.jobs, queue=True)
    for _ in scene.jobs.hear(queue, seconds, at(seconds)):
        pass


def past(*ads: dict[str, Any]) -> dict[JobKey, JobAccount]:
    """Return the accounts of an answer of condor_history."""
    return accounts_of(condor_jobs.TABLE, printed(*ads), at(1000), dated=False)


# -- The table ---------------------------------------------------------------------------------------


def test_a_job_as_condor_q_has_it() -> None:
    assert only(queued()).job == Job(
        key=FIRST,
        name="train",
        user="ada",
        account="physics",
        owner="Array/152_3",
        submitted=at(-60),
        begin=at(1),
        state="RUNNING",
        gpus=2,
        time_limit=7200,
    )


def test_what_is_not_there_is_not_known() -> None:
    missing: dict[str, Any] = dict.fromkeys(("AcctGroup", "JobBatchName", "Cmd", "QDate", "JobCurrentStartDate", "RequestGPUs", "AllowedJobDuration", "TotalSubmitProcs"))  # fmt: skip
    found = read(queued("7.0", **missing))
    assert found.jobs[0].job == Job(key=JobKey("htcondor", "submit.lab", "7.0"), user="ada", state="RUNNING")
    assert found.problems == ("condor_q dates no begin of 1 jobs that run",)


@pytest.mark.parametrize("written", ["/Expr(ifThenElse(x,1,2))/", -1, 0, 1.5, True, {"a": 1}])
def test_a_value_that_is_no_number_is_not_shown_as_one(written: object) -> None:
    """An expression stands where the schedd has not evaluated a field."""
    job = only(queued(RequestGPUs=written, AllowedJobDuration=written)).job
    assert (job.gpus, job.time_limit) == (0, None)


@pytest.mark.parametrize(
    ("more", "name"),
    [
        ({"JobBatchName": None}, "run.sh"),
        ({"JobBatchName": None, "JobDescription": "Interactive job"}, "Interactive job"),
        ({"JobBatchName": '}\n]\n[\n{ "x": 1'}, '}][{ "x": 1'),
        ({"JobBatchName": None, "Cmd": "run.sh"}, "run.sh"),
    ],
)
def test_names(more: dict[str, Any], name: str) -> None:
    assert only(queued(**more)).job.name == name


@pytest.mark.parametrize(
    ("status", "more", "word", "holds"),
    [
        (1, {}, "REQUEUED", False),
        (2, {}, "RUNNING", True),
        (5, {"HoldReasonCode": 1}, "HELD", False),
        (5, {"HoldReasonCode": 34}, "OUT_OF_MEMORY", False),
        (5, {"HoldReasonCode": 46}, "TIMEOUT", False),
        (5, {"HoldReasonCode": 47}, "TIMEOUT", False),
        (6, {}, "COMPLETING", True),
        (7, {"HoldReasonCode": 34}, "SUSPENDED", True),
    ],
)
def test_states(status: int, more: dict[str, Any], word: str, holds: bool) -> None:
    found = only(queued(status=status, **more))
    assert (found.job.state, found.holds, bool(found.job.begin)) == (word, holds, holds)


@pytest.mark.parametrize(
    ("status", "more", "account"),
    [
        (4, {"ExitBySignal": False, "ExitCode": 0}, ("COMPLETED", None, 90)),
        (4, {"ExitBySignal": False, "ExitCode": 3}, ("FAILED", 3, 90)),
        (4, {"ExitBySignal": True, "ExitSignal": 9}, ("FAILED", -9, 90)),
        (4, {}, ("ended", None, 90)),
        (3, {"CompletionDate": 0, "LastJobStatus": 2}, ("CANCELLED", None, 95)),
        (3, {"CompletionDate": None, "LastJobStatus": 5}, ("CANCELLED", None, None)),
        (3, {"CompletionDate": None}, ("CANCELLED", None, None)),
    ],
)
def test_how_a_job_ended(status: int, more: dict[str, Any], account: tuple[str, int | None, int | None]) -> None:
    """A job that was removed from a hold gave its GPUs back before: when, its history does not say."""
    its = {"CompletionDate": START + 90, "EnteredCurrentStatus": START + 95, **more}
    found = past(queued(status=status, **its))[FIRST]
    end = None if account[2] is None else at(account[2])
    assert (found.state, found.exit_code, found.end) == (account[0], account[1], end)


def test_a_job_that_was_submitted_alone_is_no_part_of_an_array() -> None:
    assert only(queued("152.0", TotalSubmitProcs=1)).job.owner == ""
    assert only(queued("152.0")).job.owner == "Array/152_0"


@pytest.mark.parametrize("output", [b"", b"\n", b"[\n]\n", b"[\n]\n[\n]\n"])
def test_no_job_is_an_answer(output: bytes) -> None:
    listing = TableReader(condor_jobs.TABLE).listing_of(output, at(0))
    assert (listing.jobs, listing.problems) == ((), ())


@pytest.mark.parametrize("output", [b"Error: Collector has no record of schedd/submitter", b"[1]"])
def test_what_is_no_answer_is_refused(output: bytes) -> None:
    with pytest.raises(ValueError, match="condor_q prints no JSON"):
        TableReader(condor_jobs.TABLE).listing_of(output, at(0))


def test_lists_one_after_the_other_are_one() -> None:
    """So do releases before 8.7.10 print several queues."""
    output = printed(queued()) + printed() + printed(queued("9.0", schedd="other.lab", ExitBySignal=True))
    listing = TableReader(condor_jobs.TABLE).listing_of(output, at(100))
    assert {(each.key.cluster, each.key.id, each.job.gpus) for each in listing.jobs} == {
        ("submit.lab", "152.3", 2),
        ("other.lab", "9.0", 2),
    }


def test_a_job_that_cannot_be_read_costs_no_other() -> None:
    listing = read(queued(GlobalJobId="x"), queued("1.0", status=9), queued())
    assert [each.key for each in listing.jobs] == [FIRST]
    assert [each.partition(": ")[2] for each in listing.problems] == [
        "ValueError 'x' is no GlobalJobId",
        "ValueError JobStatus '9' is not known",
    ]


# -- With the pool's word ----------------------------------------------------------------------------


def test_the_queue_adds_what_the_pool_does_not_say() -> None:
    scene = Scene()
    scene.node(5, used())
    scene.pool(10, WHOLE, ad())
    heard(scene, 11, queued())
    row = scene.row()
    assert (row.job_name, row.account, row.gpus_asked, row.time_limit_seconds) == ("train", "physics", 2, 7200)
    assert (row.begin, row.submitted, row.state, row.phase) == (at(1), at(-60), "", JobPhase.SILENT)
    for name in ("152.3", "152_3", "152[]"):
        assert [each.id for each in scene.jobs.matching(JobQuery(id=name), at(50))] == ["152.3"]


def test_what_only_a_queue_has_is_no_job_of_ours() -> None:
    scene = Scene()
    scene.node(5)
    heard(scene, 11, queued())
    assert scene.jobs.ledger.jobs == {}


def test_a_word_of_the_queue_lasts_as_long_as_it_is_so() -> None:
    """Held, released, running, suspended, running again, gone: and how it ended its history says."""
    scene = Scene()
    scene.node(5, used())
    scene.pool(10, WHOLE, ad())
    heard(scene, 11, queued())
    scene.node(24, used(end=20))
    scene.pool(25, WHOLE)
    assert scene.row().state == ""  # the queue is older, and says that it runs
    heard(scene, 30, queued(status=5, HoldReasonCode=1))
    assert (scene.row().state, scene.row().phase, scene.row().begin) == ("HELD", JobPhase.ENDED, at(1))
    scene.node(40, used(end=20), used(begin=35))
    scene.pool(45, WHOLE, ad(begin=34))
    assert (scene.row().state, scene.row().phase) == ("", JobPhase.SILENT)
    scene.pool(50, WHOLE, ad(begin=34, Activity="Suspended"))
    assert scene.row().state == "SUSPENDED"
    scene.pool(55, WHOLE, ad(begin=34))
    assert scene.row().state == ""
    heard(scene, 60, queued(status=2))
    scene.pool(65, WHOLE, ad(begin=34, Activity="Suspended"))
    scene.node(68, used(end=20), used(begin=35, end=66))
    scene.pool(70, WHOLE)
    heard(scene, 71)
    assert (scene.row().state, scene.row().job_name) == ("", "train")
    assert scene.jobs.unlisted.without_account(at(72)) == [FIRST]
    scene.jobs.settle(past(queued(status=4, CompletionDate=START + 67, ExitBySignal=False, ExitCode=3)))
    row = scene.row()
    assert (row.state, row.exit_code, row.differences) == ("FAILED", 3, [])
    assert scene.jobs.unlisted.without_account(at(73)) == []


def test_a_word_ends_with_a_job_that_is_listed_nowhere_any_more() -> None:
    """Suspended and gone where no queue is asked, or held and removed."""
    scene = Scene()
    scene.node(5, used())
    scene.pool(10, WHOLE, ad(Activity="Suspended"))
    scene.pool(25, WHOLE)
    assert (scene.row().state, scene.row().submitted) == ("", at(-60))
    heard(scene, 30, queued(status=5))
    assert scene.row().state == "HELD"
    heard(scene, 90)
    assert (scene.row().state, scene.row().job_name) == ("", "train")


def test_a_job_that_stays_in_the_queue_after_its_end_has_ended_as_it_says() -> None:
    scene = Scene()
    scene.node(5, used())
    scene.pool(10, WHOLE, ad())
    scene.node(30, used(end=20))
    scene.pool(32, WHOLE)
    heard(scene, 33, queued(status=4, CompletionDate=START + 20, ExitBySignal=True, ExitSignal=9))
    row = scene.row()
    assert (row.state, row.exit_code, row.end, row.phase) == ("FAILED", -9, at(20), JobPhase.ENDED)


def test_a_job_that_was_removed_from_a_hold_did_not_end_then() -> None:
    scene = Scene()
    scene.node(5, used())
    scene.pool(10, WHOLE, ad())
    scene.node(30, used(end=20))
    scene.pool(32, WHOLE)
    scene.jobs.settle(past(queued(status=3, LastJobStatus=5, EnteredCurrentStatus=START + 90)))
    row = scene.row()
    assert (row.state, row.end, row.differences) == ("CANCELLED", at(20), [])


def test_a_slot_that_the_pool_does_not_name_is_not_missed_in_a_queue() -> None:
    scene = Scene()
    scene.node(5, used())
    assert scene.pool(200, WHOLE) == []


@pytest.mark.parametrize("users", [UserPrivacy.HASHED, UserPrivacy.OFF])
def test_persons_that_a_node_keeps_to_itself_are_not_learned_from_a_queue(users: UserPrivacy) -> None:
    scene = Scene()
    scene.node(5, used(), users=users, user="")
    scene.pool(10, WHOLE, ad())
    heard(scene, 11, queued())
    heard(scene, 12, queued(status=5))
    assert (scene.row().user, scene.row().account, scene.row().job_name) == ("", "", "train")


# -- Commands ----------------------------------------------------------------------------------------


class Asked(HeardPoll):
    """A poll with the listings and accounts that it hands on, at a time that the test has."""

    def __init__(self, **settings: Any) -> None:
        self.now = 100.0
        super().__init__()
        self.poll = CondorPoll(
            CondorAskConfig(enabled=True, **settings),
            self.impairments,
            self.hear,
            lambda: self.ended,
            self.accounts.update,
            lambda: at(self.now),
        )

    @property
    def queue(self) -> set[str]:
        """Ids of the newest listing of the queues."""
        return {each.key.id for each in [its for its in self.listings if its.queue][-1].jobs}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder whose commands go before all others: a pool with one job, whose queue has it, and an empty history."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    (tmp_path / "ads").write_text(json.dumps([WHOLE, ad()]))
    (tmp_path / "queue").write_bytes(printed(queued()))
    (tmp_path / "past").write_bytes(b"[\n]\n")
    command(tmp_path, "condor_status", f"cat {tmp_path}/ads")
    for name, file in (("condor_q", "queue"), ("condor_history", "past")):
        command(tmp_path, name, f'echo "$CONDOR_CONFIG $*" >> {tmp_path}/{name}.asked; cat {tmp_path}/{file}')
    return tmp_path


def asked(folder: Path, name: str) -> list[str]:
    """Return how a command was called so far."""
    path = folder / f"{name}.asked"
    return path.read_text().splitlines() if path.exists() else []


async def test_a_schedd_is_asked_about_its_jobs_once_a_minute(folder: Path) -> None:
    scene = Asked(pool="cm.lab", conf_file=Path("/etc/pool"))
    reading = ("reading", "")
    found = await scene.ask()
    assert found == {"condor_status": reading, "condor_q": reading, "condor_history": ("absent", "not asked yet")}
    (call,) = asked(folder, "condor_q")
    words = call.split()
    assert words[:6] == ["/etc/pool", "-name", "submit.lab", "-pool", "cm.lab", "-json"]
    assert call.endswith(" -allusers -constraint RequestGPUs > 0 && (JobStatus != 1 || NumJobStarts > 0)")
    assert {"GlobalJobId", "RequestGPUs"} <= set(words[7].split(","))
    assert not {"Environment", "Env", "Args", "Arguments"} & set(words[7].split(","))
    assert scene.queue == {"152.3"}
    scene.now += SCHEDD_SECONDS - 1
    await scene.ask()
    assert len(asked(folder, "condor_q")) == 1
    scene.now += 1
    await scene.ask()
    assert len(asked(folder, "condor_q")) == 2


async def test_a_history_is_asked_about_jobs_that_have_ended_and_left_the_queue(folder: Path) -> None:
    scene = Asked()
    other, slot = JobKey("htcondor", "submit.lab", "160.0"), JobKey("htcondor", "", "slot1_1@n1")
    scene.ended = [FIRST, other, slot]
    ended: dict[str, Any] = {"CompletionDate": START + 50, "ExitBySignal": False, "ExitCode": 0}
    (folder / "past").write_bytes(printed(*(queued(job, 4, **ended) for job in ("160.0", "20000.0"))))
    assert (await scene.ask())["condor_history"] == ("reading", "")
    (call,) = asked(folder, "condor_history")
    assert call.strip().startswith("-name submit.lab -json -attributes ")
    assert call.endswith(" -limit 1 -scanlimit 20000 160.0"), "the first one is in the queue"
    assert set(scene.accounts) == {other}, "an old release takes each number for a cluster"
    assert (scene.accounts[other].state, scene.accounts[other].end) == ("COMPLETED", at(50))


async def test_a_queue_that_fails_costs_nothing_of_what_the_pool_says(folder: Path) -> None:
    command(folder, "condor_q", 'echo "-- Failed to fetch ads from: <192.0.2.1:9618> : submit.lab" >&2; exit 1')
    scene = Asked()
    found = await scene.ask()
    assert found["condor_status"] == ("reading", "")
    assert found["condor_q"] == (
        "failing",
        "submit.lab: condor_q: -- Failed to fetch ads from: <192.0.2.1:9618> : submit.lab",
    )
    assert [each.part for each in scene.impairments.current()] == ["scheduler/condor_q"]
    assert [each.key for each in scene.listings[0].jobs] == [FIRST]
    assert scene.poll.pause == 15
    command(folder, "condor_q", f"cat {folder}/queue")
    scene.now += FAILED_SECONDS - 1
    assert (await scene.ask())["condor_q"][0] == "failing", "not asked again so soon"
    scene.now += SCHEDD_SECONDS
    assert (await scene.ask())["condor_q"] == ("reading", "")
    assert scene.queue == {"152.3"}


async def test_a_fault_ends_with_the_last_job(folder: Path) -> None:
    command(folder, "condor_q", "exit 1")
    scene = Asked(accounting=False)
    assert (await scene.ask())["condor_q"][0] == "failing"
    (folder / "ads").write_text(json.dumps([WHOLE]))
    assert (await scene.ask())["condor_q"] == ("reading", "")


async def test_a_queue_without_jobs_of_ours_is_forgotten(folder: Path) -> None:
    scene = Asked(accounting=False)
    await scene.ask()
    assert scene.queue == {"152.3"}
    (folder / "ads").write_text(json.dumps([WHOLE]))
    await scene.ask()
    assert (scene.queue, len(asked(folder, "condor_q"))) == (set(), 1)


async def test_one_schedd_of_several_that_fails_is_named_and_the_others_count(folder: Path) -> None:
    other = ad("9.0", RemoteScheddName="flocked.far", GlobalJobId="flocked.far#9.0#1790000000")
    (folder / "ads").write_text(json.dumps([WHOLE, ad(), other]))
    command(
        folder,
        "condor_q",
        f'echo "$*" >> {folder}/condor_q.asked\n'
        f'[ "$2" = submit.lab ] && exec cat {folder}/queue\necho "Error: Collector has no record of schedd/submitter" >&2; exit 1',
    )
    scene = Asked()
    said = ("reading", "flocked.far: condor_q: Error: Collector has no record of schedd/submitter")
    assert (await scene.ask())["condor_q"] == said
    scene.now += SCHEDD_SECONDS
    assert (await scene.ask())["condor_q"] == said
    assert [each.split()[1] for each in asked(folder, "condor_q")].count("flocked.far") == 1
    assert scene.queue == {"152.3"}
    assert scene.impairments.current() == []


async def test_many_schedds_take_turns(folder: Path) -> None:
    names = [f"s{number}.lab" for number in range(MOST_SCHEDDS + 3)]
    (folder / "ads").write_text(json.dumps([ad(GlobalJobId=f"{name}#152.3#{START}") for name in names]))
    scene = Asked()
    await scene.ask()
    assert len(asked(folder, "condor_q")) == MOST_SCHEDDS
    scene.now += SCHEDD_SECONDS
    await scene.ask()
    assert {each.split()[1] for each in asked(folder, "condor_q")} == set(names)


async def test_a_schedd_whose_name_is_an_option_is_not_asked(folder: Path) -> None:
    (folder / "ads").write_text(json.dumps([ad(GlobalJobId="-debug#152.3#1790000000")]))
    assert (await Asked().ask())["condor_q"] == ("absent", "not asked yet")
    assert asked(folder, "condor_q") == []


async def test_a_schedd_that_hangs_is_given_up_at_the_deadline(folder: Path) -> None:
    command(folder, "condor_q", "exec sleep 600")
    found = await Asked(deadline=0.5).ask()
    assert found["condor_q"] == ("failing", "submit.lab: condor_q has not answered in 0.5 s")
    assert found["condor_status"] == ("reading", "")


async def test_sources_that_are_not_wanted_are_not_asked(folder: Path) -> None:
    scene = Asked(queue=False, accounting=False)
    scene.ended = [FIRST]
    assert await scene.ask() == {"condor_status": ("reading", "")}
    assert asked(folder, "condor_q") + asked(folder, "condor_history") == []


# -- The whole ---------------------------------------------------------------------------------------


async def test_an_aggregator_knows_a_jobs_name_and_how_it_ended(
    broker: Broker, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node on a real bus, real processes in the place of the three commands."""
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    now = time.time()
    begin = int(now) - START - 60
    times: dict[str, Any] = {"JobCurrentStartDate": START + begin, "QDate": START + begin - 60}
    (folder / "ads").write_text(json.dumps([WHOLE, ad(begin=begin)]))
    (folder / "queue").write_bytes(printed(queued(**times)))
    ended: dict[str, Any] = {"CompletionDate": int(now) - 5, "ExitBySignal": False, "ExitCode": 3}
    (folder / "past").write_bytes(printed(queued(status=4, **times, **ended)))
    settings = msgspec.structs.replace(
        config(broker.config, folder / "data"), htcondor=CondorAskConfig(enabled=True, interval=1, schedd_interval=1)
    )
    node = msgspec.structs.replace(inventory("n1", 4), gpus=GPUS)
    slot = msgspec.structs.replace(used(), begin=int(now - 30) * SECOND)

    def lists(version: int, *slots: Any) -> bytes:
        job = Job(key=SLOT, user="ada")
        return msgspec.json.encode(
            NodeJobs(session=1, version=version, at=time.time_ns(), allocations=slots, jobs=(job,))
        )

    async with running(settings) as aggregator, ScriptedNode(broker.config, "n1", 4, made_of=node) as scripted:

        def row() -> Any:
            return aggregator.jobs.row(FIRST, time.time_ns())

        await scripted.tick()
        await scripted.publish(Topic.JOBS, lists(1, slot), retain=True)
        await until(lambda: FIRST in aggregator.jobs.ledger.jobs and row().job_name == "train")
        assert (row().gpus_asked, row().time_limit_seconds, row().owner) == (2, 7200, "Array/152_3")
        (folder / "queue").write_bytes(printed())
        (folder / "ads").write_text(json.dumps([WHOLE]))
        over = msgspec.structs.replace(slot, end=int(now - 5) * SECOND)
        await scripted.publish(Topic.JOBS, lists(2, over), retain=True)
        await until(lambda: row().exit_code == 3)
        assert (row().state, row().job_name, row().phase) == ("FAILED", "train", JobPhase.ENDED)
        assert {each.state for each in aggregator.jobs.sources()} == {"reading"}
