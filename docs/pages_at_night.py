"""The page docs/pages_at_night.md: what somebody reads who was asleep, made by the code that sends it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from aggregator.register.expected import NodeMatch
from aggregator.register.owners import OwnerEntry, Owners
from alerts.engine.rule_tests import first_alert
from alerts.incidents.policy import policies_of
from alerts.message.formats import text
from alerts.message.page import Links, page_of
from alerts.notice import Notice
from alerts.rules.rule import Rule, load, monitor_rules
from api.alerts import Action, Alert, AlertState
from power.devices.wall_power import WallSource
from power.meters.reading import MeterReading
from telemetry.wire.inventory import Inventory
from tests.alerts.deliveries import ManagerHarness
from tests.power.stage import Stage, meter

_LINKS = Links(cluster="lab", external="https://kilowatch.example")
_SECOND = 1_000_000_000
_RULES: dict[str, Rule] = {rule.name: rule for rule in (*load(), *monitor_rules())}
_POLICIES = policies_of(_RULES.values())
_GPUS = tuple(f"GPU-5f0c6f6e-2b0e-4c1e-9d7b-0a1b2c3d4e5{index}" for index in range(8))
_FACTS = {"name": "kilowatch", "cluster": "lab"}
"""Facts of kilowatch itself."""
_CHANNEL = {"name": "oncall", "cluster": "lab", "line": "connection refused", "waiting": "3"}
_WORK = {"cluster": "lab", "rack": "r12", "job": "4711", "user": "ada"}
"""Labels of the nodes and GPUs here, as an aggregator adds them."""

# --- the site: a rack, with one feed or two ---------------------------------------------------------

_PANEL = '[panels.RPP-1]\nvolts = 208\nwiring = "3ph-wye"\nbreaker = 225\n'
_CIRCUIT = '[circuits.{name}]\npanel = "RPP-1"\npoles = 3\nbreaker = 80\n'
_ROLE = 'redundancy = {{ group = "R12", role = "{name}" }}\n'
_NODE = '[nodes.{name}]\nprofile = "dgx-h100"\ncords = [{cords}]\n'
_OWNERS = Owners((
    OwnerEntry(name="storage team", rules=("mount_*",)), OwnerEntry(name="network team", rules=("port_*", "nodes_silent")),
    OwnerEntry(name="facility, +1 555 0100", circuits=("R12-*", "UPS-*", "hall", "rig")), OwnerEntry(name="GPU platform team", match=NodeMatch(node="dgx-*")),
    OwnerEntry(name="monitoring on duty"),
))  # fmt: skip
"""Owners, as `[[owners]]` would name them."""
_NODES = ("dgx-07", "dgx-08", "dgx-09")
_BUDGET = '[budgets.hall]\ncircuits = ["R12-A"]\nkw = 20\n'
_ALONE = (
    _PANEL
    + _BUDGET
    + _CIRCUIT.format(name="R12-A")
    + _CIRCUIT.format(name="R13-A")
    + "".join(_NODE.format(name=name, cords='{ circuit = "R12-A" }') for name in _NODES)
    + _NODE.format(name="dgx-10", cords='{ circuit = "R13-A" }')
)
_PAIR = (
    _PANEL
    + "".join((_CIRCUIT + _ROLE).format(name=name) for name in ("R12-A", "R12-B"))
    + "".join(
        _NODE.format(name=name, cords='{ circuit = "R12-A", psu = "1-3" }, { circuit = "R12-B", psu = "4-6" }')
        for name in _NODES
    )
)
_BACKED = (
    '[circuits.office]\nbreaker = 20\nvolts = 120\nnodes = ["rig"]\n[nodes.rig]\ngpus = "2x RTX 5090"\n'
    "supply = { watts = 1000 }\n"
    '[ups.UPS-1]\nwatts = 1800\nvolt_amps = 2000\ncircuits = ["office"]\n'
)


def _at(rule: str, site: str, watts: float, seconds: float = 300.0) -> Callable[[], Alert]:
    """Return the alert of a rule about a site whose nodes draw these watts in their GPUs."""

    def play() -> Alert:
        nodes = (*_NODES, "dgx-10")
        stage = Stage(site, limits=dict.fromkeys(nodes, 5600.0))
        stage.play(60, gpu=dict.fromkeys(nodes, 800.0), every=5)
        return _played(stage, rule, seconds, dict.fromkeys(nodes, watts))

    return play


def _played(
    stage: Stage, rule: str, seconds: float, gpu: dict[str, float], meters: Sequence[MeterReading] = ()
) -> Alert:
    """Return the alert of a rule as soon as it fires."""
    for _ in range(round(seconds)):
        stage.play(1, gpu=gpu, meters=meters)
        found = [one for one in stage.engine.alerts() if one.rule == rule and one.state is AlertState.FIRING]
        if found:
            return found[0]
    raise AssertionError(f"{rule} did not fire")


def _tripped() -> Alert:
    nodes = (*_NODES, "dgx-10")
    stage = Stage(_ALONE, limits=dict.fromkeys(nodes, 5600.0))
    draws = dict.fromkeys(nodes, 4500.0)
    stage.play(90, gpu=draws, every=5)
    stage.hush(*_NODES)
    return _played(stage, "circuit_trip_suspected", 120, draws)


def _feed_lost() -> Alert:
    stage = Stage(_PAIR, limits=dict.fromkeys(_NODES, 5600.0))
    readings = [meter("R12-A", watts=0.0, amps=0.0), meter("R12-B", watts=20_000.0, amps=56.0)]
    return _played(stage, "circuit_feed_lost", 600, dict.fromkeys(_NODES, 3000.0), readings)


def _on_battery(flags: tuple[str, ...], runtime: float, rule: str) -> Callable[[], Alert]:
    def play() -> Alert:
        stage = Stage(_BACKED, limits={"rig": 1150.0}, gpus=2)
        reading = meter(
            "UPS-1",
            kind="ups",
            source=WallSource.UPS,
            watts=1100.0,
            volt_amps=1150.0,
            runtime_seconds=runtime,
            flags=flags,
        )
        return _played(stage, rule, 120, {"rig": 600.0}, [reading])

    return play


def _overloaded_supply() -> Alert:
    stage = Stage(_BACKED, limits={"rig": 1150.0}, gpus=2)
    return _played(stage, "supply_overload", 300, {"rig": 1150.0})


# --- nodes, GPUs and kilowatch itself, by the rules' own examples -----------------------------------


def _of(
    rule: str, *, node: str = "dgx-07", gpu: str = _GPUS[0], facts: dict[str, str] = _FACTS, **more: str
) -> Callable[[], Alert]:
    """Return the alert of a rule when an example of it first fires. `more`: labels of the unit that it names."""

    def play() -> Alert:
        alert = first_alert(_RULES[rule], node=node, gpu=gpu, row="", facts=facts, serial="165262203200")
        if not alert.node:
            return alert
        labels = {**alert.labels, **_WORK, **more}
        unit = more.get("unit", "")
        return replace(alert, labels=labels, summary=f"{alert.summary}: {unit}" if unit else alert.summary)

    return play


@dataclass(frozen=True, slots=True)
class _Scene:
    """Alerts of one night, which are one incident, and the nodes that have none."""

    title: str
    alerts: tuple[Callable[[], Alert], ...]
    elsewhere: int = 0
    """Nodes of other racks that are well."""


def _one(title: str, alert: Callable[[], Alert]) -> _Scene:
    return _Scene(title, (alert,))


_SCENES = (
    _one("A circuit above its continuous limit", _at("circuit_continuous", _ALONE, 4500)),
    _one("A breaker above its rating", _at("circuit_overload", _ALONE, 5600)),
    _one(
        "A breaker that is about to trip",
        _at("circuit_thermal_hot", _ALONE.replace("breaker = 80", "breaker = 70"), 5600),
    ),
    _one("A breaker that has tripped", _tripped),
    _one("A loss that would be too much", _at("circuit_failover_rated", _PAIR, 5600)),
    _one("A feed that is lost", _feed_lost),
    _one("A power that is nearly used", _at("budget_power_near", _ALONE, 3000, 900)),
    _one("A UPS on its battery", _on_battery(("OB",), 1200, "ups_on_battery")),
    _one("A battery that ends", _on_battery(("OB", "LB"), 200, "ups_battery_ends")),
    _one("A supply that is too small", _overloaded_supply),
    _one("Main memory with an error", _of("memory_uncorrected", unit="CPU0 DIMM_B1")),
    _one("A file server that is gone", _of("mount_failing", unit="/data", server="nas-1")),
    _Scene(
        "A file server that three nodes miss",
        tuple(_of("mount_failing", node=node, unit="/data", server="nas-1") for node in _NODES),
    ),
    _one("A root file system that is read-only", _of("root_read_only")),
    _one("Fabric Manager has ended", _of("fabric_manager_down")),
    _one("A fault that the kernel's log alone tells", _of("node_fault")),
    _one("A node that had work and is silent", _of("busy_node_silent")),
    _Scene("Nodes that fell silent together", tuple(_of("nodes_silent", node=node) for node in _NODES)),
    _one("A port that is down", _of("port_down")),
    _one("A GPU that is lost", _of("gpu_lost")),
    _Scene("All GPUs of a node that are lost", tuple(_of("gpu_lost", gpu=gpu) for gpu in _GPUS)),
    _one("A GPU that hangs", _of("gpu_hung")),
    _one("A recovery that the driver asks for", _of("recovery_action")),
    _one("A fatal fault of a GPU", _of("gpu_fault")),
    _one("Memory of a GPU with an error", _of("ecc_dbe")),
    _one("A GPU that heat slows down", _of("thermal_hw")),
    _one("An NVLink that is down", _of("nvlink_down")),
    _Scene(
        "A storm: forty nodes of a rack lose a GPU",
        tuple(_of("gpu_lost", node=f"dgx-{number:03}", gpu=f"{_GPUS[0]}-{number}") for number in range(100, 140)),
        elsewhere=160,
    ),
    _one("Kilowatch receives nothing", _of("bus_lost")),
    _one("A channel that does not deliver", _of("delivery_failing", facts=_CHANNEL)),
)


def pages_at_night() -> str:
    """Return the page."""
    lines = [
        "# Pages at night",
        "",
        "Generated by `make docs`: alerts of the rules' own examples and of circuits that are computed, grouped and worded by the",
        f"code that sends pages; do not edit. {len(_SCENES)} things that wake somebody. A lock screen shows the first two lines: what,",
        "where and since when; then what to do.",
    ]
    for scene in _SCENES:
        lines += ["", f"## {scene.title}", "", "```text", _sent(scene), "```"]
    return "\n".join(lines) + "\n"


def _sent(scene: _Scene) -> str:
    """Return the first page of a scene, as it is sent."""
    harness = ManagerHarness(_POLICIES)
    alerts = [_owned(play()) for play in scene.alerts]
    hit = {alert.node for alert in alerts}
    well = (f"gb-{number:03}" for number in range(scene.elsewhere))
    traits = {name: {"rack": ["r12"]} for name in hit} | {name: {"rack": ["r13"]} for name in well}
    harness.manager.traits = lambda: traits
    fired = max(alert.changed for alert in alerts)
    notices = harness.tick(*(_moved(alert, harness.wall + _SECOND - fired) for alert in alerts))
    notices += harness.wait(30)
    page: Notice = next(one for one in reversed(notices) if one.action is Action.TRIGGER)
    return text(page_of(page, _LINKS, page.at))


def _owned(alert: Alert) -> Alert:
    """Return an alert with its owner, as the engine gives it."""
    inventory = Inventory(node=alert.node) if alert.node else None
    return replace(alert, owner=_OWNERS.of(alert.rule, inventory, alert.labels, alert.name))


def _moved(alert: Alert, by: int) -> Alert:
    """Return an alert of another time."""
    return replace(alert, since=alert.since + by, changed=alert.changed + by)
