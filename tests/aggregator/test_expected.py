"""What nodes should be made of: declared states, and deviations that become alerts through the aggregator."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aggregator.register.drift import compared, drift_of
from aggregator.register.drift_tracker import DriftTracker
from aggregator.register.drift_watch import DriftConfig, DriftWatch
from aggregator.register.expected import ExpectedState, check_expected, expected_of, parse_size, parse_speed, shortfalls
from api.alerts import AlertState
from api.drift import DriftReply
from collector.config import SERVICES
from collector.host.configuration import configuration
from kilowatch import settings
from telemetry.errors import ConfigError
from telemetry.fleet import Fleet
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, Inventory, NodeState
from telemetry.wire.schema import NODE_FAST, PORT_SLOW, SCHEMA
from telemetry.wire.topics import Topic, topic
from tests.aggregator.test_drift import PLANTED, REPLACE, Change, dgx, gpu, host, node, port
from tests.aggregator.test_service import config, running
from tests.brokers import Broker, plain_client
from tests.kit.waiting import until

SECOND = 10**9
EVERYTHING: dict[str, Any] = {
    "match": {"role": "gpu", "product": "DGXH100*", "label": {"rack": "r1"}},
    "gpus": 8, "gpu_model": "H100 80GB", "nvlinks": 18, "memory": "2 TiB +-3%", "cpus": 224, "nvme": 8,
    "ports": [{"count": 8, "layer": "InfiniBand", "model": "MT4129*", "speed": "400 Gb/s"}],
    "mounts": ["/home", "/scratch"], "services": ["slurmd"], "driver": ["580.126.*", "590.*"],
    "vbios": "96.00.61.*", "nic_firmware": {"MT4129*": ["28.41.1000"]}, "bios": "1.6.*", "kernel": "6.8.*",
    "kernel_args": ["iommu=pt"], "pcie_width": 16, "ecc": True, "mig": False, "persistence": True,
}  # fmt: skip


def entry(**keys: Any) -> ExpectedState:
    return msgspec.convert(keys, ExpectedState)


def whole(number: int = 1) -> Inventory:
    """A node that is all that `EVERYTHING` declares."""
    its = dgx(number)
    gpus = tuple(REPLACE(each, pcie_width=16, ecc=True, persistence=True) for each in its.gpus)
    facts = {"memory_bytes": str(2 * 2**40), "memory_blocks": "1", "nvme_drives": "10", "kernel_args": "iommu=pt pci=x",
             "mounts": "3", "mount:/": "ext4", "mount:/home": "nfs4", "mount:/scratch": "lustre", "service:slurmd": "running"}  # fmt: skip
    return REPLACE(its, role="gpu", gpus=gpus, host={**its.host, **facts})


def without(*names: str) -> Change:
    """A node that does not have some facts of its host."""
    return lambda its: REPLACE(its, host={k: v for k, v in its.host.items() if k not in names})


SPEEDS = {f"port:dgx-001:{index}": 50e9 for index in range(8)}


def missed(its: Inventory, speeds: Mapping[str, float] = SPEEDS) -> list[tuple[str, str, str]]:
    return [tuple(each) for each in shortfalls(its, entry(**EVERYTHING), speeds)]  # type: ignore[misc]


def test_a_node_as_declared_has_no_shortfall() -> None:
    assert missed(whole()) == []


@pytest.mark.parametrize(
    ("change", "fact", "has"),
    [
        (gpu(7, present=False), "gpus", "7"),
        (gpu(0, name="NVIDIA H100 PCIe"), "gpu model", "7 x NVIDIA H100 80GB HBM3, 1 x NVIDIA H100 PCIe"),
        (gpu(3, vbios="96.00.5F.00.03"), "gpu vbios", "7 x 96.00.61.00.01, 1 x 96.00.5F.00.03"),
        (gpu(3, pcie_width=8), "gpu pcie width", "7 x 16, 1 x 8"),
        (gpu(3, ecc=False), "gpu ecc", "7 x on, 1 x off"),
        (gpu(3, mig=True), "gpu mig", "7 x off, 1 x on"),
        (gpu(3, persistence=False), "gpu persistence", "7 x on, 1 x off"),
        (lambda its: REPLACE(its, links=its.links[:-1]), "nvlinks", "7 x 18, 1 x 17"),
        (lambda its: REPLACE(its, ports=its.ports[1:]), "ports InfiniBand MT4129*", "7"),
        (port(2, present=False), "ports InfiniBand MT4129*", "7"),
        (port(2, firmware="28.39.1002"), "port firmware MT4129*", "7 x 28.41.1000, 1 x 28.39.1002"),
        (node(driver_version="575.57.08"), "driver", "575.57.08"),
        (host(memory_bytes=str(1984 * 2**30)), "memory", "1984 GiB"),
        (host(cpus="112"), "cpus", "112"),
        (host(nvme_drives="7"), "nvme drives", "7"),
        (host(kernel_args="pci=x"), "kernel args", "without iommu=pt"),
        (host(bios="1.5.2"), "bios", "1.5.2"),
        (host(kernel="6.5.1"), "kernel", "6.5.1"),
        (lambda its: without("mount:/scratch")(host(mounts="2")(its)), "mount /scratch", "not mounted"),
        (host(**{"service:slurmd": "not running"}), "service slurmd", "not running"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fact_that_falls_short_is_named_alone(change: Change, fact: str, has: str) -> None:
    assert [(each[0], each[1]) for each in missed(change(whole()))] == [(fact, has)]


def test_a_slow_port_is_named_and_one_that_is_down_is_not_known() -> None:
    slow = {**SPEEDS, "port:dgx-001:3": 25e9}
    assert missed(whole(), slow) == [("ports InfiniBand MT4129* speed", "1 x 200 Gb/s (mlx5_3/1)", "400 Gb/s")]
    assert missed(whole(), {}) == []


@pytest.mark.parametrize(
    "change",
    [
        without("memory_bytes", "memory_blocks"), without("cpus"), without("nvme_drives"), without("kernel_args"),
        without("mounts", "mount:/scratch"), host(mounts="200"), without("service:slurmd"), without("bios", "kernel"),
        node(driver_version=None), gpu(2, ecc=None, vbios=None, pcie_width=None, persistence=None),
        node(gpus=(), links=(), driver_state="missing"),
    ],
)  # fmt: skip
def test_what_a_node_does_not_say_is_no_shortfall(change: Change) -> None:
    """Nor are the GPUs of a node whose driver is gone: that rings as what it is."""
    assert missed(change(whole())) == []


def test_a_driver_that_is_up_and_lists_no_gpu_has_eight_too_few() -> None:
    empty = node(gpus=(), links=(), driver_state="up")(whole())
    assert [each[:2] for each in missed(empty)] == [("gpus", "0")]


def test_the_first_entry_that_matches_counts() -> None:
    entries = [
        entry(match={"node": "dgx-00?", "label": {"pool": "test"}}, gpus=7),
        entry(match={"role": "storage"}, nvme=12),
        entry(match={"product": "DGX*"}, gpus=8),
    ]
    its = whole()
    assert expected_of(its, {"pool": "test"}, entries) is entries[0]
    assert expected_of(its, {}, entries) is entries[2]
    assert expected_of(REPLACE(its, role="storage"), {}, entries) is entries[1]
    assert expected_of(REPLACE(its, host={}), {}, entries) is None


@pytest.mark.parametrize(
    ("entries", "where", "problem"),
    [
        ([{"gpus": -1}], "expected[0].gpus", "out of range"),
        ([{"memory": "2 TB of it"}], "expected[0].memory", "no size"),
        ([{"memory": "2 TiB +-100%"}], "expected[0].memory", "no size"),
        ([{"ports": [{"count": 8, "speed": "fast"}]}], "expected[0].ports[0].speed", "no speed"),
        ([{"ports": [{"count": 5000}]}], "expected[0].ports[0].count", "out of range"),
        ([{"mounts": ["scratch"]}], "expected[0].mounts", "no path"),
        ([{"services": ["slurmd.service"]}], "expected[0].services", "Write slurmd."),
        ([{"services": [""]}], "expected[0].services", "empty"),
        ([{"kernel_args": ["luks.key=1"]}], "expected[0].kernel_args", "do not report"),
        ([{"match": {"node": "a"}}], "expected[0]", "declares nothing"),
        ([{"gpus": 8}, {"match": {"role": "head"}, "cpus": 8}], "expected[1]", "move the narrower one up"),
        ([{"match": {"node": "a"}, "gpus": 8}, {"match": {"node": "a"}, "gpus": 4}], "expected[1]", "an entry above"),
    ],
)
def test_an_entry_that_can_not_work_is_refused_with_its_place(
    entries: list[dict[str, Any]], where: str, problem: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        check_expected([entry(**each) for each in entries])
    assert str(caught.value).startswith(f"{where}: ")
    assert problem in str(caught.value)


def test_settings_name_the_key_that_does_not_exist(tmp_path: Path) -> None:
    path = tmp_path / "kilowatch.toml"
    path.write_text('[[expected]]\nmatch = { role = "gpu" }\ngpuz = 8\n')
    with pytest.raises(ConfigError, match=r"expected\[0\]\.gpuz: there is no such key.*gpus"):
        settings.load(path)
    path.write_text('[[expected]]\nmatch = { role = "gpus" }\ngpus = 8\n')
    with pytest.raises(ConfigError, match="expected"):
        settings.load(path)
    path.write_text('[[expected]]\nmatch = { role = "gpu" }\ngpus = 8\ndriver = "580.*"\n[drift]\nhold_seconds = 30\n')
    found = settings.load(path, {}).aggregator
    assert (found.expected[0].gpus, found.expected[0].driver) == (8, "580.*")
    assert found.drift.hold_seconds == 30
    path.write_text("[drift]\nhold_seconds = -1\n")
    with pytest.raises(ConfigError, match=r"drift\.hold_seconds"):
        settings.load(path, {})


@pytest.mark.parametrize(
    ("text", "low", "high"),
    [("2 TiB +-3%", 0.97 * 2**41, 1.03 * 2**41), ("512GiB", 0.99 * 2**39, 1.01 * 2**39), ("1 TB ±0 %", 1e12, 1e12)],
)
def test_sizes_are_read(text: str, low: float, high: float) -> None:
    found = parse_size(text)
    assert found is not None
    assert found == pytest.approx((low, high))
    assert parse_speed("400Gb/s") == 50e9


def test_what_is_declared_is_not_compared_with_others_and_any_not_at_all() -> None:
    declared = entry(driver="any", bios=["1.6.7", "1.5.*"], gpus=8)
    changes = {3: PLANTED[3][0], 301: PLANTED[301][0], 99: PLANTED[99][0], 300: PLANTED[300][0]}
    nodes = [compared(changes.get(n, lambda its: its)(dgx(n)), declared) for n in (*range(20), *changes)]
    (group,) = drift_of(nodes, 0).groups
    found = {(one.node, one.fact, one.declared) for one in group.deviations}
    assert found == {("dgx-099", "gpus", True), ("dgx-300", "kernel", False)}
    assert group.declared == len(nodes)


def test_one_node_alone_is_compared_with_what_is_declared() -> None:
    (group,) = drift_of([compared(dgx(1), entry(gpus=4))], 0).groups
    assert (group.evaluated, [(one.has, one.most_have) for one in group.deviations]) == (False, [("8", "4")])


# -- From a deviation to an alert ----------------------------------------------------------------


def reply(changes: dict[int, Change], nodes: int = 20) -> DriftReply:
    return drift_of((compared(changes.get(n, lambda its: its)(dgx(n))) for n in range(nodes)), 0)


def test_a_deviation_is_told_after_its_hold_and_a_version_after_the_roll_out() -> None:
    watch, limits = DriftWatch(), DriftConfig(hold_seconds=600, rollout_seconds=3600)
    both = reply({3: PLANTED[3][0], 7: gpu(7, present=False)})
    assert watch.update(both, (), limits, 0) == {}
    assert watch.update(both, (), limits, 599 * SECOND) == {}
    assert watch.update(both, (), limits, 600 * SECOND) == {"dgx-007": "gpus 7 (19 of 20 have 8)"}
    assert set(watch.update(both, (), limits, 3600 * SECOND)) == {"dgx-003", "dgx-007"}
    assert watch.update(reply({}), (), limits, 3601 * SECOND) == {}
    assert watch.update(both, (), limits, 3602 * SECOND) == {}, "it begins anew"


def test_a_node_that_is_silent_neither_begins_nor_ends() -> None:
    watch, limits = DriftWatch(), DriftConfig(hold_seconds=60, rollout_seconds=60)
    one = reply({7: gpu(7, present=False)})
    watch.update(one, (), limits, 0)
    told = watch.update(one, (), limits, 60 * SECOND)
    assert set(told) == {"dgx-007"}
    assert watch.update(reply({}), ("dgx-007",), limits, 90 * SECOND) == told
    new = reply({7: gpu(7, present=False), 8: gpu(7, present=False)})
    assert watch.update(new, ("dgx-007", "dgx-008"), limits, 500 * SECOND) == told
    assert watch.update(new, ("dgx-007", "dgx-008"), limits, 900 * SECOND) == told


def test_a_kind_that_stays_mixed_is_told_once_after_a_week() -> None:
    watch, day = DriftWatch(), 86_400 * SECOND
    half = reply(dict.fromkeys(range(10), PLANTED[3][0]))
    assert watch.update(half, (), DriftConfig(), 0) == {}
    assert watch.update(half, (), DriftConfig(), 6 * day) == {}
    (told,) = watch.update(half, (), DriftConfig(), 7 * day).items()
    assert told[0] == "kind/DGXH100, NVIDIA H100 80GB HBM3"
    assert told[1].startswith("driver is mixed: 10 x ")
    assert watch.update(half, (), DriftConfig(alert=False), 8 * day) == {}


async def test_since_when_a_node_differs_outlives_a_restart(tmp_path: Path) -> None:
    fleet, path = Fleet(), tmp_path / "drift.json"
    for number in range(6):
        fleet.place(gpu(7, present=False)(dgx(number)) if number == 2 else dgx(number)).online = True
    limits = DriftConfig(hold_seconds=60)
    first = DriftTracker((), limits, path)
    first.load()
    await first.update(fleet, {}, 0.0, 1000 * SECOND)
    assert [part.problems for part in first.parts()] == []
    assert path.stat().st_mode & 0o777 == 0o600
    again = DriftTracker((), limits, path)
    again.load()
    await again.update(fleet, {}, 0.0, 1060 * SECOND)
    (part,) = again.parts()
    assert (part.key, part.facts["node"]) == ("drift/dgx-002", "dgx-002")
    assert part.problems == {"node_differs": "gpus 7 (5 of 6 have 8)"}
    again.configure([entry(gpus=7)], limits)
    await again.update(fleet, {}, 0.0, 1061 * SECOND)
    assert again.parts()[0].problems == {}, "the declaration is another one now"
    path.write_text("[")
    again.load()
    fleet.remove("dgx-002")
    await again.update(fleet, {}, 0.0, 1062 * SECOND)
    assert again.parts() == []


Labels = Mapping[str, Mapping[str, str]]
RACKS: Labels = {"dgx-001": {"rack": "r1"}}


async def test_nodes_are_compared_again_only_when_something_has_changed() -> None:
    fleet, tracker = Fleet(), DriftTracker()
    for number in range(6):
        fleet.place(dgx(number))
    speeds = fleet.matrices[PORT_SLOW].columns["port_speed_bytes_per_second"]

    async def compared_again(
        change: Callable[[], object] = dict, before: Labels = RACKS, after: Labels = RACKS
    ) -> bool:
        first = await tracker.compare(fleet, before, 0.0, 1)
        change()
        then = await tracker.compare(fleet, after, 0.0, 2)
        assert (first.at, then.at) == (1, 2)
        return then.groups is not first.groups

    def slower() -> None:
        fleet.matrices[PORT_SLOW].seen[:] = 0.0
        fleet.matrices[PORT_SLOW].gauges[:, speeds] = 25e9

    assert not await compared_again()
    assert not await compared_again(after={"dgx-001": {"rack": "r1"}})
    assert await compared_again(after={"dgx-001": {"rack": "r2"}})
    assert not await compared_again(slower), "nothing is declared of ports"
    assert await compared_again(lambda: fleet.place(gpu(7, present=False)(dgx(2))))
    assert await compared_again(lambda: tracker.configure([entry(gpus=7)], DriftConfig()))
    fleet.matrices[PORT_SLOW].seen[:] = -1e9
    assert await compared_again(slower), "a declared port may be slower now"
    assert await compared_again(lambda: fleet.remove("dgx-003"))


def frame_of(session: int) -> bytes:
    """A frame with the node's own readings alone."""
    rows = {NODE_FAST: [[1.0] * len(SCHEMA.blocks[NODE_FAST].names)]}
    return frames.encode(frames.build(session, 0, time.time_ns(), rows, ()))


