"""Boards and slots that fail again and again: found by serial number, wherever the board is now."""

from __future__ import annotations

import pytest

from aggregator.alerting.pipeline import AlertPipeline
from alerts.engine.engine import RuleEngine
from alerts.incidents.state import IncidentChanges
from alerts.rules.rule import load
from api.alerts import Alert, AlertState, Incident, Severity
from telemetry.devices import Gpu
from telemetry.fleet import Fleet
from telemetry.wire.inventory import Inventory

DAY = 86_400_000_000_000
WALL = 1_790_000_000_000_000_000
RULES = [rule for rule in load() if rule.name in {"board_repeat", "slot_repeat"}]


def fleet_of(**boards: str) -> Fleet:
    """Return a fleet of one GPU a node, with the serial number given, in slot 4."""
    fleet = Fleet()
    for node, serial in boards.items():
        gpu = Gpu(uuid=f"GPU-{serial}", index=0, name="H100", serial=serial, slot="4")
        fleet.place(Inventory(node=node, gpus=(gpu,), driver_state="up"))
    return fleet


def incident(number: int, node: str, serial: str, rule: str = "nvlink_down") -> Incident:
    """Return an incident of a board, some days ago."""
    at = WALL - number * DAY
    alert = Alert(
        key=f"{rule}/{node}/GPU-{serial}",
        rule=rule,
        state=AlertState.RESOLVED,
        severity=Severity.TICKET,
        node=node,
        gpu=f"GPU-{serial}",
        since=at,
        labels={"serial": serial, "slot": "4"},
    )
    return Incident(key=f"i-{number}-{serial}", severity=Severity.TICKET, title="", began=at, alerts=(alert,))


def fired(engine: RuleEngine, fleet: Fleet, now: float = 1000.0) -> list[tuple[str, str]]:
    """Rule and node of what fires."""
    engine.evaluate(fleet, now, WALL)
    return [(one.rule, one.node) for one in engine.alerts() if one.state is AlertState.FIRING]


def test_a_board_that_moved_takes_its_history_along_and_leaves_none_behind() -> None:
    engine = RuleEngine(RULES)
    engine.note_incidents([incident(number, "n1", "lemon") for number in (20, 15, 9, 2)])
    assert fired(engine, fleet_of(n1="new", n2="lemon", n3="other")) == [("board_repeat", "n2")]
    (alert,) = engine.alerts()
    assert alert.value_text == "4 incidents"
    assert alert.remediation == "replace"


def test_the_removal_of_a_node_forgets_no_incident_of_its_boards() -> None:
    engine = RuleEngine(RULES)
    engine.note_incidents([incident(number, "n1", "lemon") for number in (20, 15, 9, 2)])
    fleet = fleet_of(n1="lemon")
    assert fired(engine, fleet) == [("board_repeat", "n1")]
    engine.forget("n1")
    fleet.remove("n1")
    assert fired(engine, fleet, 1010.0) == []
    assert fired(engine, fleet_of(n7="lemon"), 1020.0) == [("board_repeat", "n7")]


@pytest.mark.parametrize(
    ("rule", "counts"), [("nvlink_down", True), ("thermal_hw", False), ("board_repeat", False), ("gpu_oddity", False)]
)
def test_only_what_points_at_the_board_counts(rule: str, counts: bool) -> None:
    """Not the heat of the room, nor a program, nor the rule's own tickets."""
    engine = RuleEngine(load())
    engine.note_incidents([incident(number, "n1", "b", rule) for number in (4, 3, 2, 1)])
    found = fired(engine, fleet_of(n1="b"))
    assert (("board_repeat", "n1") in found) is counts


def test_an_incident_counts_once_however_many_alerts_it_has() -> None:
    engine = RuleEngine(RULES)
    one = incident(1, "n1", "b")
    engine.note_incidents([one, one, incident(2, "n1", "b"), incident(3, "n1", "b")])
    assert fired(engine, fleet_of(n1="b")) == []


def test_a_slot_is_found_when_different_boards_failed_in_it() -> None:
    engine = RuleEngine(RULES)
    engine.note_incidents(
        [incident(number, "n1", serial) for number, serial in ((9, "a"), (7, "a"), (5, "b"), (3, "b"))]
    )
    assert fired(engine, fleet_of(n1="c", n2="a", n3="b")) == [("slot_repeat", "n1")]


def test_a_restart_counts_the_incidents_of_before() -> None:
    kept: list[object] = []
    pipeline = AlertPipeline(
        RULES,
        lambda *step: kept.append(step),
        now=1000.0,
        wall=WALL,
        past=[incident(number, "n1", "lemon") for number in (20, 15, 9)],
    )
    fleet = fleet_of(n1="lemon")
    pipeline.evaluate(fleet, 1001.0, WALL, (), listening=True, snapshots=())
    assert pipeline.alerts() == []
    # A fourth one, as the incident manager reports it.
    pipeline._keep(IncidentChanges(incidents=(incident(0, "n1", "lemon"),), wall_ns=WALL), None)
    pipeline.evaluate(fleet, 1011.0, WALL, (), listening=True, snapshots=())
    assert [alert.rule for alert in pipeline.alerts()] == ["board_repeat"]


def test_thousands_of_gpus_are_searched_for_the_few_boards_that_failed() -> None:
    engine = RuleEngine(RULES)
    fleet = Fleet()
    for node in range(1000):
        gpus = tuple(Gpu(uuid=f"GPU-{node}-{n}", index=n, name="H100", serial=f"{node}-{n}") for n in range(8))
        fleet.place(Inventory(node=f"n{node}", gpus=gpus, driver_state="up"))
    engine.note_incidents([incident(number, "n3", "500-7") for number in (4, 3, 2, 1)])
    assert fired(engine, fleet) == [("board_repeat", "n500")]
