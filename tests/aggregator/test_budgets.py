"""Budgets: no peer fills the memory, locks out an honest node, or poisons the counts of frames."""

from __future__ import annotations

import re
import textwrap
import tomllib
from pathlib import Path

import msgspec
import pytest

from aggregator.config import AggregatorConfig
from aggregator.http.metrics import self_families
from aggregator.ingest.budgets import TokenBucket
from aggregator.settings.budgets import IngestBudgets
from aggregator.store.protocol import Batch, CollectorRun, Hole
from telemetry.devices import Event, Gpu, Link
from telemetry.errors import ConfigError
from telemetry.metric import Table
from telemetry.text.settings import convert
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.exposition import render
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import CollectorStatus, CommandKind, FrameSpan, Inventory, NodeState
from telemetry.wire.topics import Topic
from tests.aggregator import attacks
from tests.aggregator.attacks import attack, status
from tests.aggregator.feed import Feed
from tests.aggregator.node import START, inventory, payload, value


def open_feed(folder: Path, **budgets: float) -> Feed:
    """A feed with two nodes, one of which will turn on us."""
    feed = Feed(folder / "data", budgets=IngestBudgets(**budgets))  # type: ignore[arg-type]
    for name in ("honest", "mallory"):
        feed.hello(name)
        feed.send(name, 0)
    feed.commit()
    return feed


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """Two nodes, one of which will turn on us."""
    return open_feed(tmp_path)


def entries(feed: Feed) -> dict[str, int]:
    """The number of entries of everything that a message may add to."""
    ingest = feed.ingest
    return {
        "nodes": len(ingest.nodes),
        "routes": len(ingest._routes),
        "accounts": sum(1 for _ in ingest.ledger),
        "spans": sum(account.have.spans for account in ingest.ledger),
        "runs": len(ingest._registry._runs),
        "devices": sum(map(len, ingest._registry._devices.values())),
        "rows": sum(len(feed.fleet.devices[one]) for one in (Table.GPU, Table.LINK, Table.NODE)),
        "store's runs": len(feed.store._runs),
    }


async def test_what_is_used_and_what_was_removed_is_on_metrics(feed: Feed) -> None:
    """With a help text each; no series per name."""
    attack(feed, attacks.invented_names(1000))
    feed.now += 61
    feed.ingest.expire(feed.now)
    text = "".join(line for family in self_families(feed.stats, {}, 1.0) for line in render([family]).decode())
    for line in (
        'kilowatch_aggregator_budget_used{budget="gpus"} 4',
        'kilowatch_aggregator_budget_limit{budget="gpus"} 400000',
        'kilowatch_aggregator_budget_used{budget="nodes"} 2',
        'kilowatch_aggregator_messages_dropped_total{reason="budget"} 0',
        "kilowatch_aggregator_newcomers_expired_total 1000",
        "kilowatch_aggregator_nodes_expired_total 0",
        "kilowatch_aggregator_nodes_forgotten_total 0",
        "kilowatch_aggregator_sessions_expired_total 0",
        "# HELP kilowatch_aggregator_budget_used ",
    ):
        assert line in text
    assert "invented" not in text


# -- Names -----------------------------------------------------------------------------------------


def test_names_without_an_inventory_are_forgotten_after_a_minute(feed: Feed) -> None:
    attack(feed, attacks.invented_names(2000))
    assert len(feed.ingest.nodes) == 502
    feed.now += 61
    feed.ingest.expire(feed.now)
    assert set(feed.ingest.nodes) == {"honest", "mallory"}
    assert feed.stats.newcomers_expired == 2000
    assert feed.stats.budget_used["newcomers"] == feed.stats.budget_used["newcomer_bytes"] == 0
    assert len(feed.ingest._routes) <= 6