@pytest.mark.systems
async def test_twelve_planted_deviations_of_500_nodes_are_twelve_alerts_and_no_other(
    broker: Broker, tmp_path: Path
) -> None:
    """Through a real broker and the aggregator to its alerts; a reload changes what is declared."""
    wanted = entry(match={"product": "DGX*"}, gpus=8)
    limits = DriftConfig(hold_seconds=1, rollout_seconds=1)
    its = msgspec.structs.replace(config(broker.config, tmp_path), expected=(wanted,), drift=limits)
    reread = [its]

    async def publish(client: Any, inventory: Inventory) -> None:
        its = msgspec.structs.replace(inventory, session=7)
        status = CollectorStatus(state=NodeState.ONLINE, session=7, interval=60.0)
        for kind, body in (
            (Topic.STATUS, messages.encode(status)),
            (Topic.INVENTORY, messages.encode(its)),
            (Topic.FRAME, frame_of(7)),
        ):
            await client.publish(topic("default", inventory.node, kind), body)

    async with running(its) as aggregator, plain_client(broker.config) as client:
        aggregator._reread = lambda: reread[0]
        await until(lambda: aggregator.stats.bus_connected)
        for number in range(500):
            made = dgx(number, links=1)
            await publish(client, PLANTED[number][0](made) if number in PLANTED else made)
        await until(lambda: len(aggregator.fleet.nodes) == 500)

        def firing() -> dict[str, str]:
            return {
                alert.node: alert.summary
                for alert in aggregator.alerts()
                if alert.rule == "node_differs" and alert.state is AlertState.FIRING
            }

        planted = {f"dgx-{number:03}": fact for number, (_, fact, _) in PLANTED.items()}
        await until(lambda: len(firing()) >= len(planted), seconds=120)
        found = firing()
        assert found.keys() == planted.keys()
        for name, fact in planted.items():
            assert f"node {name} differs from what it should be: {fact} " in found[name]
        assert "gpus 7 (declared: 8)" in found["dgx-099"]
        turns = aggregator.stats.rule_period.count
        await until(lambda: aggregator.stats.rule_period.count > turns + 3)
        assert firing().keys() == planted.keys()
        # SIGHUP: from now on dgx-099 is as declared.
        reread[0] = msgspec.structs.replace(its, expected=(entry(match={"node": "dgx-099"}, gpus=7), wanted))
        aggregator.reload()
        await until(lambda: not _problem(aggregator, "dgx-099"))
        assert _problem(aggregator, "dgx-003")


def _problem(aggregator: Any, name: str) -> object:
    return next((p.problems for p in aggregator.drift.parts() if p.key == f"drift/{name}"), {})


def test_a_real_machine_reports_facts_that_are_compared() -> None:
    """This one: nothing in them is longer than the border keeps, and JSON."""
    found = configuration(services=SERVICES)
    assert found["memory_bytes"].isdigit()
    assert len(json.dumps(found)) < 16_000
