"""Circuits and panels with inherited and default values: wiring, volts, limits, curve."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypedDict

from power.devices.breaker import Band, Curve
from power.devices.mains import MAINS
from power.devices.supply import Points
from power.site.config import CircuitConfig, PanelConfig, PowerConfig, RedundancyConfig, amps
from power.site.protection import protect
from power.wiring import POLES, Wiring, line_to_neutral
from present.units import quoted
from telemetry.errors import ConfigError, did_you_mean

_MAINS = MAINS["EU"]
"""Mains of a region that is not known."""
_OTHER_SYSTEM = 0.05
"""Lines of three that differ by more from sqrt(3) times a home's voltage come from a service of their own: the 200 V
of Japan, the 220 V of Taiwan."""


class ElementKind(StrEnum):
    """Kind of a row of the tree."""

    CIRCUIT = "circuit"
    PANEL = "panel"
    TRANSFORMER = "transformer"
    UPS = "ups"
    TRANSFER = "transfer"


class InputCurrent(StrEnum):
    """Relation of the currents of an element to those at its input."""

    WIRE = "wire"
    """Pole by pole, at the input's voltage."""
    DELTA_WYE = "delta-wye"
    """Through windings between lines: a load of one pole draws from two."""
    CONVERTER = "converter"
    """Evenly from all poles, as a rectifier draws."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """An element of the tree: a circuit, panel, transformer, UPS or transfer switch, with what it inherits
    and defaults."""

    id: str
    parent: str | None
    wiring: Wiring
    poles: tuple[int, ...]
    """Which of L1, L2, L3, from 0."""
    volts: float
    """To neutral."""
    rated_amps: float
    effective_amps: float
    """Rating after derating for heat and grouping; the trip model's reference."""
    continuous_amps: float
    power_factor: float
    curve: Curve | None
    """None where the physical rating is not known; there is no trip time then."""
    band: Band
    """Over `effective_amps`."""
    neutral_amps: float
    other_watts: float = 0.0
    plug_amps: float | None = None
    group: str | None = None
    scheme: str = "2N"
    source: str | None = None
    is_panel: bool = False
    """Whether it is no circuit: a panel, or another element that feeds circuits."""
    role: str | None = None
    """Role among the feeds of its group."""
    sag: float = 1.0
    """`volts` over the nominal voltage."""
    generator: bool = False
    """Whether a generator feeds it."""
    kind: ElementKind = ElementKind.CIRCUIT
    side: str | None = None
    """Side of its group that is lost together."""
    inputs: tuple[str, ...] = ()
    """Elements and sources that can feed it, the one in use first; `parent` is that one."""
    parallel: bool = False
    """Whether all inputs feed it together."""
    bypass: str | None = None
    """Input that feeds past a UPS that has failed; None where its loads go dark."""
    on_bypass: bool = False
    modules: int = 1
    link: InputCurrent = InputCurrent.WIRE
    points: Points = ()
    """Output over input by load; none where nothing is lost."""
    limit_watts: float = math.inf
    limit_volt_amps: float = math.inf
    third_harmonic: float = 0.0
    """Amps of the third harmonic over those of a pole."""

    @property
    def outlet_ratio(self) -> float:
        """Volts between two of its poles over volts to neutral."""
        return 2.0 if self.wiring is Wiring.SPLIT else 3**0.5

    @property
    def between_volts(self) -> float:
        """Volts as settings name them: between lines, or to neutral of a single pole."""
        if self.wiring is Wiring.SINGLE or len(self.poles) == 1:
            return self.volts / self.sag
        return self.volts / self.sag * self.outlet_ratio

    @property
    def nominal_volts(self) -> float:
        """Nominal volts between poles where it has several, else to neutral."""
        return self.volts / self.sag * (self.outlet_ratio if len(self.poles) > 1 else 1.0)