def test_a_new_node_gets_in_while_invented_names_fill_every_place(feed: Feed) -> None:
    """Its status and inventory wait for its first frame, and nothing of them is lost."""
    attack(feed, attacks.one_gpu_inventories(3000))
    feed.hello("new", ring=(FrameSpan(1, 0, 2), FrameSpan(7, 0, 4)))
    assert "new" not in feed.fleet.nodes
    feed.send("new", 3)
    feed.flush()
    assert feed.fleet.nodes["new"].online
    assert feed.fleet.nodes["new"].seq == 3
    assert feed.ingest.ledger.find("new", 7) is not None
    feed.now += 1
    commands = [each for each in feed.ingest.drain_commands(feed.now) if each.node == "new"]
    feed.now += 1
    commands += [each for each in feed.ingest.drain_commands(feed.now) if each.node == "new"]
    assert {(each.command.about, each.command.first, each.command.last) for each in commands} == {(1, 0, 2), (7, 0, 4)}
    feed.commit()
    feed.reopen()
    assert "new" in feed.fleet.nodes


def test_a_frame_without_a_held_inventory_requests_it(feed: Feed) -> None:
    """A node whose messages were dropped meanwhile is not locked out."""
    attack(feed, attacks.invented_names(600))
    feed.send("new", 0)
    (ask,) = feed.ingest.drain_commands(feed.now)
    assert (ask.node, ask.command.kind) == ("new", CommandKind.INVENTORY)
    feed.inventory(inventory("new", 2))
    feed.send("new", 1)
    feed.flush()
    assert feed.fleet.nodes["new"].seq == 1


def test_a_frame_that_does_not_fit_makes_no_node_of_a_name(feed: Feed) -> None:
    attack(feed, attacks.invented_names(600))
    feed.inventory(inventory("new", 2))
    feed.send("new", 0, gpus=3)
    assert "new" not in feed.ingest.nodes
    feed.send("new", 1)
    assert "new" in feed.ingest.nodes


def test_nodes_of_the_store_keep_their_places_after_a_restart(tmp_path: Path) -> None:
    """The budget is full of names with frames; those known longest come first."""
    feed = open_feed(tmp_path, nodes=20)
    for number in range(30):
        name = f"a{number}"  # before the honest ones in any order of names
        feed.hello(name)
        feed.send(name, 0)
    feed.commit()
    assert len(feed.ingest.nodes) == 20
    assert feed.stats.dropped["budget"] == 12 * 3
    feed.reopen()
    for number in range(30):
        feed.hello(f"a{number}")
        feed.send(f"a{number}", 1)
    for name in ("honest", "mallory"):
        feed.send(name, 1)
    feed.flush()
    assert feed.fleet.nodes["honest"].seq == feed.fleet.nodes["mallory"].seq == 1


def test_a_node_that_is_dead_when_an_aggregator_is_installed_is_seen(tmp_path: Path) -> None:
    """Its inventory and its last will are all that there is; it is not forgotten after a minute."""
    feed = Feed(tmp_path / "data")
    will = CollectorStatus(state=NodeState.OFFLINE, session=1, reason="lost")
    feed.publish("dead", Topic.STATUS, messages.encode(will))
    feed.inventory(inventory("dead", 2))
    feed.now += 3600
    feed.ingest.expire(feed.now)
    assert not feed.fleet.nodes["dead"].online


# -- Frames that a node claims ---------------------------------------------------------------------


def test_spans_that_no_session_can_have_count_for_nothing(feed: Feed) -> None:
    for last in (1 << 62, (1 << 62) - 1, 1 << 40, 1 << 32, (1 << 31) - 1, 900_000_000):
        feed.publish("mallory", Topic.STATUS, status(1, FrameSpan(5, last, last)))
        feed.publish("mallory", Topic.STATUS, status(1, FrameSpan(1, last, last)))
        frame = frames.encode(frames.build(9, last, START, {}))
        feed.publish("mallory", Topic.FRAME, frame)
    assert feed.stats.frames_lost == 0
    assert feed.ingest.ledger.missing == 0
    feed.send("mallory", 1)
    assert feed.commit() == 1


def test_a_node_claims_no_more_than_it_can_have_sampled_in_all_its_sessions(feed: Feed) -> None:
    """A session may be a year long, but not each of a thousand."""
    year = 365 * 86_400
    for session in range(2, 1000):
        feed.publish("mallory", Topic.STATUS, status(1, FrameSpan(session, year, year + 9)))
    assert 2 * year < feed.stats.frames_lost_claimed < 1000 * 86_400
    assert feed.stats.frames_lost == 0, "what a node claims that sends nothing is in no total"
    assert feed.stats.dropped["budget"] > 900


