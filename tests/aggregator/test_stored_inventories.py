"""Inventories in the store: shared parts once, all of them back, and never too many in a commit."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from aggregator.config import StoreConfig
from aggregator.ingest import router
from aggregator.store import inventories
from aggregator.store.duck import texts
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.protocol import Batch, ContentError
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA
from tests.aggregator.feed import ARRIVAL, Feed
from tests.aggregator.node import inventory

MIB = 1024 * 1024
NEVER = {name: "not_supported" for block in SCHEMA.blocks for name in block.names}
"""What a GPU can't read: some kilobytes, as those of a real one."""


def node(name: str, never: dict[str, str] = NEVER, version: int = 0) -> Inventory:
    """An inventory of two GPUs that can't read something."""
    found = inventory(name, 2, version=version)
    gpus = tuple(msgspec.structs.replace(gpu, capabilities=never) for gpu in found.gpus)
    return msgspec.structs.replace(found, gpus=gpus)


def write(store: EmbeddedStore, *found: Inventory) -> None:
    store.write(Batch(inventories=list(found), at=ARRIVAL))


def parts(store: EmbeddedStore) -> list[str]:
    return [name for (name,) in store._engine.rows("select id from inventory_parts")]


@pytest.fixture
def store(tmp_path: Path) -> EmbeddedStore:
    """An empty store."""
    return EmbeddedStore(StoreConfig(), tmp_path)


def test_every_inventory_comes_back_and_what_nodes_share_is_stored_once(store: EmbeddedStore, tmp_path: Path) -> None:
    found = [node(f"n{number:03d}") for number in range(100)]
    write(store, *found)
    assert store.inventories() == found
    assert len(parts(store)) == 2  # a schema, and what none of the GPUs can read
    [(longest,)] = store._engine.rows("select max(length(body)) from inventories")
    assert longest < len(msgspec.json.encode(NEVER))
    store.close()
    again = EmbeddedStore(StoreConfig(), tmp_path)
    assert again.inventories() == found
    write(again, node("n000", version=1))
    assert again.inventories() == [node("n000", version=1), *found[1:]]
    assert len(parts(again)) == 2


def test_the_newest_of_two_in_a_batch_is_stored(store: EmbeddedStore) -> None:
    write(store, node("a"), node("a", {}, version=1))
    assert store.inventories() == [node("a", {}, version=1)]


def test_a_node_without_gpus_comes_back(store: EmbeddedStore) -> None:
    write(store, inventory("a", 0))
    assert store.inventories() == [inventory("a", 0)]


def test_an_inventory_of_an_older_release_is_read(store: EmbeddedStore) -> None:
    write(store, node("new"))
    whole = msgspec.json.encode(node("old")).decode()
    store._engine.run("insert into inventories(node, body) values ('old', ?)", whole)
    assert store.inventories() == [node("new"), node("old")]


def test_a_part_that_is_missing_costs_only_the_nodes_that_have_it(store: EmbeddedStore) -> None:
    write(store, node("a"))
    write(store, node("b", {"gpu_fan_speed_ratio": "not_supported"}))
    store._engine.run("delete from inventory_parts where body like '%fan%' and length(body) < 100")
    assert store.inventories() == [node("a")]


def test_what_exceeds_the_shared_parts_is_stored_whole(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inventories, "MOST_PARTS", 3)
    found = [node(f"n{number}", {f"metric_{number}": "error"}) for number in range(5)]
    write(store, *found)
    write(store, node("n5"), node("n6", {"metric_0": "error"}))
    assert len(parts(store)) == 3
    assert store.inventories() == [*found, node("n5"), node("n6", {"metric_0": "error"})]


def test_parts_that_no_inventory_has_are_removed_at_the_next_start(store: EmbeddedStore, tmp_path: Path) -> None:
    write(store, node("a"))
    write(store, node("a", {}, version=1))
    assert len(parts(store)) == 3
    store.close()
    again = EmbeddedStore(StoreConfig(), tmp_path)
    assert len(parts(again)) == 2
    assert again.inventories() == [node("a", {}, version=1)]


def test_a_batch_that_fails_leaves_no_part_behind_and_takes_none_for_stored(store: EmbeddedStore) -> None:
    broken = Batch(inventories=[node("a")], means=[object()], at=ARRIVAL)  # type: ignore[list-item]
    with pytest.raises(AttributeError):  # at the means, behind the inventories
        store.write(broken)
    assert parts(store) == []
    write(store, node("a"))
    assert store.inventories() == [node("a")]


def test_a_whole_fleet_that_starts_fits_into_little_memory(tmp_path: Path) -> None:
    store = EmbeddedStore(StoreConfig(memory_limit_bytes=32 * MIB), tmp_path)
    found = [node(f"n{number:04d}") for number in range(2000)]
    assert sum(len(msgspec.json.encode(each)) for each in found) > 64 * MIB
    write(store, *found)
    assert len(store.inventories()) == 2000


def test_a_batch_has_so_many_inventories_and_the_next_ones_the_rest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(router, "INVENTORIES_AT_ONCE", 3)
    feed = Feed(tmp_path / "data")
    for number in range(7):
        feed.hello(f"n{number}")
        feed.send(f"n{number}", 0)
    counts = []
    feed.flush()
    while batch := feed.ingest.drain_batch(feed.wall):
        counts.append(len(batch.inventories))
        feed.store.write(batch)
    assert counts == [3, 3, 1]
    assert [each.node for each in feed.store.inventories()] == [f"n{n}" for n in range(7)]


def test_what_the_engine_can_not_hold_is_named_though_its_transaction_is_aborted(store: EmbeddedStore) -> None:
    with pytest.raises(ContentError, match="twelve"), store._engine.transaction():
        store._engine.insert("runs", {"id": texts(["twelve"])})
    write(store, node("a"))
    assert store.inventories() == [node("a")]
