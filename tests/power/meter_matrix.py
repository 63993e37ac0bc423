"""Kinds of meters, ways in which they die, and what else is known of their load: each combination is a circuit of one site."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Literal

from msgspec.structs import replace

from power.devices.wall_power import WallSource
from power.live.meter_faults import LOW_RATIO
from power.meters.reading import MeterReading
from power.meters.sample import INPUT_LOST, OFFLINE, REVERSED, TRIPPED
from tests.power.stage import meter

VOLTS, AMPS, FACTOR = 120.0, 20, 0.97
"""Of each pole, of each breaker, and of each load."""
GPU_PART = 0.6
"""Part of a node's watts that its GPUs draw."""
NOISE = 1e-3
"""Part of its watts by which each reading varies."""
_OFFLINE_SECONDS = 3600.0


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of meter: where it is and what it tells."""

    on: Literal["circuit", "panel", "node", "inside", "ups"]
    """`inside`: read by the node's collector."""
    tells: tuple[str, ...] = ("watts",)
    source: WallSource = WallSource.CIRCUIT_METER
    poles: int = 1
    parts: int | None = None
    """Parts of one payload of several poles; 0 for a meter on each pole."""


KINDS: Mapping[str, Kind] = {
    "watts": Kind("circuit", ("watts", "amps", "volts", "energy_joules")),
    "amps alone": Kind("circuit", ("amps",)),
    "volt-amperes": Kind("circuit", ("volt_amps", "power_factor")),
    "counter alone": Kind("circuit", ("energy_joules",)),
    "bank of a PDU": Kind("circuit", ("watts", "amps"), WallSource.PDU),
    "poles of one payload": Kind("circuit", ("watts", "amps"), poles=3, parts=3),
    "a clamp on each pole": Kind("circuit", ("amps",), poles=3, parts=0),
    "panel": Kind("panel", ("watts",), poles=3),
    "plug": Kind("node", ("watts", "energy_joules"), WallSource.PLUG),
    "outlet of a PDU": Kind("node", ("watts", "amps", "volts"), WallSource.PDU),
    "BMC over Redfish": Kind("node", ("watts",), WallSource.BMC),
    "BMC in band": Kind("inside"),
    "UPS": Kind("ups", ("watts",), WallSource.UPS),
}


@dataclass(frozen=True, slots=True)
class Way:
    """A way to die: what a reading becomes so many seconds after."""

    reads: Callable[[MeterReading, float], MeterReading | None]
    falls: bool = False
    """Whether it reads less than before, which is true of a load that went off: only a witness contradicts it."""
    blinds: bool = True
    """Whether nothing tells the load afterwards where no witness does."""
    silence: bool = False
    """Whether nothing is read for longer than a meter may be silent."""
    stops: bool = False
    """Whether it goes on with the reading that it had then."""
    true: bool = False
    """Whether it is believed whatever else is known: a breaker that opened, a supply without input."""


def _times(factor: float) -> Callable[[MeterReading, float], MeterReading]:
    def changed(reading: MeterReading, _: float) -> MeterReading:
        told = {name: getattr(reading, name) for name in ("watts", "volt_amps", "amps", "energy_joules")}
        return replace(reading, **{name: value * factor for name, value in told.items() if value is not None})

    return changed


def _told(**fields: object) -> Callable[[MeterReading, float], MeterReading]:
    return lambda reading, _: replace(reading, **fields)


def _noise(now: float) -> float:
    """Return a factor that no two readings have in common: a reading that stands still tells less."""
    return 1 + NOISE * math.sin(now)


def _reset(reading: MeterReading, after: float) -> MeterReading:
    return reading if reading.energy_joules is None else replace(reading, energy_joules=1e4 * after)


