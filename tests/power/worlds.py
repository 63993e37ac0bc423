"""Small sites of every shape, with meters of every kind on every place, as settings and as what their meters read."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

from power.devices.wall_power import WallSource
from power.meters.reading import MeterReading
from tests.power.stage import meter


@dataclass
class World:
    """A site with its loads."""

    lines: list[str]
    nodes: dict[str, float] = field(default_factory=dict)
    """Watts at the wall of each node with a collector."""
    circuits: dict[str, float] = field(default_factory=dict)
    """Watts that each circuit really carries; panels too."""
    meters: list[MeterReading] = field(default_factory=list)

    @property
    def text(self) -> str:
        """Its settings."""
        return "\n".join(self.lines)

    @property
    def gpus(self) -> dict[str, float]:
        """Watts of the GPUs by node."""
        return {name: watts / 1.2 for name, watts in self.nodes.items()}


def world(seed: int) -> World:
    """Return one: up to two panels, five circuits, a redundant pair, six machines, a UPS, transformers and a transfer switch."""
    pick, transformers = random.Random(seed), random.Random(f"transformers of {seed}")
    region, volts, between = pick.choice([("US", 120, 208), ("DE", 230, 400), ("JP", 100, 200), ("UK", 230, 400)])
    made = World([f'region = "{region}"'])
    panels = [f"p{number}" for number in range(pick.randint(0, 2))]
    behind = []
    for name in panels:
        made.lines += [f"[panels.{name}]", f"volts = {between}", 'wiring = "3ph-wye"', f"breaker = {pick.choice([32, 40, 63, 100])}"]  # fmt: skip
        made.circuits[name] = 0.0
        if transformers.random() < 0.25:
            made.lines.append(f'parent = "t-{name}"')
            behind.append(name)
    for name in behind:
        made.lines += [f"[transformers.t-{name}]", "kva = 75", f"primary.volts = {480 if volts < 200 else 690}", f"secondary.volts = {between}"]  # fmt: skip
    switched = len(panels) == 2 and pick.random() < 0.4
    if switched:
        made.lines += ["[transfers.ats]", 'preferred = "p0"', 'alternate = "p1"', "breaker = 32"]
    circuits = [f"c{number}" for number in range(pick.randint(1, 5))]
    pair = circuits[:2] if len(circuits) > 1 and pick.random() < 0.4 else []
    above = {}
    for name in circuits:
        above[name] = _circuit(pick, made, name, panels, switched, between)
        if name in pair:
            made.lines.append(f'redundancy = {{ group = "g", role = "{"AB"[pair.index(name)]}" }}')
    backed = pick.random() < 0.3
    if backed:
        made.lines += ["[ups.u]", "watts = 3000", 'circuits = ["c0"]']
    for number in range(pick.randint(0, 6)):
        feeds = pair if pair and pick.random() < 0.3 else [pick.choice(circuits)]
        _node(pick, made, f"n{number}", feeds)
    for name, parent in above.items():
        if parent:
            made.circuits[parent] += made.circuits[name]
    places = [("circuit", name, watts) for name, watts in made.circuits.items()]
    places += [("node", name, watts) for name, watts in made.nodes.items()]
    places += [("ups", "u", made.circuits["c0"])] if backed else []
    made.meters = [_meter(pick, kind, name, watts, volts) for kind, name, watts in places if pick.random() < 0.5]
    return made


def _circuit(
    pick: random.Random, made: World, name: str, panels: list[str], switched: bool, between: int
) -> str | None:
    """Write a circuit; return the panel that feeds it."""
    made.lines += [f"[circuits.{name}]", f"breaker = {pick.choice([15, 20, 32])}"]
    parent = pick.choice([None, *panels])
    if switched and pick.random() < 0.3:
        made.lines.append('parent = "ats"')
        parent = "p0"
    elif parent:
        made.lines.append(f'panel = "{parent}"')
    if parent:
        made.lines.append(pick.choice(['phase = "L1"', 'phase = "L2"', "poles = 3"]))
    elif pick.random() < 0.3:
        made.lines += ["poles = 3", f"volts = {between}"]
    other = pick.choice([0, 0, pick.randint(5, 400)])
    made.lines.append(f"other_w = {other}")
    undeclared = pick.choice([0, 0, pick.randint(50, 900)])  # what a meter alone knows
    made.circuits[name] = float(other + undeclared)
    return parent


def _node(pick: random.Random, made: World, name: str, feeds: list[str]) -> None:
    """Write a machine that is configured by its GPUs, its watts, or its name alone."""
    cords = ", ".join(f'{{ circuit = "{one}" }}' for one in feeds)
    made.lines += [f"[nodes.{name}]", f"cords = [{cords}]"]
    drawn = float(pick.randint(150, 1800))
    kind = pick.choice(["gpus", "gpus", "watts", "nothing"])
    if kind == "watts":
        made.lines.append(f"watts = {round(drawn)}")
    else:
        made.nodes[name] = drawn
        made.lines += ['gpus = "4x RTX 5090"'] if kind == "gpus" else []
    for one in feeds:
        made.circuits[one] += drawn / len(feeds)


def _meter(pick: random.Random, kind: str, name: str, watts: float, volts: float) -> MeterReading:
    told: dict[str, object] = {"kind": kind, "target": name, "meter": f"m-{kind}-{name}"}
    told["source"] = pick.choice([WallSource.CIRCUIT_METER, WallSource.PLUG, WallSource.PDU])
    told["period"] = pick.choice([1.0, 5.0, 30.0])
    match pick.choice(["watts", "watts", "watts and amps", "volt_amps", "energy"]):
        case "watts":
            told["watts"] = watts
        case "watts and amps":
            told |= {"watts": watts, "volts": volts}
        case "volt_amps":
            told |= {"volt_amps": watts / 0.97, "power_factor": 0.97}
        case _:
            told |= {"watts": watts, "energy_joules": 1e9}
    return meter(name, **told)
