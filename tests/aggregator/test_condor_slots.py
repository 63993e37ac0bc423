"""Jobs of HTCondor: ads of slots in their documented form, and lists of nodes that see no more than a slot."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.config import AggregatorConfig
from aggregator.impairments import Impairments
from aggregator.jobs.scheduled import UNSURE_SECONDS
from aggregator.jobs.service import JobService
from aggregator.jobs.slots import SOURCE, SlotWord
from aggregator.scheduler import condor
from aggregator.scheduler.listed import JobListing
from aggregator.scheduler.poll import CondorPoll
from aggregator.settings.condor import CondorAskConfig
from aggregator.settings.slurm import SlurmAskConfig
from api.jobs import JobPhase, JobRow
from telemetry.devices import Gpu
from telemetry.errors import ConfigError
from telemetry.notations.htcondor import gpu_of
from telemetry.wire.jobs import Allocation, AllocationKind, GpuProcess, Job, JobKey, NodeJobs, UserPrivacy
from telemetry.wire.topics import Topic
from tests.aggregator.node import ScriptedNode, inventory
from tests.aggregator.test_scheduler_poll import command
from tests.aggregator.test_service import config, running
from tests.brokers import Broker
from tests.kit.waiting import until

SECOND = 10**9
START = 1_790_000_000
GPUS = tuple(Gpu(uuid=f"GPU-{n}156e653-3414-958a-8f3e-fc6682b36f3{n}", index=n, minor=n, name="H100") for n in range(4))
SLOT = JobKey("htcondor", "", "slot1_1@n1")
FIRST, SECOND_JOB = (JobKey("htcondor", "submit.lab", each) for each in ("152.3", "153.0"))
ADA = JobKey("user", "n1.lab.example", "ada")


def at(seconds: float) -> int:
    """Return a time, in seconds after the start."""
    return (START * SECOND) + int(seconds * SECOND)


def ad(job: str = "152.3", begin: int = 1, gpus: str = "GPU-0156e653", **more: Any) -> dict[str, Any]:
    """Return what condor_status prints of a slot in which a job runs."""
    return {
        "Name": "slot1_1@n1.lab.example", "Machine": "n1.lab.example", "SlotType": "Dynamic", "Activity": "Busy", "JobId": job,
        "GlobalJobId": f"submit.lab#{job}#{START - 60}", "JobStart": START + begin, "RemoteOwner": "ada@lab.example",
        "RemoteUser": "ada@lab.example", "AssignedGPUs": gpus, **more,
    }  # fmt: skip


WHOLE = {
    "Name": "slot1@n1.lab.example",
    "Machine": "n1.lab.example",
    "SlotType": "Partitionable",
    "AssignedGPUs": "GPU-0156e653,GPU-1156e653,GPU-2156e653,GPU-3156e653",
}


def used(gpu: int = 0, begin: float = 2, end: float = 0, key: JobKey = SLOT) -> Allocation:
    """Return what a process in a slot shows."""
    return Allocation(
        job=key,
        gpu=GPUS[gpu].uuid,
        kind=AllocationKind.USED,
        begin=at(begin),
        end=at(end) if end else 0,
        source="process",
    )


class Scene:
    """A node, and the pool where it is asked."""

    def __init__(self, *, asked: bool = True) -> None:
        self.jobs = JobService(word=SlotWord(lambda _: GPUS, at(0)) if asked else None)
        self.version = 0

    def node(
        self, seconds: float, *allocations: Allocation, users: UserPrivacy = UserPrivacy.NAMES, user: str = "ada"
    ) -> None:
        """Receive a list of the node."""
        self.version += 1
        processes = tuple(
            GpuProcess(gpu=each.gpu, pid=7, user=user, job=each.job) for each in allocations if not each.end
        )
        message = NodeJobs(
            session=1,
            version=self.version,
            at=at(seconds),
            users=users,
            allocations=allocations,
            processes=processes,
            jobs=tuple(Job(key=key, user=user) for key in sorted({each.job for each in allocations})),
        )
        self.jobs.receive("n1.lab.example", msgspec.json.encode(message), {gpu.uuid for gpu in GPUS}, at(seconds))

    def pool(self, seconds: float, *ads: dict[str, Any]) -> list[str]:
        """Receive what condor_status prints; return what does not fit."""
        listing = condor.listing_of(json.dumps(ads).encode(), at(seconds))
        for _ in self.jobs.hear(listing, seconds, at(seconds)):
            pass
        return [*listing.problems, *self.jobs.unlisted.problems()]

    def row(self, key: JobKey = FIRST, seconds: float = 100) -> JobRow:
        """Return a job as the API shows it."""
        return self.jobs.row(key, at(seconds))

    def times(self, key: JobKey = FIRST) -> dict[tuple[str, str], list[tuple[float, float | None]]]:
        """Return since and until when a job had GPUs, by their letter and kind, in seconds after the start."""
        found: dict[tuple[str, str], list[tuple[float, float | None]]] = {}
        for row in self.jobs.ledger.jobs[key].allocations:
            end = None if row.end is None else (row.end - at(0)) / SECOND
            found.setdefault((row.gpu[4], row.kind), []).append(((row.begin - at(0)) / SECOND, end))
        return found


def test_a_job_has_its_id_its_owner_and_the_gpus_that_it_was_assigned() -> None:
    scene = Scene()
    scene.node(5, used())
    assert scene.pool(10, WHOLE, ad(gpus="GPU-0156e653,GPU-1156e653", RemoteGroup="physics")) == []
    row = scene.row()
    assert (row.id, row.cluster, row.user, row.account) == ("152.3", "submit.lab", "ada", "physics")
    assert (row.phase, row.renamed_from) == (JobPhase.SILENT, ["slot1_1@n1"])
    assert row.submitted == at(-60)
    assert scene.times() == {
        ("0", "used"): [(2, None)],
        ("0", "allocated"): [(1, None)],
        ("1", "allocated"): [(1, None)],
    }
    assert set(scene.jobs.ledger.jobs) == {FIRST}
    assert {each.job for each in scene.jobs.lists["n1.lab.example"].processes} == {FIRST}


def test_jobs_one_after_the_other_in_a_slot_are_two() -> None:
    """The node saw a process all along, and so one use of the slot."""
    scene = Scene()
    scene.node(5, used())
    scene.pool(10, WHOLE, ad())
    scene.pool(25, WHOLE, ad("153.0", begin=20, RemoteUser="grace@lab.example"))
    assert scene.times(FIRST) == {("0", "used"): [(2, 20)], ("0", "allocated"): [(1, 20)]}
    assert scene.times(SECOND_JOB) == {("0", "used"): [(20, None)], ("0", "allocated"): [(20, None)]}
    assert [scene.row(key).user for key in (FIRST, SECOND_JOB)] == ["ada", "grace"]
    assert scene.row(FIRST).phase is JobPhase.ENDED
    scene.node(30, used(begin=2, end=20.5), used(begin=21))
    assert scene.times(FIRST)["0", "used"] == [(2, 20)]
    assert {each.job for each in scene.jobs.lists["n1.lab.example"].processes} == {SECOND_JOB}


def test_a_job_that_the_pool_has_no_longer_ended_with_its_last_process() -> None:
    scene = Scene()
    scene.node(5, used())
    scene.pool(10, WHOLE, ad())
    scene.node(20, used(end=17))
    scene.pool(25, WHOLE)
    assert scene.times() == {("0", "used"): [(2, 17)], ("0", "allocated"): [(1, 17)]}
    assert scene.row().phase is JobPhase.ENDED
    assert scene.row().differences == []


def test_a_job_without_a_process_ends_when_the_pool_was_asked() -> None:
    scene = Scene()
    scene.node(5)
    scene.pool(10, WHOLE, ad())
    scene.pool(25, WHOLE)
    assert scene.times() == {("0", "allocated"): [(1, 25)]}


def test_a_pool_that_does_not_have_the_machine_ends_nothing_for_a_while() -> None:
    """A collector of HTCondor that was started anew has no ads yet."""
    scene = Scene()
    scene.node(5, used())
    scene.pool(10, WHOLE, ad())
    scene.pool(25)
    scene.node(30, used())
    assert scene.times() == {("0", "used"): [(2, None)], ("0", "allocated"): [(1, None)]}
    scene.pool(11 + UNSURE_SECONDS)
    assert scene.times()["0", "allocated"] != [(1, None)]
    scene.pool(30 + UNSURE_SECONDS, WHOLE, ad())
    assert scene.times()["0", "allocated"] == [(1, None)]


def test_what_uses_a_gpu_that_it_was_not_assigned_is_its_slots_job() -> None:
    scene = Scene()
    scene.node(5, used(gpu=2))
    scene.pool(10, WHOLE, ad())
    assert scene.times() == {("0", "allocated"): [(1, None)], ("2", "used"): [(2, None)]}
    assert set(scene.jobs.ledger.jobs) == {FIRST}


def test_a_job_that_ended_before_this_start_is_not_counted_once_more() -> None:
    scene = Scene()
    scene.node(5, used(begin=-100, end=-50))
    assert scene.jobs.ledger.jobs == {}


@pytest.mark.parametrize("form", ["slot1_1@n1.lab.example", "slot1_1@n1", "slot1_1"])
def test_each_form_of_a_slot_is_the_pools(form: str) -> None:
    scene = Scene()
    scene.node(5, used(key=JobKey("htcondor", "", form)))
    scene.pool(10, WHOLE, ad())
    assert set(scene.jobs.ledger.jobs) == {FIRST}


def test_where_nobody_asks_the_pool_a_slot_is_its_user() -> None:
    """Jobs of several persons run in it: none of them is `slot1_1`."""
    scene = Scene(asked=False)
    scene.node(5, used(), used(gpu=1, key=JobKey("htcondor", "", "slot1_2@n1")))
    assert scene.times(ADA) == {("0", "used"): [(2, None)], ("1", "used"): [(2, None)]}
    assert set(scene.jobs.ledger.jobs) == {ADA}


@pytest.mark.parametrize(("users", "word"), [(UserPrivacy.HASHED, "4f1a"), (UserPrivacy.OFF, "")])
def test_persons_that_a_node_keeps_to_itself_are_not_learned_from_the_pool(users: UserPrivacy, word: str) -> None:
    scene = Scene()
    scene.node(5, used(), users=users, user=word)
    scene.pool(10, WHOLE, ad(RemoteGroup="physics"))
    assert (scene.row().user, scene.row().account) == (word, "")


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("GPU-2156e653", (GPUS[2].uuid, False)),
        (GPUS[1].uuid.upper(), (GPUS[1].uuid, False)),
        ("CUDA3", (GPUS[3].uuid, True)),
        ("CUDA4", ("", True)),
        ("GPU-", ("", False)),
        ("GPU-9156e653", ("", False)),
        ("10000", ("", False)),
    ],
)
def test_names_of_gpus(name: str, found: tuple[str, bool]) -> None:
    assert gpu_of(name, GPUS) == found


def test_a_place_of_cuda_is_assumed_until_a_process_of_the_slot_shows_it() -> None:
    scene = Scene()
    scene.node(5)
    scene.pool(10, WHOLE, ad(gpus="CUDA0 CUDA1"))  # blanks, as the manual has it
    rows = scene.jobs.ledger.jobs[FIRST].allocations
    assert [(row.source, row.assumed) for row in rows] == [(SOURCE, True)] * 2
    scene.node(20, used(begin=12))
    rows = scene.jobs.ledger.jobs[FIRST].allocations
    assert {row.gpu[4]: row.assumed for row in rows if row.source == SOURCE} == {"0": False, "1": True}


def test_what_does_not_fit_is_said_and_costs_no_other_job() -> None:
    scene = Scene()
    scene.node(5)
    found = scene.pool(
        10, WHOLE, ad(gpus="MIG-1"), ad("x"), ad("154.0", Machine="n9", Name="slot1_2@n9", RemoteGroup="<none>")
    )
    assert found == [
        "a slot of condor_status can't be read: ValueError JobId is no cluster and process",
        "1 names of GPUs are of none of their nodes, as MIG-1 of n1.lab.example",
        "HTCondor's n9: no node of ours that sends its jobs is called so",
    ]


def test_a_job_of_an_accounting_group_and_one_that_is_suspended() -> None:
    job = ad(RemoteGroup="physics", RemoteUser="physics.ada@lab.example", Activity="Suspended")
    listed = condor.listing_of(json.dumps([job]).encode(), at(3)).jobs[0].job
    assert (listed.user, listed.account, listed.state) == ("ada", "physics", "SUSPENDED")


@pytest.mark.parametrize("output", [b"Error: Can't find address", b'{"a": 1}', b"[", b"\xff"])
def test_what_is_no_answer_is_refused(output: bytes) -> None:
    with pytest.raises(ValueError, match="condor_status"):
        condor.listing_of(output, at(0))


async def test_the_command_is_asked_with_its_pool_and_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A real process in the place of condor_status; of no ad it prints nothing."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    heard: list[JobListing] = []

    async def hear(listing: JobListing) -> list[str]:
        heard.append(listing)
        return ["heard"]

    asked = CondorAskConfig(
        enabled=True, queue=False, accounting=False, pool="cm.lab:9618", conf_file=Path("/etc/pool")
    )
    impairments = Impairments()
    poll = CondorPoll(asked, impairments, hear)
    await poll.ask()
    assert [each.state for each in poll.states()] == ["absent"]
    assert [each.part for each in impairments.current()] == ["scheduler/condor_status"]
    (tmp_path / "ads").write_text(json.dumps([WHOLE, ad()]))
    command(
        tmp_path,
        "condor_status",
        f'[ "$CONDOR_CONFIG $1 $2 $3" = "/etc/pool -pool cm.lab:9618 -json" ] && cat {tmp_path}/ads',
    )
    await poll.ask()
    assert [(each.name, each.state, each.message) for each in poll.states()] == [(SOURCE, "reading", "heard")]
    assert [each.key for each in heard[0].jobs] == [FIRST]
    command(tmp_path, "condor_status", "exit 0")
    await poll.ask()
    assert (heard[1].jobs, poll.states()[0].state) == ((), "reading")


async def test_an_aggregator_names_the_job_of_a_nodes_slot(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A node on a real bus, a real process in the place of condor_status."""
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    now = time.time()
    (tmp_path / "ads").write_text(json.dumps([WHOLE, ad(begin=int(now) - START - 60)]))
    command(tmp_path, "condor_status", f"cat {tmp_path}/ads")
    settings = msgspec.structs.replace(
        config(broker.config, tmp_path / "data"),
        htcondor=CondorAskConfig(enabled=True, interval=1, queue=False, accounting=False),
    )
    node = msgspec.structs.replace(inventory("n1", 4), gpus=GPUS)
    slot = msgspec.structs.replace(used(), begin=int(now - 30) * SECOND)
    message = NodeJobs(session=1, version=1, at=int(now * 1e9), allocations=(slot,), jobs=(Job(key=SLOT, user="ada"),))
    async with running(settings) as aggregator, ScriptedNode(broker.config, "n1", 4, made_of=node) as scripted:
        await scripted.tick()
        await scripted.publish(Topic.JOBS, msgspec.json.encode(message), retain=True)
        await until(lambda: set(aggregator.jobs.ledger.jobs) == {FIRST})
        rows = aggregator.jobs.ledger.jobs[FIRST].allocations
        assert {(row.kind, row.gpu) for row in rows} == {("used", GPUS[0].uuid), ("allocated", GPUS[0].uuid)}
        assert [(each.name, each.state) for each in aggregator.jobs.sources()] == [(SOURCE, "reading")]


@pytest.mark.parametrize(
    "wrong",
    [
        {"htcondor": CondorAskConfig(interval=0)},
        {"htcondor": CondorAskConfig(deadline=0)},
        {"htcondor": CondorAskConfig(schedd_interval=0.5)},
        {"htcondor": CondorAskConfig(schedd_interval=3601)},
        {"htcondor": CondorAskConfig(pool="-long")},
        {"htcondor": CondorAskConfig(enabled=True), "slurm": SlurmAskConfig(enabled=True)},
    ],
)
def test_settings_that_cannot_work_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        AggregatorConfig(**wrong).check()