def panel_circuit(
    place: str, name: str, panel: PanelConfig, site: PowerConfig, circuits: Mapping[str, Circuit]
) -> Circuit:
    if name in site.circuits:
        raise ConfigError(place, "a circuit has this name too", "Rename one of them.")
    parents = (panel.parent,) if isinstance(panel.parent, str) else panel.parent or ()
    above = feeders(f"{place}.parent", parents, site, circuits)
    first = above[0] if above else None
    usual = first.between_volts if first else MAINS.get(site.region or "", _MAINS).between
    volts = panel.volts or usual
    wiring = panel.wiring or (first.wiring if first else Wiring.SPLIT if volts == 240 else Wiring.WYE)
    poles = (
        first.poles if first else (0,) if wiring is Wiring.SINGLE else (0, 1) if wiring is Wiring.SPLIT else (0, 1, 2)
    )
    rated = None if panel.breaker is None else amps(f"{place}.breaker", panel.breaker)
    if first is not None and len(above) == 1 and rated is not None:
        check_rating(f"{place}.breaker", rated, first)
    _check_ratio(f"{place}.continuous", panel.continuous)
    limits = protect(place, rated, volts, site, curve=panel.curve, lsi=panel.lsi, continuous=panel.continuous)
    source = panel.source or next((p for p in parents if p in site.sources), None)
    return Circuit(
        name,
        first.id if first else None,
        wiring,
        poles,
        line_to_neutral(volts, wiring, len(poles)),
        limits.rated_amps,
        limits.effective_amps,
        limits.continuous_amps,
        0.97,
        limits.curve,
        limits.band,
        limits.rated_amps,
        source=source or (first.source if first else None),
        is_panel=True,
        generator=panel.generator or is_generator(source, site) or any(one.generator for one in above),
        kind=ElementKind.PANEL,
        inputs=parents or ((source,) if source else ()),
        parallel=len(parents) > 1,
        other_watts=panel.other_w,
        **in_group(panel.redundancy),
    )


class InGroup(TypedDict):
    """Place of an element in its redundancy group."""

    group: str | None
    scheme: str
    role: str | None
    side: str | None


def in_group(spec: RedundancyConfig | None) -> InGroup:
    """Return the group, scheme, role and side of an element."""
    if spec is None:
        return {"group": None, "scheme": "2N", "role": None, "side": None}
    side = spec.side or re.sub(r"[-_ .]?\d+$", "", spec.role) or spec.role
    return {"group": spec.group, "scheme": spec.scheme, "role": spec.role, "side": side}


def is_generator(source: str | None, site: PowerConfig) -> bool:
    """Return whether a source is declared as a generator."""
    return source is not None and source in site.sources and site.sources[source].generator


def feeders(place: str, names: tuple[str, ...], site: PowerConfig, circuits: Mapping[str, Circuit]) -> list[Circuit]:
    """Return the elements among the named inputs; sources are no rows. Raises `ConfigError`."""
    for name in names:
        if name not in circuits and name not in site.sources:
            known = [*site.sources, *site.panels, *site.transformers, *site.transfers, *site.ups, *site.circuits]
            raise ConfigError(
                place, f"there is no {name!r}", did_you_mean(name, known) or f"Known: {', '.join(known)}."
            )
    if len(set(names)) < len(names):
        raise ConfigError(place, "an input is named twice", "Name each once.")
    return [circuits[name] for name in names if name in circuits]


def check_rating(place: str, rated: float, above: Circuit) -> None:
    """Refuse a breaker above that of what feeds it."""
    if rated > above.rated_amps:
        raise ConfigError(
            place,
            f"{quoted(rated, 'A')} is above the {quoted(above.rated_amps, 'A')} of {above.id}, which feeds it",
            f"Write at most {above.rated_amps:g}, or correct {above.id}.",
        )


def branch_circuit(
    place: str,
    name: str,
    spec: CircuitConfig,
    site: PowerConfig,
    circuits: dict[str, Circuit],
    notices: list[str],
    behind: str | None = None,
) -> Circuit:
    """Return a circuit. `behind`: the UPS of the tree that lists it."""
    above_name = spec.parent or spec.panel or behind
    if spec.parent is not None and spec.panel is not None:
        raise ConfigError(place, "it has a parent and a panel", "Keep the nearer one, the parent.")
    inputs = (above_name,) if above_name else ()
    found = feeders(f"{place}.{'parent' if spec.parent else 'panel'}", inputs, site, circuits)
    above = found[0] if found else None
    source = above.source if above else above_name
    given = spec.breaker if spec.breaker is not None else spec.rated_amps
    if given is None:
        raise ConfigError(
            f"{place}.breaker", "the rating is missing", "Write breaker = 15, the amps on the breaker's handle."
        )
    rated = amps(f"{place}.breaker", given)
    for key in ("continuous", "pf", "sag", "grouping"):
        _check_ratio(f"{place}.{key}", getattr(spec, key))
    wiring, poles, volts = _wires(place, spec, site, above)
    if volts <= 0:
        raise ConfigError(f"{place}.volts", f"{quoted(volts, 'V')} is no voltage", "Write volts = 120.")
    if above is not None:
        check_rating(f"{place}.breaker", rated, above)
    limits = protect(
        place,
        rated,
        round(volts * (1 if len(poles) == 1 else 3**0.5)),
        site,
        curve=spec.curve,
        lsi=spec.lsi,
        continuous=spec.continuous,
        grouping=spec.grouping,
        connector=spec.connector,
        derated=spec.rating_is_derated,
    )
    if above is None and site.region is None and spec.curve is None and spec.volts is None:
        notices.append(f"circuits.{name}: neither region nor volts is set; 120 V and UL 489 are assumed")
    return Circuit(
        name,
        above.id if above else None,
        wiring,
        poles,
        volts * spec.sag,
        rated,
        limits.effective_amps,
        limits.continuous_amps,
        spec.pf,
        limits.curve,
        limits.band,
        spec.neutral_amps or rated,
        spec.other_w,
        spec.plug_amps,
        source=source,
        sag=spec.sag,
        inputs=inputs,
        **in_group(spec.redundancy),
        generator=above.generator if above is not None else is_generator(source, site),
        third_harmonic=spec.third_harmonic,
    )


