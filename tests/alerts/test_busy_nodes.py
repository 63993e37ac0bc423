"""Silent nodes: a page where the node had work in the ten minutes before, else a ticket."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from alerts.engine.engine import RuleEngine
from alerts.engine.kept_memory import KeptMemory
from alerts.rules.rule import load
from api.alerts import Action, AlertState, Severity
from telemetry.devices import Event
from telemetry.fleet import Fleet
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.alerting_stack import Hall
from tests.alerts.test_engine import EPOCH, Plant

SILENCE = [
    msgspec.structs.replace(rule, inhibits=tuple(one for one in rule.inhibits if "silent" in one.rule))
    for rule in load()
    if rule.name in {"node_silent", "busy_node_silent", "nodes_silent"}
]
WORK, REST = {"gpu_utilization_ratio": 0.9}, {"gpu_utilization_ratio": 0.0}


class Rack(Plant):
    """Two nodes and the rules on silence."""

    def __init__(self) -> None:
        super().__init__()
        self.engine = RuleEngine(SILENCE)
        for name in "ab":
            self.add(name, [f"GPU-{name}0", f"GPU-{name}1"])

    def use(self, node: str, reading: dict[str, float]) -> None:
        """Let the second GPU of a node report this, and the first one rest."""
        self.wrong[f"GPU-{node}0"], self.wrong[f"GPU-{node}1"] = REST, reading

    def restart(self, away: float) -> None:
        """Let another engine go on after some seconds, on nodes of which no frame has come."""
        kept = msgspec.msgpack.encode(self.engine.keep_memory(self.wall).kept())
        records = self.engine.snapshot(self.wall)
        inventories = [node.inventory for node in self.fleet.nodes.values()]
        self.now += away
        self.fleet, self.engine = Fleet(), RuleEngine(SILENCE)
        for inventory in reversed(inventories):  # in other rows
            self.fleet.place(inventory)
        self.engine.restore(records, self.now, self.wall)
        self.engine.recall(self.fleet, [], self.now, self.wall)
        memory = msgspec.msgpack.decode(kept, type=KeptMemory)
        self.engine.resume_memory(memory, self.now, self.wall)


@pytest.mark.parametrize(("reading", "rules"), [
    (WORK, {"busy_node_silent", "node_silent"}),
    (REST, {"node_silent"}),
    ({}, {"node_silent"}),
    ({"gpu_power_watts": 400.0, "gpu_power_limit_watts": 700.0}, {"busy_node_silent", "node_silent"}),
    ({"gpu_power_watts": 120.0, "gpu_power_limit_watts": 700.0}, {"node_silent"}),
    (REST | {"gpu_processes": 1.0}, {"busy_node_silent", "node_silent"}),
], ids=["use", "rest", "not read", "power", "idle power", "a process"])  # fmt: skip
def test_one_gpu_at_work_makes_the_silence_of_its_node_a_page(reading: dict[str, float], rules: set[str]) -> None:
    rack = Rack()
    rack.use("a", reading)
    rack.use("b", WORK)
    rack.run(30)
    rack.muted.add("a")
    rack.run(70)
    assert {rule for rule, node in rack.firing()} == rules
    severities = {alert.rule: alert.severity for alert in rack.engine.alerts()}
    assert severities.get("busy_node_silent", Severity.PAGE) is Severity.PAGE
    assert severities["node_silent"] is Severity.TICKET


def test_the_last_work_counts_for_ten_minutes_before_the_last_frame() -> None:
    for rest, fires in ((590, True), (620, False)):
        rack = Rack()
        rack.use("a", WORK)
        rack.run(30)
        rack.use("a", REST)
        rack.run(rest)
        rack.muted.add("a")
        rack.run(3000)
        assert (("busy_node_silent", "a") in rack.firing()) is fires


def test_time_without_readings_is_no_rest() -> None:
    """A driver that hangs sends frames with gaps, and the node dies with its job."""
    for before, fires in ((WORK, True), (REST, False)):
        rack = Rack()
        rack.use("a", before)
        rack.run(30)
        rack.wrong |= {"GPU-a0": {}, "GPU-a1": {}}
        rack.run(660)
        rack.muted.add("a")
        rack.run(100)
        assert (("busy_node_silent", "a") in rack.firing()) is fires


@pytest.mark.parametrize("away", [20.0, 7200.0])
def test_a_page_outlives_a_restart_of_the_aggregator(away: float) -> None:
    rack = Rack()
    rack.use("a", WORK)
    rack.run(30)
    rack.muted.add("a")
    rack.run(70)
    rack.restart(away)
    rack.run(300)
    assert ("busy_node_silent", "a") in rack.firing()
    rack.muted.clear()
    rack.run(30)
    assert rack.firing() == []


def test_a_node_that_dies_while_the_aggregator_is_away_pages_by_what_was_seen_before() -> None:
    for reading, fires in ((WORK, True), (REST, False)):
        rack = Rack()
        rack.use("a", reading)
        rack.run(700)
        rack.muted.add("a")
        rack.restart(300)
        rack.run(90)
        assert (("busy_node_silent", "a") in rack.firing()) is fires
        assert ("node_silent", "a") in rack.firing()


def test_a_planned_stop_of_a_node_at_work_is_no_page() -> None:
    rack = Rack()
    rack.use("a", WORK)
    rack.run(30)
    rack.muted.add("a")
    rack.fleet.nodes["a"].ended = True
    rack.run(70, [Event(id="1-1", node="a", at=EPOCH, kind="collector_stopped")])
    assert rack.firing() == []


class BusyHall(Hall):
    """A hall all of whose GPUs are at work."""

    def _read(self) -> None:
        super()._read()
        use = SCHEMA.blocks[GPU_FAST].names.index("gpu_utilization_ratio")
        self.fleet.matrices[GPU_FAST].gauges[: 2 * len(self.names), use] = np.float32(0.9)


def test_a_whole_rack_at_work_is_one_page_and_one_node_another() -> None:
    hall = BusyHall(12, SILENCE)
    hall.pass_by(30)
    hall.silent = {f"n{number}" for number in range(8)}
    said = [one for one in hall.pass_by(200) if one.action is Action.TRIGGER]
    assert [one.incident.group for one in said] == [{"rule": "nodes_silent"}]
    assert [one.incident.severity for one in said] == [Severity.PAGE]
    hall.silent.add("n9")
    said = [one for one in hall.pass_by(200) if one.action is Action.TRIGGER]
    assert [(one.incident.severity, one.incident.group) for one in said] == [
        (Severity.PAGE, {"rule": "busy_node_silent", "node": "n9"})
    ]


@pytest.mark.parametrize(
    ("apart", "groups"),
    [
        (4, [{"rule": "nodes_silent"}]),
        (70, [{"rule": "busy_node_silent", "node": f"n{number}"} for number in range(3)]),
    ],
    ids=["within moments", "over minutes"],
)
def test_nodes_that_fall_silent_one_after_the_other(apart: int, groups: list[dict[str, str]]) -> None:
    """Nodes that die at once send their last frames some seconds apart: none of them pages before the page for all."""
    hall = BusyHall(12, SILENCE)
    hall.pass_by(30)
    said = []
    for number in range(3):
        hall.silent.add(f"n{number}")
        said += hall.pass_by(apart if number < 2 else 200)
    assert [one.incident.group for one in said if one.action is Action.TRIGGER] == groups


def test_a_retired_node_ends_its_page() -> None:
    hall = BusyHall(3, SILENCE)
    hall.pass_by(30)
    hall.silent = {"n2"}
    hall.pass_by(100)
    firing = {one.rule for one in hall.pipeline.alerts() if one.state is AlertState.FIRING}
    assert "busy_node_silent" in firing
    hall.pipeline.engine.forget("n2")
    hall.fleet.remove("n2")
    hall.names.remove("n2")
    ends = [one for one in hall.pass_by(100) if one.action is Action.RESOLVE]
    assert {one.reason for one in ends} == {"forgotten"}
