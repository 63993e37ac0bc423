"""A roll-out: some hundred nodes appear in one second, and each is a node from its first frame on."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aggregator.ingest.newcomers import PLACED_SHARE
from aggregator.ingest.router import SCHEMA_BYTES
from aggregator.settings.budgets import DAY, IngestBudgets
from collector.sampling.rows import blocks, filled
from collector.simulated import scenario
from collector.simulated.cluster import cluster
from collector.simulated.inventory import inventory as simulated_inventory
from telemetry.devices import Gpu
from telemetry.gap import NOT_SUPPORTED
from telemetry.metric import Lane, Table
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CommandKind, FrameSpan, Inventory
from telemetry.wire.topics import Topic
from tests.aggregator.attacks import status
from tests.aggregator.feed import Feed
from tests.aggregator.node import inventory

GPUS = 8


def inventories(nodes: int) -> list[Inventory]:
    """Return inventories of machines of 8 GPUs, with their links and ports, as collectors send them."""
    fleet = cluster(scenario("fleet", nodes=nodes, gpus=GPUS, seed=7, faults=""))
    found = (simulated_inventory(fleet, fleet.node(name)) for name in fleet.scenario.nodes)
    return [msgspec.structs.replace(each, session=1) for each in found]


def send_frame(feed: Feed, found: Inventory, seq: int = 0) -> None:
    """Deliver a live frame with a row for each device of an inventory."""
    rows = filled(found, blocks(frozenset({Lane.FAST}), *Table), NOT_SUPPORTED)
    body = frames.encode(frames.build(found.session, seq, feed.wall, rows))
    feed.publish(found.node, Topic.FRAME, body)


def commands(feed: Feed) -> list[CommandKind]:
    """Return the kinds of commands that are sent to nodes within the next seconds."""
    asked = []
    for _ in range(3):
        asked += [each.command.kind for each in feed.ingest.drain_commands(feed.now)]
        feed.now += 1
    return asked


def with_room_for(tmp_path: Path, placed: Inventory, **more: int) -> Feed:
    """An aggregator in which one such inventory may be shown before a frame, and several are held."""
    size = len(messages.encode(placed)) - SCHEMA_BYTES
    return Feed(tmp_path / "data", budgets=IngestBudgets(newcomer_bytes=PLACED_SHARE * size, **more))


def test_five_hundred_nodes_in_one_second_are_all_shown_and_none_is_refused(tmp_path: Path) -> None:
    """With the default budgets. The memory of what waits is bounded by `newcomer_bytes`; each takes 7 kB of it."""
    feed, found = Feed(tmp_path / "data"), inventories(500)
    for each in found:
        feed.publish(each.node, Topic.STATUS, status(1, FrameSpan(1, 0, 0)))
        feed.inventory(each)
    shown = len(feed.fleet.nodes)
    assert 50 < shown < 500, "more than may be shown without a frame"
    feed.ingest.expire(feed.now)
    assert feed.stats.budget_used["newcomer_bytes"] < 500 * 9000 < feed.config.budgets.newcomer_bytes
    for each in found:
        send_frame(feed, each)
    feed.flush()
    assert {name: len(node.inventory.gpus) for name, node in feed.fleet.nodes.items()} == dict.fromkeys(
        (each.node for each in found), GPUS
    )
    assert all(node.online and node.seq == 0 for node in feed.fleet.nodes.values())
    assert feed.stats.dropped == {}
    assert commands(feed) == []
    feed.ingest.expire(feed.now)
    assert feed.stats.budget_used["newcomers"] == feed.stats.budget_used["newcomer_bytes"] == 0
    assert feed.commit() == 500
    feed.reopen()
    assert len(feed.fleet.nodes) == 500


def test_what_a_node_had_before_its_first_frame_is_requested_once_its_held_inventory_is_taken(tmp_path: Path) -> None:
    first, second = inventories(2)
    feed = with_room_for(tmp_path, first)
    feed.inventory(first)
    feed.publish(second.node, Topic.STATUS, status(1, FrameSpan(1, 0, 4)))
    feed.inventory(second)
    assert set(feed.fleet.nodes) == {first.node}
    send_frame(feed, second, 5)
    assert commands(feed) == [CommandKind.RESEND]
    assert feed.ingest.ledger.missing == 5
    assert feed.stats.dropped == {}
    assert feed.commit() == 1


def test_frames_of_a_new_session_are_kept_though_the_status_that_is_held_is_of_the_one_before(tmp_path: Path) -> None:
    """Frames that a status does not name are lost, were it compared before the frame is accounted for."""
    first, second = inventories(2)
    feed = with_room_for(tmp_path, first)
    feed.inventory(first)
    feed.publish(second.node, Topic.STATUS, status(1, FrameSpan(1, 0, 4)))
    feed.inventory(second)
    send_frame(feed, msgspec.structs.replace(second, session=2))
    assert feed.commit() == 1
    assert feed.stats.frames_lost == feed.stats.frames_lost_claimed == 0


def test_a_first_frame_is_stored_though_the_status_that_is_held_cant_be_true(tmp_path: Path) -> None:
    """The frame was accounted for already: nobody would have asked for it again."""
    first, second = inventories(2)
    feed = with_room_for(tmp_path, first)
    feed.inventory(first)
    feed.publish(second.node, Topic.STATUS, status(1, FrameSpan(1, 0, 10**9)))
    feed.inventory(second)
    send_frame(feed, second, 5)
    assert feed.stats.dropped == {"malformed": 1}
    assert feed.commit() == 1
    assert feed.fleet.nodes[second.node].seq == 5


def test_a_frame_that_came_before_the_inventory_was_held_is_stored_with_the_next(tmp_path: Path) -> None:
    first, second = inventories(2)
    feed = with_room_for(tmp_path, first)
    feed.inventory(first)
    send_frame(feed, second, 0)
    feed.inventory(second)
    send_frame(feed, second, 1)
    assert feed.commit() == 2
    assert feed.fleet.nodes[second.node].seq == 1
    assert feed.stats.dropped == {}


def test_without_a_frame_a_node_that_is_shown_stays_and_one_that_is_held_is_forgotten(tmp_path: Path) -> None:
    """The node comes back with its next frame, which requests the inventory again."""
    first, second = inventories(2)
    feed = with_room_for(tmp_path, first)
    feed.inventory(first)
    feed.inventory(second)
    feed.now += 61
    feed.ingest.expire(feed.now)
    assert set(feed.ingest.nodes) == set(feed.fleet.nodes) == {first.node}
    assert feed.stats.newcomers_expired == 1
    assert feed.stats.budget_used["newcomer_bytes"] == 0
    send_frame(feed, second)
    assert commands(feed) == [CommandKind.INVENTORY]
    feed.inventory(second)
    send_frame(feed, second, 1)
    assert feed.commit() == 2


def test_the_oldest_that_is_held_makes_room_and_its_node_is_asked_for_it_again(tmp_path: Path) -> None:
    found = inventories(80)
    feed = with_room_for(tmp_path, found[0])
    most = feed.config.budgets.newcomer_bytes
    for each in found:
        feed.inventory(each)
        feed.ingest.expire(feed.now)
        assert feed.stats.budget_used["newcomer_bytes"] <= most
    assert feed.stats.budget_used["newcomer_bytes"] > most * 0.9
    shown, first, last = found[0], found[1], found[-1]
    send_frame(feed, first)
    send_frame(feed, last)
    assert set(feed.fleet.nodes) == {shown.node, last.node}
    assert commands(feed) == [CommandKind.INVENTORY]
    feed.inventory(first)
    send_frame(feed, first, 1)
    assert set(feed.fleet.nodes) == {shown.node, first.node, last.node}
    assert feed.stats.dropped == {}
    assert feed.commit() == 3


@pytest.mark.parametrize("gpus", [2, 3])
@pytest.mark.parametrize("frame_of", [2, 3])
def test_the_newest_inventory_of_a_node_counts_whether_it_was_held_or_shown(
    tmp_path: Path, gpus: int, frame_of: int
) -> None:
    """The first is shown, the second held; the first frame may be of either."""
    shown = inventory("n", 2)
    held = msgspec.structs.replace(inventory("n", gpus, version=1), host={"kernel": "new"})
    feed = with_room_for(tmp_path, shown)
    feed.inventory(shown)
    feed.inventory(held)
    assert feed.fleet.nodes["n"].inventory == shown
    feed.send("n", 0, gpus=frame_of if gpus == 3 else 2)
    assert feed.fleet.nodes["n"].inventory == held
    feed.send("n", 1, gpus=gpus)
    feed.flush()
    assert feed.fleet.nodes["n"].seq == 1
    assert feed.commit() == 2
    assert feed.stats.dropped == {}
    assert feed.store.inventories() == [held]


def test_an_inventory_that_is_held_gives_way_to_a_newer_one_that_is_shown(tmp_path: Path) -> None:
    other, older = inventory("other", 2), inventory("n", 2)
    newer = msgspec.structs.replace(older, version=1)
    feed = with_room_for(tmp_path, other)
    feed.inventory(other)
    feed.inventory(older)
    assert set(feed.fleet.nodes) == {"other"}
    feed.send("other", 0)
    feed.inventory(newer)
    assert feed.fleet.nodes["n"].inventory == newer
    feed.send("n", 0)
    assert feed.fleet.nodes["n"].inventory == newer
    feed.ingest.expire(feed.now)
    assert feed.stats.budget_used["newcomer_bytes"] == 0


@pytest.mark.parametrize("newcomers", [1, 500])
def test_a_frame_that_is_refused_brings_no_held_inventory_into_the_fleet(tmp_path: Path, newcomers: int) -> None:
    """Else frames that no collector can send would fill the memory with inventories, or with numbers of devices."""
    other = inventory("other", 2)
    feed = with_room_for(tmp_path, other, newcomers=newcomers)
    feed.inventory(other)
    for number in range(20):
        feed.inventory(inventory(f"n{number}", 2))
        feed.send(f"n{number}", round(1001 * DAY))
    assert set(feed.fleet.nodes) == {"other"}
    assert feed.stats.dropped == {"budget": 20}
    assert len(feed.ingest.drain_batch(feed.wall).devices) == len(other.gpus) + 1, "and the node"
    feed.now += 61
    feed.ingest.expire(feed.now)
    assert set(feed.ingest.nodes) == {"other"}
    assert feed.stats.budget_used["newcomer_bytes"] == 0


def test_a_held_inventory_with_a_gpu_that_became_anothers_is_refused(tmp_path: Path) -> None:
    """Who sent a frame first has it."""
    other = inventory("other", 2)
    feed = with_room_for(tmp_path, other)
    feed.inventory(other)
    gpus = (Gpu(uuid="GPU-moved", index=0, name="NVIDIA Test 80GB"),)
    for name in ("a", "b"):
        feed.inventory(msgspec.structs.replace(inventory(name, 1), gpus=gpus))
    feed.send("b", 0, gpus=1)
    feed.send("a", 0, gpus=1)
    assert set(feed.fleet.nodes) == {"other", "b"}
    assert feed.stats.dropped == {"foreign": 1}