def _check_ratio(place: str, value: float | None) -> None:
    if value is not None and not 0 < value <= 1:
        raise ConfigError(place, f"{value:g} is out of range", "Write a ratio above 0, at most 1.")


def _wires(
    place: str, spec: CircuitConfig, site: PowerConfig, above: Circuit | None
) -> tuple[Wiring, tuple[int, ...], float]:
    """Return wiring, poles and volts to neutral."""
    three = spec.wiring in {Wiring.WYE, Wiring.DELTA}
    count = spec.poles or (len(parse_poles(place, spec.phase)) if spec.phase else 0)
    count = count or (3 if three else 2 if spec.wiring is Wiring.SPLIT else 1)
    if not 1 <= count <= 3:
        raise ConfigError(f"{place}.poles", f"{count} poles are not to be had", "Write 1, 2 or 3.")
    if spec.wiring is Wiring.SINGLE and count > 1:
        raise ConfigError(
            f"{place}.wiring",
            f"single is one pole, and this circuit has {count}",
            "Write split, wye or delta, or poles = 1.",
        )
    system = above.wiring if above else spec.wiring
    if system is None or (system is Wiring.SINGLE and count > 1):
        system = Wiring.SINGLE if count == 1 else Wiring.WYE if count == 3 or spec.volts == 208 else Wiring.SPLIT
    if spec.phase:
        poles = parse_poles(f"{place}.phase", spec.phase)
        if len(poles) != count:
            raise ConfigError(
                f"{place}.phase", f"{spec.phase} names {len(poles)} poles, and poles is {count}", "Make them agree."
            )
    elif above is not None and count < len(above.poles):
        raise ConfigError(
            f"{place}.phase",
            f"{above.id} has {len(above.poles)} poles and this circuit {count}",
            'Say which: phase = "L1" or "L1-L2".',
        )
    else:
        poles = above.poles[:count] if above is not None else tuple(range(count))
    if above is not None and not set(poles) <= set(above.poles):
        raise ConfigError(
            f"{place}.phase",
            f"{above.id} does not have these poles",
            f"It has {'-'.join(POLES[p] for p in above.poles)}.",
        )
    if len(poles) < count:
        raise ConfigError(f"{place}.poles", f"{count} poles are not to be had here", "Write 1, 2 or 3.")
    if system is Wiring.DELTA and count == 1:
        raise ConfigError(
            f"{place}.phase",
            "a delta has no neutral, and one pole names one line",
            'Write phase = "L1-L2"; where a transformer has a centre tap, declare its two halves as wiring = "split".',
        )
    if spec.volts is None and above is not None:
        return system, poles, above.volts
    mains = MAINS.get(site.region or "US", _MAINS)
    # Two poles of a home are twice its voltage apart, lines of three sqrt(3) times: 240 and 208 V.
    between = 2 if system is Wiring.SPLIT else 3**0.5
    usual = mains.volts * (between if count > 1 else 1)
    if count > 1 and system is not Wiring.SPLIT and abs(mains.between / usual - 1) > _OTHER_SYSTEM:
        usual = mains.between
    volts = spec.volts if spec.volts is not None else usual
    if count == 2 and system is not Wiring.SPLIT:
        return system, poles, volts / 3**0.5  # volts between two lines of three
    return system, poles, line_to_neutral(volts, system, count)


def parse_poles(place: str, text: str) -> tuple[int, ...]:
    """Return (0, 1) of `L1-L2`."""
    words = re.findall(r"L[1-9]", text.upper())
    if not words or any(word not in POLES for word in words) or len(set(words)) < len(words):
        raise ConfigError(place, f"{text!r} names no poles", "Write L1, L2, L3 or L1-L2.")
    return tuple(sorted(POLES.index(word) for word in words))
