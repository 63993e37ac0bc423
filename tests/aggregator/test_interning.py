"""Inventories share equal parts, and lags are histograms."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from aggregator.http.metrics import self_families
from aggregator.ingest.router import Interner
from aggregator.stats import add_lags
from api.stats import LAG_BOUNDS, LagHistogram, Stats
from collector.simulated import scenario
from collector.simulated.cluster import cluster as simulated_cluster
from collector.simulated.inventory import inventory as simulated_inventory
from telemetry.devices import Gpu
from telemetry.wire import inventory as messages
from telemetry.wire.exposition import render
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import SCHEMA

FLEET = simulated_cluster(scenario("two-dgx-h100"))


def again(inventory: Inventory) -> Inventory:
    """Return an inventory as it comes from the bus: all parts its own."""
    return messages.decode(messages.encode(inventory), Inventory)


def decoded(node: str, gap: str) -> Inventory:
    """An inventory as it comes from the bus: all parts its own."""
    gpus = tuple(
        Gpu(uuid=f"{node}-{n}", index=n, name="H100", capabilities={"gpu_fan_speed_ratio": gap}) for n in range(2)
    )
    return messages.decode(messages.encode(Inventory(node=node, gpus=gpus)), Inventory)


def test_equal_parts_are_one_object_and_nothing_is_changed() -> None:
    """What differs stays apart."""
    shared = Interner()
    sent = [decoded("a", "not_supported"), decoded("b", "not_supported"), decoded("c", "error")]
    first, second, third = map(shared.inventory, sent)
    assert [first, second, third] == sent
    assert first.schema is second.schema is SCHEMA
    assert first.gpus[0].capabilities is second.gpus[1].capabilities
    assert first.gpus[0].capabilities is not third.gpus[0].capabilities
    assert msgspec.json.encode(third) == msgspec.json.encode(sent[2])


def test_texts_that_devices_have_in_common_are_one_object() -> None:
    """Inventories stay equal to what was sent."""
    sent = [simulated_inventory(FLEET, FLEET.node(name)) for name in FLEET.scenario.nodes]
    shared = Interner()
    first, second = (shared.inventory(again(each)) for each in sent)
    assert [first, second] == sent
    pairs = [*zip(first.gpus, second.gpus, strict=True), *zip(first.ports, second.ports, strict=True),
             *zip(first.links, second.links, strict=True), (first, second)]  # fmt: skip
    apart = {
        name
        for one, other in pairs
        for name, text in msgspec.structs.asdict(one).items()
        if isinstance(text, str) and text and text == getattr(other, name) and text is not getattr(other, name)
    }
    assert not apart
    facts = first.host.keys() & second.host.keys()
    assert all(first.host[name] is second.host[name] for name in facts if first.host[name] == second.host[name])


def test_lags_fall_into_their_buckets() -> None:
    """A clock that is ahead, one exactly on a bound, one beyond the last."""
    spread = LagHistogram()
    add_lags(spread, np.array([-1.0, LAG_BOUNDS[0], 0.0011, 1000.0]))
    add_lags(spread, np.array([]))
    assert (spread.counts[0], spread.counts[1], spread.counts[-1]) == (2, 1, 1)
    assert sum(spread.counts) == 4
    assert spread.highest == 1000.0


def test_the_page_has_cumulative_buckets() -> None:
    """As Prometheus reads them: the last one is all."""
    stats = Stats()
    add_lags(stats.shown, np.array([0.0005, 0.2, 0.3, 500.0]))
    lines = render(self_families(stats, {}, 1.0)).decode().splitlines()
    name = "kilowatch_aggregator_shown_lag_seconds"
    buckets = [line for line in lines if line.startswith(f"{name}_bucket")]
    counts = [float(line.rsplit(" ", 1)[1]) for line in buckets]
    assert len(buckets) == len(LAG_BOUNDS) + 1
    assert (counts[0], counts[-2], counts[-1]) == (1, 3, 4)
    assert counts == sorted(counts)
    assert buckets[-1].startswith(f'{name}_bucket{{le="+Inf"}}')
    assert f"{name}_count 4" in lines
    total = next(line for line in lines if line.startswith(f"{name}_sum"))
    assert float(total.split()[1]) == pytest.approx(500.5005)