def test_a_collector_that_ran_for_a_year_is_believed(tmp_path: Path) -> None:
    """By an aggregator that sees it for the first time."""
    feed = Feed(tmp_path / "data")
    year = 365 * 86_400
    feed.hello("a", ring=(FrameSpan(1, year - 50_000, year - 1),))
    feed.send("a", year)
    feed.flush()
    assert feed.fleet.nodes["a"].seq == year
    assert feed.stats.dropped == {}
    assert feed.ingest.ledger.missing == 50_000


def test_what_was_poisoned_before_heals_at_a_restart(feed: Feed) -> None:
    """As 2026.1 stored it: forged holes up to 2^62, sessions without end, names without frames."""
    runs = [CollectorRun(10 + n, "mallory", 1000 + n) for n in range(20_000)]
    names = [CollectorRun(50_000 + n, f"invented-{n}", 1) for n in range(20_000)]
    holes = [
        Hole("mallory", 1, 1, (1 << 62) - 1, "ring_overflow"),
        Hole("mallory", 1000, 0, 1 << 61, "ring_overflow"),
        *(Hole("mallory", run.session, 0, 8, "ring_overflow") for run in runs[1:]),
    ]
    found = [inventory(f"invented-{number}", 1) for number in range(5000)]
    feed.store.write(Batch(runs=[*runs, *names], holes=holes, inventories=found, at=feed.wall))
    feed.reopen()
    assert entries(feed)["runs"] < 2060 + 500
    assert entries(feed)["store's runs"] < 2060 + 500
    assert len(feed.ingest.nodes) == 502
    assert feed.ingest.ledger.missing == 0
    feed.send("mallory", 1, 2)  # the session that the forged hole covered
    feed.send("honest", 1)
    assert feed.commit() == 3
    assert feed.fleet.nodes["honest"].seq == 1


# -- Sessions, devices, rates ----------------------------------------------------------------------


def test_a_collector_that_restarts_for_days_is_never_refused(feed: Feed) -> None:
    """Sessions that its ring has no more make room for the new."""
    for session in range(2, 5000):
        feed.now += 10
        ring = (FrameSpan(session - 1, 0, 0),)
        feed.publish("honest", Topic.STATUS, status(session, *ring))
        feed.send("honest", 0, session=session)
        if session % 500 == 0:
            feed.commit()
    assert feed.stats.dropped == {}
    assert len(feed.ingest.nodes["honest"].accounts) <= 2048
    assert feed.stats.sessions_expired >= 2900
    feed.commit()
    assert len(feed.store._runs) <= 2050


def test_a_frame_that_would_be_one_span_too_many_is_shown_and_requested_again(tmp_path: Path) -> None:
    """Half of the frames lost for hours: nothing is refused for good."""
    feed = open_feed(tmp_path, intervals_per_node=64)
    for seq in range(2, 400, 2):
        feed.now += 2
        feed.send("honest", seq)
    feed.flush()
    account = feed.ingest.nodes["honest"].accounts[1]
    assert account.have.spans <= 65
    assert feed.fleet.nodes["honest"].seq == 398
    assert set(feed.stats.dropped) == {"scattered"}
    feed.send("honest", *range(1, 400))  # as they come on request, in order
    feed.commit()
    assert account.missing == 0
    assert account.have.spans == 1
    assert feed.store.accounted()["honest", 1] == IntervalSet([(0, 399)])


