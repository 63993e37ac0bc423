"""Scenarios: names, sizes, inventories, and what is said about nonsense."""

from __future__ import annotations

import pytest

from collector.simulated import KINDS, SimulatedSource, scenario, value
from telemetry.errors import ConfigError
from telemetry.wire.inventory import Inventory, decode, encode


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"name": "two-dgx-h200"}, "Did you mean 'two-dgx-h100'?"),
        ({"name": "xyz"}, "Known are desktop-4x5090, two-dgx-h100, fleet."),
        ({"name": "fleet", "nodes": 0}, "0 nodes are not possible. Use 1 to 100000."),
        ({"name": "fleet", "gpus": 73}, "73 gpus are not possible. Use 1 to 72."),
        ({"name": "fleet", "interval": 0}, "an interval of 0 s is not possible"),
        ({"name": "fleet", "faults": "xid79@node-99/1+3s"}, "there is no node 'node-99'"),
        ({"name": "two-dgx-h100", "faults": "hung@dgx-1/1+3s"}, "Did you mean 'dgx-01'?"),
        ({"name": "two-dgx-h100", "faults": "hung@dgx-01/8+3s"}, "They are 0 to 7."),
        ({"name": "two-dgx-h100", "faults": "hung@dgx-01+3s"}, "it needs a GPU"),
        ({"name": "two-dgx-h100", "faults": "power_brake@dgx-01/1+3s"}, "it hits whole nodes"),
        ({"name": "two-dgx-h100", "faults": "hung@dgx-01/1+3s:0s"}, "it lasts no time"),
        ({"name": "two-dgx-h100", "faults": "xid97@dgx-01/1+3s"}, "Did you mean 'xid79'?"),
        ({"name": "two-dgx-h100", "faults": "xid79@dgx-01/1"}, "'xid79@dgx-01/1' is no fault"),
    ],
)
def test_nonsense_is_refused_with_a_cure(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        scenario(**options)  # type: ignore[arg-type]
    assert message in str(refused.value)


def test_a_node_that_is_not_there_is_refused() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'dgx-02'"):
        SimulatedSource(scenario("two-dgx-h100"), "dgx-2")


@pytest.mark.parametrize(
    ("name", "nodes", "gpus", "links", "pools"),
    [
        ("desktop-4x5090", ("desktop",), 4, 0, 4),
        ("two-dgx-h100", ("dgx-01", "dgx-02"), 8, 144, 1),
        ("fleet", tuple(f"node-{number:05d}" for number in range(1, 17)), 8, 0, 1),
    ],
)
def test_what_nodes_are_made_of(name: str, nodes: tuple[str, ...], gpus: int, links: int, pools: int) -> None:
    scene = scenario(name)
    assert scene.nodes == nodes
    seen: set[str] = set()
    for node in nodes:
        stock = SimulatedSource(scene, node).inventory
        assert stock.source == f"simulated:{name}"
        assert (len(stock.gpus), len(stock.links), len(stock.pools)) == (gpus, links, pools)
        assert ("rack" in stock.host) == (name != "desktop-4x5090")
        assert stock.driver_state == "up"
        assert len({gpu.pci for gpu in stock.gpus}) == gpus
        assert all(gpu.uuid.startswith("GPU-") and len(gpu.uuid) == 40 for gpu in stock.gpus)
        seen |= {gpu.uuid for gpu in stock.gpus}
        assert decode(encode(stock), Inventory) == stock
    assert len(seen) == gpus * len(nodes)


def test_uuids_depend_on_the_seed_alone() -> None:
    def uuids(seed: int, nodes: int) -> list[str]:
        stock = SimulatedSource(scenario("fleet", nodes, seed=seed), "node-00001").inventory
        return [gpu.uuid for gpu in stock.gpus]

    assert uuids(1, 4) == uuids(1, 40)
    assert not {*uuids(1, 4)} & {*uuids(2, 4)}


def test_a_fleet_is_of_any_size() -> None:
    scene = scenario("fleet", nodes=3, gpus=20, links=True)
    stock = SimulatedSource(scene, "node-00003").inventory
    assert len(stock.gpus) == len({gpu.pci for gpu in stock.gpus}) == 20
    assert len(stock.links) == 20 * 18


def test_a_longer_interval_samples_the_same_world() -> None:
    """Tick numbers count intervals, the simulation counts seconds."""
    fine = scenario("two-dgx-h100", start_tick=1_000_000)
    coarse = scenario("two-dgx-h100", start_tick=100_000, interval=10.0)
    for metric in ("gpu_power_watts", "gpu_energy_joules_total", "gpu_temperature_celsius"):
        assert value(fine, "dgx-01", 1, metric, 1_000_070) == value(coarse, "dgx-01", 1, metric, 100_007)


@pytest.mark.parametrize("name", sorted(KINDS))
@pytest.mark.parametrize("gpus", [1, 2])
def test_a_smaller_cluster_has_no_faults_of_what_was_left_out(name: str, gpus: int) -> None:
    scene = scenario(name, nodes=1, gpus=gpus)
    assert all(fault.gpu is None or fault.gpu < gpus for fault in scene.faults)
    assert {fault.node for fault in scene.faults} <= {*scene.nodes}


@pytest.mark.parametrize("name", ["desktop-4x5090", "two-dgx-h100"])
def test_the_small_clusters_start_without_faults(name: str) -> None:
    faults = scenario(name).faults
    assert len(faults) >= 3
    assert min(fault.start for fault in faults) >= 180


def test_a_fleets_own_script_has_every_kind() -> None:
    faults = scenario("fleet", nodes=200).faults
    assert len({fault.kind for fault in faults}) == 9
    assert len([fault for fault in faults if fault.kind == "feed_loss"]) == 4