WAYS: Mapping[str, Way] = {
    "silent": Way(lambda *_: None, silence=True),
    "offline": Way(_told(flags=(OFFLINE,), at=-_OFFLINE_SECONDS), silence=True),
    "now and then": Way(lambda reading, after: None if after // 50 % 2 else reading, blinds=False, silence=True),
    "frozen": Way(_told(), blinds=False, stops=True),
    "kilowatts": Way(_times(0.001), falls=True),
    "zero": Way(_times(0.0), falls=True),
    "a fifth": Way(_times(0.2), falls=True),
    "tenfold": Way(_times(10.0), blinds=False),
    "milliwatts": Way(_times(1000.0)),
    "volts of no mains": Way(_told(volts=0.2 * VOLTS), blinds=False),
    "counter reset": Way(_reset, blinds=False),
    "clamp reversed": Way(lambda r, _: replace(_times(-1.0)(r, 0), flags=(REVERSED,)), blinds=False),
    "input lost": Way(_told(flags=(INPUT_LOST,)), true=True),
    "trip reported": Way(lambda r, _: replace(_times(0.0)(r, 0), flags=(TRIPPED,)), falls=True, true=True),
}


@dataclass(frozen=True, slots=True)
class Known:
    """What else is known of the load."""

    node: str | None = None
    """Settings of each of the nodes on the circuit; None for none, where the meter needs none."""
    gpus: bool = False
    """Whether a collector reads their GPUs."""
    with_it: bool = False
    """Whether it dies with the meter."""
    panel: bool = False
    """Whether the circuit's panel has a meter, too."""
    other: bool = False
    """Whether another meter measures the same: of the nodes, or of the circuit."""
    restart: bool = False
    """Whether the aggregator starts again when the meter dies."""


KNOWN: Mapping[str, Known] = {
    "nothing": Known(),
    "declared watts": Known("watts = {declared}"),
    "GPUs": Known('gpus = "2x RTX 5090"', gpus=True),
    "GPUs that die with it": Known('gpus = "2x RTX 5090"', gpus=True, with_it=True),
    "GPUs of nodes that nothing describes, which die with it": Known("", gpus=True, with_it=True),
    "GPUs that die with it, before a restart": Known('gpus = "2x RTX 5090"', gpus=True, with_it=True, restart=True),
    "the panel's meter": Known(panel=True),
    "another meter": Known("", other=True),
    "the state before a restart": Known("watts = {declared}", restart=True),
}


@dataclass(slots=True)
class Cell:
    """A combination as a circuit of its own: its settings and what is read of it."""

    number: int
    kind: str
    way: str
    known: str
    watts: float
    """Of the whole circuit."""
    lines: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        kind, known = KINDS[self.kind], KNOWN[self.known]
        name, poles = f"c{self.number}", kind.poles
        panel = kind.on == "panel" or known.panel
        if panel:
            size = AMPS if kind.on == "panel" else 5 * AMPS
            self.lines += [f"[panels.p{self.number}]", "volts = 208", 'wiring = "3ph-wye"', f"breaker = {size}"]
        self.lines += [f"[circuits.{name}]", f"breaker = {AMPS}", f"pf = {FACTOR}"]
        if panel:
            self.lines += [f'panel = "p{self.number}"', "poles = 3" if poles == 3 else 'phase = "L1"']
        else:
            self.lines += ["poles = 3", "volts = 208", 'wiring = "3ph-wye"'] if poles == 3 else [f"volts = {VOLTS:g}"]
        for node in self.nodes:
            settings = (known.node or "").format(declared=round(0.4 * self.watts / 2))
            if poles == 3:
                settings = settings.replace("2x", "6x")
            self.lines += [f"[nodes.{node}]", f'cords = [{{ circuit = "{name}" }}]', settings]
        if kind.on == "ups":
            self.lines += [f"[ups.u{self.number}]", "watts = 3000", f'circuits = ["{name}"]']

    @property
    def nodes(self) -> tuple[str, ...]:
        """Nodes on it."""
        wanted = KINDS[self.kind].on in {"node", "inside", "ups"} or KNOWN[self.known].node is not None
        return (f"a{self.number}", f"b{self.number}") if wanted else ()

    @property
    def circuit(self) -> str:
        """Circuit or panel whose breaker is looked at."""
        return f"{'p' if KINDS[self.kind].on == 'panel' else 'c'}{self.number}"

    @property
    def witnessed(self) -> bool:
        """Whether a live measurement of the same load is left that can contradict its meter."""
        known = KNOWN[self.known]
        return known.gpus and not known.with_it

    @property
    def unknown(self) -> bool:
        """Whether its load is unknown from the start: the UPS tells nothing of nodes of which nothing is known."""
        return KINDS[self.kind].on == "ups" and not KNOWN[self.known].node

    @property
    def measured(self) -> float:
        """Watts that are measured beside the meter that dies; of GPUs the part below which a meter is refused."""
        live = list(self.live(0.0))
        nodes = sum(one.watts or 0.0 for one in live if one.target in self.nodes)
        same = [one.watts or 0.0 for one in live if one.target in {self.circuit, f"c{self.number}"}]
        return max(nodes, *same, LOW_RATIO * GPU_PART * self.watts if self.witnessed else 0.0)

    def meters(self, now: float, died: float | None) -> Iterator[MeterReading]:
        """Yield what its meters read `now`; those that die have `died` then."""
        way = WAYS[self.way]
        for reading in self._dying(now if died is None or not way.stops else died):
            after = reading if died is None else way.reads(reading, now - died)
            if after is not None:
                yield after
        yield from self.live(now)

    def live(self, now: float) -> Iterator[MeterReading]:
        """Yield what the meters read that go on."""
        known, on = KNOWN[self.known], KINDS[self.kind].on
        if known.panel and on != "panel":
            yield meter(f"p{self.number}", watts=self.watts * _noise(now))
        if known.other and on in {"circuit", "ups"}:
            for node in self.nodes:
                yield meter(
                    node, kind="node", source=WallSource.PLUG, watts=self.watts / 2 * _noise(now), meter=f"other-{node}"
                )
        elif known.other or (known.panel and on == "panel"):
            name = f"c{self.number}"
            yield meter(name, watts=self.watts * _noise(now), meter=f"other-{name}")

    def _dying(self, now: float) -> Iterator[MeterReading]:
        kind = KINDS[self.kind]
        match kind.on:
            case "node":
                for node in self.nodes:
                    yield self._reading(node, "node", self.watts / 2, now)
            case "ups":
                yield self._reading(f"u{self.number}", "ups", self.watts, now)
            case "circuit" if kind.parts is not None:
                for pole in ("L1", "L2", "L3"):
                    read = self._reading(self.circuit, "circuit", self.watts / 3, now)
                    yield replace(
                        read, pole=pole, parts=kind.parts, meter=read.meter if kind.parts else f"{read.meter}-{pole}"
                    )
            case "inside":
                pass  # `wall`
            case "circuit" | "panel":
                yield self._reading(self.circuit, "circuit", self.watts, now)

    def _reading(self, target: str, on: str, watts: float, now: float) -> MeterReading:
        kind = KINDS[self.kind]
        energy = 1e9 + watts * (now - NOISE * math.cos(now))
        watts *= _noise(now)
        every = {
            "watts": watts, "volt_amps": watts / FACTOR, "power_factor": FACTOR, "amps": watts / FACTOR / VOLTS, "volts": VOLTS,
            "energy_joules": energy,
        }  # fmt: skip
        return meter(target, kind=on, source=kind.source, period=10.0, **{name: every[name] for name in kind.tells})

    def wall(self, *, died: bool) -> Mapping[str, float]:
        """Return the watts that collectors read in BMCs."""
        if KINDS[self.kind].on != "inside" or (died and KNOWN[self.known].with_it):
            return {}
        found = {}
        for node in self.nodes:
            read = meter(node, kind="node", watts=self.watts / 2)
            after = WAYS[self.way].reads(read, 0.0) if died else read
            if after is not None and after.watts is not None and OFFLINE not in after.flags:
                found[node] = abs(after.watts)
        return found

    def gpus(self, *, died: bool) -> Mapping[str, float]:
        """Return the watts that collectors read in GPUs."""
        known = KNOWN[self.known]
        if not known.gpus or (known.with_it and died):
            return {}
        return dict.fromkeys(self.nodes, GPU_PART * self.watts / 2)


def cells(part_of_rating: float) -> list[Cell]:
    """Return all combinations, loaded to a part of their breakers' rating."""
    found = enumerate(product(KINDS, WAYS, KNOWN))
    return [
        Cell(number, kind, way, known, part_of_rating * AMPS * VOLTS * FACTOR * KINDS[kind].poles)
        for number, (kind, way, known) in found
    ]