def test_devices_of_a_node_and_of_the_cluster_are_bounded(tmp_path: Path) -> None:
    feed = open_feed(tmp_path, gpus_per_node=8, links_per_node=16, gpus=12, links=16)
    feed.inventory(inventory("honest", 9, version=1))
    assert len(feed.fleet.nodes["honest"].inventory.gpus) == 2
    feed.inventory(inventory("honest", 8, version=1))
    feed.inventory(inventory("mallory", 5, version=1))  # 8 + 5
    assert len(feed.fleet.nodes["mallory"].inventory.gpus) == 2
    found = inventory("mallory", 2, version=1)
    links = tuple(Link(gpu=found.gpus[0].uuid, number=number) for number in range(17))
    feed.inventory(msgspec.structs.replace(found, links=links))
    assert feed.stats.dropped == {"budget": 3}
    feed.inventory(inventory("honest", 2, version=2))
    feed.inventory(inventory("mallory", 5, version=2))  # there is room again
    assert len(feed.fleet.nodes["mallory"].inventory.gpus) == 5


def rack() -> Inventory:
    """An NVL72 rack as one node: 72 GPUs with 18 links each."""
    gpus = tuple(Gpu(uuid=f"GPU-r-{n}", index=n, name="NVIDIA GB200") for n in range(72))
    links = tuple(Link(gpu=gpu.uuid, number=link) for gpu in gpus for link in range(18))
    return msgspec.structs.replace(inventory("rack", 0), gpus=gpus, links=links)


def test_a_rack_may_be_replaced_whole(feed: Feed) -> None:
    feed.hello("rack", gpus=72)
    feed.inventory(rack())
    new = tuple(msgspec.structs.replace(gpu, uuid=f"{gpu.uuid}-new") for gpu in rack().gpus)
    links = tuple(Link(gpu=gpu.uuid, number=link) for gpu in new for link in range(18))
    feed.inventory(msgspec.structs.replace(rack(), version=2, gpus=new, links=links))
    assert feed.stats.dropped == {}
    assert feed.fleet.nodes["rack"].inventory.gpus == new


