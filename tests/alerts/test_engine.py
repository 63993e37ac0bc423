"""The engine on a fleet that changes under it: rows move, nodes fall silent, events come late."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from alerts.engine.engine import RESOLVED_SHOWN, RuleEngine
from alerts.rules.rule import load
from api.alerts import Alert, AlertState, Severity
from bench.rules import MovingFleet
from telemetry.devices import Event, Gpu, Link
from telemetry.fleet import Fleet, Floats, StaleRows
from telemetry.gap import GAP, Gap
from telemetry.metric import Table
from telemetry.wire.inventory import Inventory

RULES = load()
EPOCH = 1_790_000_000_000_000_000
HEALTHY = {
    "gpu_temperature_celsius": 60.0,
    "gpu_temperature_slowdown_celsius": 90.0,
    "gpu_recovery_action": 0.0,
    "link_state": 1.0,
    "node_driver_up": 1.0,
}


class Plant:
    """A small fleet, its clock, and an engine with all shipped rules."""

    def __init__(self) -> None:
        self.fleet = Fleet()
        self.engine = RuleEngine(RULES)
        self.now = 1000.0
        self.wrong: dict[str, dict[str, float]] = {}
        """Readings by UUID, link (`uuid/number`) or node name, in place of the healthy ones."""
        self.muted: set[str] = set()

    @property
    def wall(self) -> int:
        return EPOCH + int((self.now - 1000.0) * 1e9)

    def add(self, name: str, uuids: Sequence[str], version: int = 0) -> None:
        """Place a node with these GPUs, one link each."""
        gpus = tuple(
            Gpu(uuid=uuid, index=number, name="H100", pci=f"0000:{number + 16:x}:00.0")
            for number, uuid in enumerate(uuids)
        )
        links = tuple(Link(gpu=uuid, number=0) for uuid in uuids)
        self.fleet.place(Inventory(node=name, gpus=gpus, links=links, version=version))

    def tick(
        self, events: Sequence[Event] = (), seconds: float = 1.0, listening: bool = True, behind: float = 0.0
    ) -> list[Alert]:
        """Let time pass, store a frame of every node that is not muted, evaluate."""
        self.now += seconds
        self.hear()
        return self.engine.evaluate(self.fleet, self.now, self.wall, events, listening=listening, behind=behind)

    def hear(self) -> None:
        """Store a frame of every node that is not muted."""
        for name, node in self.fleet.nodes.items():
            if name in self.muted:
                continue
            node.seen = self.now
            inventory = node.inventory
            devices = {
                Table.GPU: [gpu.uuid for gpu in inventory.gpus],
                Table.LINK: [f"{link.gpu}/{link.number}" for link in inventory.links],
                Table.NODE: [name],
                Table.PORT: [],
                Table.INSTANCE: [],
            }
            for number, matrix in enumerate(self.fleet.matrices):
                block = matrix.block
                for offset, device in enumerate(devices[block.table]):
                    known = HEALTHY | self.wrong.get(device, {})
                    row = [known.get(metric, GAP[Gap.NOT_SUPPORTED]) for metric in block.names]
                    split = len(block.gauges)
                    at = node.rows[block.table].start + offset
                    self.fleet.store(
                        number,
                        slice(at, at + 1),
                        np.array([row[:split]], np.float32),
                        np.array([row[split:]]),
                        self.now,
                    )

    def run(self, seconds: int, events: Sequence[Event] = ()) -> list[Alert]:
        """Tick for some seconds; return all changes."""
        changes = self.tick(events)
        for _ in range(seconds - 1):
            changes += self.tick()
        return changes

    def firing(self) -> list[tuple[str, str]]:
        """Rule and place of everything that fires."""
        return [
            (alert.rule, alert.gpu or alert.node) for alert in self.engine.alerts() if alert.state is AlertState.FIRING
        ]


@pytest.fixture
def plant() -> Plant:
    """Two healthy nodes of two GPUs."""
    plant = Plant()
    plant.add("a", ["GPU-a0", "GPU-a1"])
    plant.add("b", ["GPU-b0", "GPU-b1"])
    plant.run(5)
    return plant


def xid(number: int, **where: str) -> Event:
    """An XID at the start of the clock."""
    return Event(id=f"1-{number}", node="a", at=EPOCH, kind="xid", data={"xid": number}, **where)


def test_a_healthy_fleet_says_nothing(plant: Plant) -> None:
    assert plant.run(100) == []
    assert plant.engine.alerts() == []


def test_an_alert_says_what_where_and_since_when(plant: Plant) -> None:
    plant.wrong["GPU-a1"] = {"gpu_recovery_action": 1.0}
    began = plant.wall + 1_000_000_000
    assert plant.run(60) == []
    assert [alert.state for alert in plant.engine.alerts()] == [AlertState.PENDING]
    [alert] = plant.run(1)
    assert alert.key == "recovery_action/a/GPU-a1"
    assert (alert.node, alert.gpu, alert.severity) == ("a", "GPU-a1", Severity.PAGE)
    assert alert.summary == "a GPU 1 needs: gpu reset"
    assert (alert.since, alert.changed) == (began, began + 60_000_000_000)
    assert alert.value == 1.0
    assert "{" not in alert.description
    assert plant.engine.alerts() == [alert]


def test_a_silent_node_is_one_alert_and_not_one_for_each_gpu(plant: Plant) -> None:
    plant.wrong["GPU-a0"] = {"gpu_temperature_celsius": GAP[Gap.TIMED_OUT]}
    plant.run(10)
    plant.muted.add("a")
    changes = plant.run(300)
    assert [(alert.rule, alert.node) for alert in changes] == [("node_silent", "a")]
    assert plant.firing() == [("node_silent", "a")]
    assert changes[0].summary == "a has been silent for 60 s"
    assert changes[0].changed - changes[0].since == 60 * 10**9, "it began with its last frame"


def test_what_fired_before_its_node_fell_silent_goes_on(plant: Plant) -> None:
    plant.wrong["GPU-a0"] = {"gpu_temperature_celsius": GAP[Gap.DEVICE_LOST]}
    plant.run(5)
    plant.muted.add("a")
    plant.run(300)
    assert sorted(plant.firing()) == [("gpu_lost", "GPU-a0"), ("node_silent", "a")]


def test_nobody_is_silent_for_a_time_in_which_we_were_deaf(plant: Plant) -> None:
    plant.muted |= {"a", "b"}
    for _ in range(200):
        plant.tick(listening=False)
    assert plant.firing() == []
    plant.muted.remove("b")
    assert plant.run(50) == []
    assert {alert.node for alert in plant.run(20)} == {"a"}


def test_nodes_are_no_more_silent_than_we_are_late(plant: Plant) -> None:
    """While a broker holds frames for minutes nobody knows who sends; one that does not is found all the same."""
    plant.muted.add("a")
    late = [alert for _ in range(150) for alert in plant.tick(behind=120.0)]
    assert late == []
    assert plant.tick(behind=5.0) != []
    assert plant.firing() == [("node_silent", "a")]


def test_nobody_is_silent_because_our_own_loop_stood_still(plant: Plant) -> None:
    assert plant.tick(seconds=500) == []
    plant.muted.add("a")
    assert plant.tick(seconds=500) == []
    assert [alert.rule for alert in plant.run(70)] == ["node_silent"]


def test_a_silent_node_is_found_however_seldom_the_rules_run() -> None:
    plant = Plant()
    plant.add("a", ["GPU-a0"])
    plant.add("b", ["GPU-b0"])
    for node in plant.fleet.nodes:
        plant.fleet.set_intervals(plant.fleet.nodes[node], 20.0, 20.0)
    plant.tick(seconds=20)
    plant.muted.add("a")
    changes = [alert for _ in range(5) for alert in plant.tick(seconds=20)]
    assert [(alert.rule, alert.node) for alert in changes] == [("node_silent", "a")]


def test_a_silent_node_is_found_although_our_own_loop_has_become_slow(plant: Plant) -> None:
    """Who calls every late tick a stall of its own is deaf for good."""
    plant.run(10)
    plant.muted.add("a")
    changes = [alert for _ in range(8) for alert in plant.tick(seconds=30)]
    assert [(alert.rule, alert.node) for alert in changes] == [("node_silent", "a")]


def test_a_node_that_was_never_heard_is_silent_too(plant: Plant) -> None:
    plant.muted.add("c")
    plant.add("c", ["GPU-c0"])
    assert [(alert.rule, alert.node) for alert in plant.run(70)] == [("node_silent", "c")]


def test_an_alert_follows_its_gpu_to_another_row_and_never_jumps(plant: Plant) -> None:
    lost = {"gpu_temperature_celsius": GAP[Gap.DEVICE_LOST]}
    plant.wrong["GPU-a1"] = lost
    plant.run(3)
    [before] = plant.engine.alerts()
    plant.add("a", ["GPU-a0", "GPU-new", "GPU-a1"])  # three rows: the node moves
    assert plant.run(20) == []
    [after] = plant.engine.alerts()
    assert (after.key, after.since, after.state) == (before.key, before.since, AlertState.FIRING)
    assert after.summary == "a GPU 2 has fallen off the bus"


def test_a_row_that_is_used_again_starts_anew(plant: Plant) -> None:
    plant.wrong["GPU-a1"] = {"gpu_temperature_celsius": GAP[Gap.DEVICE_LOST]}
    plant.wrong["GPU-b0"] = {"gpu_recovery_action": 2.0}
    plant.run(30)
    plant.fleet.remove("a")
    plant.add("c", ["GPU-c0", "GPU-c1"])  # takes the rows of a
    assert plant.fleet.by_uuid["GPU-c1"] == 1
    changes = plant.tick()
    assert [(alert.key, alert.state) for alert in changes] == [("gpu_lost/a/GPU-a1", AlertState.RESOLVED)]
    assert plant.firing() == []
    assert [alert.gpu for alert in plant.run(40)] == ["GPU-b0"]


def test_a_gpu_that_leaves_the_inventory_resolves_what_fired_on_it(plant: Plant) -> None:
    plant.wrong["GPU-a1"] = {"gpu_temperature_celsius": GAP[Gap.DEVICE_LOST]}
    plant.run(3)
    plant.add("a", ["GPU-a0"])
    [alert] = plant.tick()
    assert (alert.key, alert.state) == ("gpu_lost/a/GPU-a1", AlertState.RESOLVED)


def test_a_new_inventory_of_the_same_devices_changes_nothing(plant: Plant) -> None:
    plant.wrong["GPU-a1"] = {"gpu_recovery_action": 1.0}
    plant.run(40)
    plant.add("a", ["GPU-a0", "GPU-a1"], version=1)
    assert [alert.gpu for alert in plant.run(21)] == ["GPU-a1"]


def test_a_fleet_that_grows_keeps_its_alerts(plant: Plant) -> None:
    plant.wrong["GPU-a1"] = {"gpu_recovery_action": 1.0}
    plant.run(70)
    for number in range(200):
        plant.add(f"n{number}", [f"GPU-n{number}"])
    assert plant.run(3) == []
    assert plant.firing() == [("recovery_action", "GPU-a1")]


@pytest.mark.parametrize(
    ("where", "key"),
    [
        ({"gpu": "GPU-a1"}, "gsp_dead/a/GPU-a1"),
        ({"pci": "0000:11:00"}, "gsp_dead/a/GPU-a1"),
        ({"pci": "0000:11:00.0"}, "gsp_dead/a/GPU-a1"),
        ({"pci": "0000:99:00"}, "gsp_dead/a/node"),
        ({"gpu": "GPU-gone"}, "gsp_dead/a/node"),
        ({}, "gsp_dead/a/node"),
    ],
)
def test_an_xid_finds_its_gpu_or_else_its_node(plant: Plant, where: dict[str, str], key: str) -> None:
    [alert] = plant.tick([xid(119, **where)])
    assert (alert.key, alert.value) == (key, 119.0)


def test_one_xid_of_a_lost_gpu_and_its_gap_are_one_alert(plant: Plant) -> None:
    plant.wrong["GPU-a1"] = {"gpu_temperature_celsius": GAP[Gap.DEVICE_LOST]}
    [alert] = plant.run(30, [xid(79, gpu="GPU-a1")])
    assert alert.key == "gpu_lost/a/GPU-a1"


def test_an_application_fault_is_nobodys_alert(plant: Plant) -> None:
    assert plant.run(3, [xid(number, gpu="GPU-a1") for number in (13, 31, 43, 45)]) == []


def test_a_line_of_the_driver_that_names_a_gpu_is_heard_once(plant: Plant) -> None:
    plant.add("n1", ["a"])
    plant.tick()
    line = "NVRM: GPU 0000:10:00.0: RmInitAdapter failed! (0x62:0x40:2168)"
    for number, gpu in enumerate(("a", None)):
        event = Event(
            id=f"1-{number}",
            node="n1",
            at=plant.wall,
            kind="driver_log",
            gpu=gpu,
            pci="0000:10:00.0",
            data={"what": "init_failed", "line": line},
        )
        plant.tick([event])
        fired = [one for one in plant.engine.alerts() if one.rule == "gpu_init_failed"]
        assert [one.node for one in fired] == ["n1"], "once, however often it is said"


def test_events_of_nodes_that_nobody_knows_are_counted(plant: Plant) -> None:
    stray = Event(id="9-1", node="ghost", at=EPOCH, kind="xid", data={"xid": 79})
    assert plant.tick([stray]) == []
    assert plant.engine.events_unplaced == 1


def test_an_event_from_long_ago_is_history(plant: Plant) -> None:
    old = Event(id="1-1", node="a", at=EPOCH - 10 * 86400 * 10**9, kind="xid", gpu="GPU-a0", data={"xid": 79})
    assert plant.tick([old]) == []


def test_a_link_of_a_gpu_in_mig_is_not_called_down(plant: Plant) -> None:
    plant.run(300)  # links train after a start: nothing is said of them
    for uuid in ("GPU-a0", "GPU-b1"):
        plant.wrong[f"{uuid}/0"] = {"link_state": 0.0}
    plant.wrong["GPU-a0"] = {"gpu_mig_mode": 1.0}
    [alert] = plant.run(90)
    assert alert.key == "nvlink_down/b/GPU-b1/0"
    assert alert.summary == "NVLink down: b GPU 1 link 0"


def test_a_link_of_no_gpu_stops_no_rule(plant: Plant) -> None:
    """Its node is the last of the fleet, and a driver reload sets an energy counter back."""
    orphan = Link(gpu="GPU-nowhere", number=0)
    plant.fleet.place(Inventory(node="z", links=(orphan,)))
    plant.wrong["GPU-a0"] = {"gpu_energy_joules_total": 1e9}
    plant.run(2)
    plant.wrong["GPU-a0"] = {"gpu_energy_joules_total": 5.0}
    plant.run(2)
    changes = plant.run(5, [xid(79, gpu="GPU-a1")])
    assert "gpu_lost" in {alert.rule for alert in changes}
    disturbed = plant.engine._disturbances.at
    assert disturbed[Table.GPU].tolist() == [1006.0 + 2, *[1001.0] * 3]
    assert disturbed[Table.LINK][0] == 1008.0
    assert disturbed[Table.LINK][plant.fleet.nodes["z"].rows[Table.LINK].start] < 1008.0


def test_what_has_resolved_is_listed_for_a_while_after_what_is_wrong(plant: Plant) -> None:
    plant.wrong["b"] = {"node_driver_up": 0.0}
    plant.wrong["GPU-a0"] = {"gpu_recovery_action": 1.0}
    plant.wrong["GPU-b0"] = {"gpu_recovery_action": 7.0}
    plant.run(70)
    plant.wrong.pop("GPU-a0")
    plant.wrong["GPU-a1"] = {"gpu_recovery_action": 4.0}
    plant.tick()
    listed = [(alert.rule, alert.state, alert.severity) for alert in plant.engine.alerts()]
    assert listed == [
        ("recovery_action", AlertState.FIRING, Severity.PAGE),
        ("driver_down", AlertState.FIRING, Severity.TICKET),
        ("recovery_overdue", AlertState.PENDING, Severity.PAGE),
        ("recovery_drain", AlertState.PENDING, Severity.TICKET),
        ("recovery_action", AlertState.RESOLVED, Severity.PAGE),
    ]
    plant.tick(seconds=RESOLVED_SHOWN + 1)
    assert AlertState.RESOLVED not in {alert.state for alert in plant.engine.alerts()}


def test_what_fires_again_is_not_listed_as_resolved(plant: Plant) -> None:
    plant.wrong["GPU-a0"] = {"gpu_recovery_action": 1.0}
    plant.run(70)
    plant.wrong.pop("GPU-a0")
    plant.run(2)
    plant.wrong["GPU-a0"] = {"gpu_recovery_action": 1.0}
    plant.run(70)
    assert [alert.state for alert in plant.engine.alerts()] == [AlertState.FIRING]


def test_no_rule_keeps_a_column_that_it_borrowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns are the fleet's own: what a rule remembers must be its own copy, for the next frame changes them."""
    lent, column = [], Fleet.column

    def lend(fleet: Fleet, name: str, now: float, stale: StaleRows | None = None) -> Floats:
        values = column(fleet, name, now, stale).copy()
        lent.append(values)
        return values

    def alerts(spoilt: bool) -> list[Alert]:
        moving, engine = MovingFleet(64, 2, errors=True), RuleEngine(load())
        found: list[Alert] = []
        for second in range(120):
            now = moving.move(second)
            found += engine.evaluate(moving.fleet, now, second * 10**9)
            for values in lent if spoilt else ():
                values.fill(12345.0)
            lent.clear()
        return [*found, *engine.alerts()]

    monkeypatch.setattr(Fleet, "column", lend)
    told = alerts(spoilt=False)
    assert len({alert.rule for alert in told}) >= 3
    assert alerts(spoilt=True) == told
