"""Every fault that the simulation knows, from the collector's source to what is told: once each, with
its cause, and edges within two seconds. In simulated time, whatever this machine is busy with.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from aggregator.config import AggregatorConfig
from alerts.rules.rule import load
from api.alerts import Action
from collector.recording.file import RecordedMessage
from collector.simulated import Scenario, scenario
from collector.simulated.faults import FaultKind
from collector.simulated.source import SimulatedSource
from kilowatch.replay.outcome import ReplayOutcome, replay
from telemetry.devices import Event
from telemetry.metric import Lane
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, NodeState
from telemetry.wire.topics import Topic

BEGINS = 30
FAULTS = {
    FaultKind.XID79: ("xid79@node-00001/3+30s", "page gpu_lost"),
    FaultKind.ECC_STORM: ("ecc_storm@node-00002/2+30s:5m", "page ecc_storm"),
    FaultKind.REMAP_PENDING: ("remap_pending@node-00003/1+30s", "ticket remap_pending"),
    FaultKind.THERMAL: ("thermal@node-00004/0+30s:3m", "page thermal_margin"),
    FaultKind.POWER_BRAKE: ("power_brake@node-00005+30s:40s", "page power_brake"),
    FaultKind.HUNG: ("hung@node-00006/3+30s:2m", "page gpu_hung"),
    FaultKind.NODE_LOSS: ("node_loss@node-00007+30s:3m", "page busy_node_silent"),
    FaultKind.PORT_DOWN: ("port_down@node-00008/1+30s:5m", "page port_down"),
}
"""By kind, the fault on a node of its own, and the incident that it must come to."""


def entries(scene: Scenario, seconds: int) -> Iterator[RecordedMessage]:
    """Yield what the collectors of a scenario publish: a frame a second, the slow lane each 15 s."""
    with asyncio.Runner() as runner:
        sources = {name: SimulatedSource(scene, name) for name in scene.nodes}
        told: dict[str, object] = {}
        for tick in range(scene.start_tick, scene.start_tick + seconds):
            at = scene.at_ns(scene.second(tick))
            for session, (node, source) in enumerate(sources.items(), 1000):
                if source.silent(tick):
                    continue
                lanes = frozenset(Lane) if tick % 15 == 0 else frozenset({Lane.FAST})
                rows = runner.run(source.read(lanes, tick, at, 0.0))
                if told.get(node) is not source.inventory:
                    told[node] = source.inventory
                    status = CollectorStatus(state=NodeState.ONLINE, session=session)
                    what = msgspec.structs.replace(source.inventory, node=node, session=session)
                    yield RecordedMessage(at, Topic.STATUS, node, messages.encode(status))
                    yield RecordedMessage(at, Topic.INVENTORY, node, messages.encode(what))
                events = [
                    Event(
                        id=f"{session:012x}-{tick}-{number}",
                        node=node,
                        at=one.at,
                        kind=one.kind,
                        gpu=one.gpu,
                        pci=one.pci,
                        message=one.message,
                        data=one.data,
                    )
                    for number, one in enumerate(source.drain_events())
                ]
                frame = frames.build(session, tick - scene.start_tick, at, rows, [messages.encode(e) for e in events])
                yield RecordedMessage(at, Topic.FRAME, node, frames.encode(frame))


def played(faults: str, nodes: int, gpus: int, seconds: int) -> ReplayOutcome:
    """Return what a scenario comes to."""
    scene = scenario("fleet", nodes=nodes, gpus=gpus, seed=7, faults=faults, start_tick=1_790_000_000)
    return replay(Path("simulated"), entries(scene, seconds), load([]), AggregatorConfig())


def test_every_kind_of_fault_is_told_once_with_its_cause() -> None:
    found = played(", ".join(text for text, _ in FAULTS.values()), 8, 4, 260)
    assert found.unreadable == 0
    calls = [one for one in found.notices if one.action is Action.TRIGGER]
    told = {one.incident: f"{one.severity} {one.incident.rpartition('-')[0]}" for one in calls}
    assert sorted(told.values()) == sorted(expected for _, expected in FAULTS.values())
    assert len(calls) == len(FAULTS)  # once each, and nothing else is wrong
    (lost,) = [one for one in calls if told[one.incident] == "page gpu_lost"]
    assert (lost.at - found.first) / 1e9 - BEGINS <= 2.0


@pytest.mark.parametrize(
    ("faults", "gpus", "seconds", "expected"),
    [
        ("straggler@node-00001/4+30s:20m", 8, 800, ["ticket straggler"]),
        ("feed_loss@rack-001+30s:2m", 1, 240, ["page nodes_silent"]),
        ("port_slow@node-00001/1+30s:10m", 2, 240, ["ticket port_slow"]),
        ("port_down@node-0000*/1+30s:5m", 2, 240, ["page port_down"]),
        ("", 2, 400, []),
    ],
    ids=["straggler", "feed_loss", "slow port", "a switch that restarts", "healthy"],
)
def test_what_many_nodes_or_minutes_tell(faults: str, gpus: int, seconds: int, expected: list[str]) -> None:
    several = "feed" in faults or "*" in faults
    found = played(faults, 4 if several else 1, gpus, seconds)
    calls = [one for one in found.notices if one.action is Action.TRIGGER]
    assert [f"{one.severity} {one.incident.rpartition('-')[0]}" for one in calls] == expected


def test_no_kind_is_forgotten() -> None:
    others = {FaultKind.STRAGGLER, FaultKind.FEED_LOSS, FaultKind.PORT_SLOW}
    assert set(FAULTS) | others == set(FaultKind)