def test_one_node_that_floods_costs_no_other_its_messages(feed: Feed) -> None:
    for seq in range(1, 20_000):
        feed.send("mallory", seq)
        if seq % 1000 == 0:
            feed.send("honest", seq // 1000)
    assert feed.stats.dropped["budget"] >= 14_000
    assert feed.ingest.nodes["honest"].seq == 19
    assert feed.ingest.nodes["mallory"].seq < 6000


def test_events_of_a_node_are_bounded_by_number_and_length(feed: Feed) -> None:
    for number in range(3000):
        event = Event(id=f"1-{number}", node="mallory", at=START, kind="xid")
        feed.publish("mallory", Topic.EVENT, messages.encode(event))
    assert len(feed.ingest.drain_events()) == 2000
    feed.now += 10
    for number in range(3000):
        event = Event(id=f"2-{number}", node="mallory", at=START, kind="xid", message="x" * 60_000)
        feed.publish("mallory", Topic.EVENT, messages.encode(event))
    assert 3 < len(feed.ingest.drain_events()) < 30


def test_a_token_bucket_never_gives_more_than_its_burst_and_rate() -> None:
    bucket = TokenBucket(10.0, 100.0, 0.0)
    now, given = 0.0, 0
    for _ in range(10_000):
        now += 0.01
        given += bucket.spend(1.0, now)
    assert 10 * 100 <= given <= 10 * 100 + 2 * 100
    assert not bucket.spend(101.0, 1e6)
    assert bucket.spend(100.0, 2e6)


# -- What is long gone -----------------------------------------------------------------------------


def test_a_node_that_is_offline_and_silent_for_a_month_leaves_and_its_history_stays(feed: Feed) -> None:
    will = CollectorStatus(state=NodeState.OFFLINE, session=1, reason="shutdown")
    feed.publish("mallory", Topic.STATUS, messages.encode(will))
    feed.now += 31 * 86_400
    feed.send("honest", 1)
    feed.ingest.expire(feed.now)
    assert set(feed.fleet.nodes) == {"honest"}
    assert feed.stats.nodes_expired == 1
    feed.commit()
    feed.reopen()
    assert set(feed.fleet.nodes) == {"honest"}
    found = feed.store.history("GPU-mallory-0", "gpu_power_watts", 0, 1 << 62, 0)
    assert len(found.mean) == 1
    feed.hello("mallory", session=2)
    feed.send("mallory", 0, session=2)
    feed.commit()
    assert feed.fleet.nodes["mallory"].online
    known = feed.ingest._registry._devices.values()
    assert sum("GPU-mallory-0" in keys for keys in known) == 1


def test_a_node_that_is_online_is_never_expired(feed: Feed) -> None:
    """A collector that hangs is an alert, and must not vanish."""
    feed.now += 400 * 86_400
    feed.ingest.expire(feed.now)
    assert set(feed.fleet.nodes) == {"honest", "mallory"}


def test_superseded_sessions_leave_after_a_month(feed: Feed) -> None:
    feed.publish("honest", Topic.STATUS, status(2))
    feed.send("honest", 0, session=2)
    feed.now += 20 * 86_400
    feed.ingest.expire(feed.now)
    assert set(feed.ingest.nodes["honest"].accounts) == {1, 2}
    feed.now += 20 * 86_400
    feed.ingest.expire(feed.now)
    assert set(feed.ingest.nodes["honest"].accounts) == {2}


def test_a_forged_frame_that_waits_leaves_room_for_those_of_others(tmp_path: Path) -> None:
    """No node holds more than its share of the memory for frames that wait."""
    feed = open_feed(tmp_path)
    events = [bytes(900_000)]
    for seq in range(1, 60):
        feed.publish("mallory", Topic.FRAME, payload("mallory", 5, 1, seq, events))
    assert feed.ingest._sequence.waiting_bytes <= 4 * 1024 * 1024
    feed.send("late", 0, 1)
    feed.inventory(inventory("late", 2))
    feed.flush()
    assert feed.fleet.nodes["late"].seq == 1
    assert feed.fleet.column("gpu_power_watts", feed.now)[feed.fleet.by_uuid["GPU-late-0"]] == value("late", 0, 0, 1)


# -- Settings --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "where"),
    [
        ({"nodes": 0}, "nodes"),
        ({"newcomers": -1}, "newcomers"),
        ({"newcomer_bytes": 10}, "newcomer_bytes"),
        ({"gpus_per_node": 500, "gpus": 100}, "gpus_per_node"),
        ({"spans_per_status": 4096}, "spans_per_status"),
        ({"messages_per_second": 0}, "messages_per_second"),
        ({"session_seconds": 1e12}, "session_seconds"),
        ({"expiry_seconds": 0}, "expiry_seconds"),
        ({"nods": 5}, "nods"),
        ({"nodes": "many"}, "nodes"),
    ],
)
def test_nonsense_in_the_settings_is_named(settings: dict[str, object], where: str) -> None:
    with pytest.raises(ConfigError, match=rf"budgets\.?.*{where}"):
        convert(AggregatorConfig, {"budgets": settings}, "aggregator").check()


def test_the_page_shows_settings_that_work_and_the_defaults_of_today() -> None:
    """The block of docs/deploy.md."""
    text = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
    block = re.search(r"^    \[aggregator\.budgets\]\n((?:    .*\n)+)", text, re.MULTILINE)
    assert block is not None
    written = tomllib.loads(textwrap.dedent(block[1]))
    convert(AggregatorConfig, {"budgets": written}, "aggregator").check()
    defaults = msgspec.structs.asdict(IngestBudgets())
    for line in block[1].splitlines():
        name = line.split(" = ")[0].strip()
        said = re.search(r"# ([0-9]+)", line)
        assert said is not None
        assert float(said[1]) == defaults[name]
        for other, number in re.findall(r"(\w+) = ([0-9]+)", line.partition("#")[2]):
            assert float(number) == defaults[other]


def test_the_defaults_are_several_times_a_cluster_of_100_000_gpus() -> None:
    """12,500 nodes of 8 GPUs with 18 links each; or racks of 72."""
    budgets = IngestBudgets()
    budgets.check("aggregator.budgets")
    assert budgets.nodes >= 2 * 12_500
    assert budgets.gpus >= 2 * 100_000
    assert budgets.links >= 2 * 100_000 * 18
    assert budgets.gpus_per_node >= 2 * 72
    assert budgets.links_per_node >= 2 * 72 * 18
