"""Circuits and panels with inherited and default values: wiring, volts, limits, curve."""

from __future__ import annotations

import re
from dataclasses import dataclass

from power.devices.breaker import HOME_VOLTS, Band, Curve, band, default_curve, effective_amps
from power.network.wiring import POLES, Wiring, line_to_neutral
from power.site.config import CircuitConfig, PanelConfig, PowerConfig, amps
from telemetry.errors import ConfigError, did_you_mean

_PANEL_VOLTS = {"MX": 220.0, "TW": 220.0, "JP": 200.0}
"""Between two lines of a panel of three phases, where it is neither 208 nor 400."""


@dataclass(frozen=True, slots=True)
class Circuit:
    """A circuit or panel with what it inherits and defaults."""

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
    neutral_amps: float
    other_watts: float = 0.0
    plug_amps: float | None = None
    group: str | None = None
    scheme: str = "2N"
    source: str | None = None
    is_panel: bool = False
    role: str | None = None
    """Role among the feeds of its group."""
    sag: float = 1.0
    """`volts` over the nominal voltage."""
    generator: bool = False
    """Whether a generator feeds it."""

    @property
    def outlet_ratio(self) -> float:
        """Volts between two of its poles over volts to neutral."""
        return 2.0 if self.wiring is Wiring.SPLIT else 3**0.5

    @property
    def nominal_volts(self) -> float:
        """Nominal volts between poles where it has several, else to neutral."""
        return self.volts / self.sag * (self.outlet_ratio if len(self.poles) > 1 else 1.0)


def panel_circuit(place: str, name: str, panel: PanelConfig, site: PowerConfig) -> Circuit:
    volts = panel.volts or (
        _PANEL_VOLTS.get(site.region or "", 208.0) if site.region in HOME_VOLTS else 400.0
    )
    wiring = panel.wiring or (Wiring.SPLIT if volts == 240 else Wiring.WYE)
    if name in site.circuits:
        raise ConfigError(place, "a circuit has this name too", "Rename one of them.")
    poles = (0,) if wiring is Wiring.SINGLE else (0, 1) if wiring is Wiring.SPLIT else (0, 1, 2)
    known = panel.breaker is not None
    rated = amps(f"{place}.breaker", panel.breaker) if panel.breaker is not None else float("inf")
    curve = default_curve(volts, site.region)
    return Circuit(
        name, None, wiring, poles, line_to_neutral(volts, wiring, len(poles)), rated, rated,
        0.8 * rated, 0.97, curve if known else None, band(curve, rated), rated,
        source=panel.source, is_panel=True, generator=panel.generator,
    )  # fmt: skip


def branch_circuit(
    place: str,
    name: str,
    spec: CircuitConfig,
    site: PowerConfig,
    circuits: dict[str, Circuit],
    notices: list[str],
) -> Circuit:
    above_name = spec.parent or spec.panel
    if spec.parent is not None and spec.panel is not None:
        raise ConfigError(place, "it has a parent and a panel", "Keep the nearer one, the parent.")
    if above_name is not None and above_name not in circuits:
        key = "parent" if spec.parent else "panel"
        known = [*site.panels, *site.circuits]
        raise ConfigError(f"{place}.{key}", f"there is no {above_name!r}", did_you_mean(above_name, known) or f"Known: {', '.join(known)}.")  # fmt: skip
    above = circuits[above_name] if above_name else None
    given = spec.breaker if spec.breaker is not None else spec.rated_amps
    if given is None:
        raise ConfigError(f"{place}.breaker", "the rating is missing", "Write breaker = 15, the amps on the breaker's handle.")  # fmt: skip
    rated = amps(f"{place}.breaker", given)
    for key, value, top in (("continuous", spec.continuous, 1.0), ("pf", spec.pf, 1.0), ("sag", spec.sag, 1.0), ("grouping", spec.grouping, 1.0)):  # fmt: skip
        if not 0 < value <= top:
            raise ConfigError(f"{place}.{key}", f"{value:g} is out of range", "Write a ratio above 0, at most 1.")  # fmt: skip
    wiring, poles, volts = _wires(place, spec, site, above)
    if volts <= 0:
        raise ConfigError(f"{place}.volts", f"{volts:g} V is no voltage", "Write volts = 120.")
    if above is not None and rated > above.rated_amps:
        raise ConfigError(f"{place}.breaker", f"{rated:g} A is above the {above.rated_amps:g} A of {above.id}, which feeds it", f"Write at most {above.rated_amps:g}, or correct {above.id}.")  # fmt: skip
    curve = spec.curve or default_curve(round(volts * (1 if len(poles) == 1 else 3**0.5)), site.region)  # fmt: skip
    derated = spec.rating_is_derated
    if above is None and site.region is None and spec.curve is None and spec.volts is None:
        notices.append(f"circuits.{name}: neither region nor volts is set; 120 V and UL 489 are assumed")  # fmt: skip
    return Circuit(
        name, above_name, wiring, poles, volts * spec.sag, rated,
        rated if derated else effective_amps(rated, curve, site.site.ambient_c, spec.grouping),
        rated if derated else rated * spec.continuous, spec.pf, None if derated else curve,
        band(curve, rated), spec.neutral_amps or rated, spec.other_w, spec.plug_amps,
        spec.redundancy.group if spec.redundancy else None,
        spec.redundancy.scheme if spec.redundancy else "2N", above.source if above else None,
        role=spec.redundancy.role if spec.redundancy else None, sag=spec.sag,
        generator=above is not None and above.generator,
    )  # fmt: skip


def _wires(
    place: str, spec: CircuitConfig, site: PowerConfig, above: Circuit | None
) -> tuple[Wiring, tuple[int, ...], float]:
    """Return wiring, poles and volts to neutral."""
    three = spec.wiring in {Wiring.WYE, Wiring.DELTA}
    count = spec.poles or (len(parse_poles(place, spec.phase)) if spec.phase else 0)
    count = count or (3 if three else 2 if spec.wiring is Wiring.SPLIT else 1)
    if not 1 <= count <= 3:
        raise ConfigError(f"{place}.poles", f"{count} poles are not to be had", "Write 1, 2 or 3.")
    system = above.wiring if above else spec.wiring
    if system is None or (system is Wiring.SINGLE and count > 1):
        system = Wiring.SINGLE if count == 1 else Wiring.WYE if count == 3 or spec.volts == 208 else Wiring.SPLIT  # fmt: skip
    if spec.phase:
        poles = parse_poles(f"{place}.phase", spec.phase)
        if len(poles) != count:
            raise ConfigError(f"{place}.phase", f"{spec.phase} names {len(poles)} poles, and poles is {count}", "Make them agree.")  # fmt: skip
    elif above is not None and count < len(above.poles):
        raise ConfigError(f"{place}.phase", f"{above.id} has {len(above.poles)} poles and this circuit {count}", 'Say which: phase = "L1" or "L1-L2".')  # fmt: skip
    else:
        poles = above.poles[:count] if above is not None else tuple(range(count))
    if above is not None and not set(poles) <= set(above.poles):
        raise ConfigError(f"{place}.phase", f"{above.id} does not have these poles", f"It has {'-'.join(POLES[p] for p in above.poles)}.")  # fmt: skip
    if len(poles) < count:
        raise ConfigError(f"{place}.poles", f"{count} poles are not to be had here", "Write 1, 2 or 3.")  # fmt: skip
    if spec.volts is None and above is not None:
        return system, poles, above.volts
    home = HOME_VOLTS.get(site.region or "US", 230.0)
    # Two poles of a home are twice its voltage apart, lines of three sqrt(3) times: 240 and 208 V.
    between = 2 if system is Wiring.SPLIT else 3**0.5
    volts = spec.volts if spec.volts is not None else home * (between if count > 1 else 1)
    if count == 2 and system is not Wiring.SPLIT:
        return system, poles, volts / 3**0.5  # volts between two lines of three
    return system, poles, line_to_neutral(volts, system, count)


def parse_poles(place: str, text: str) -> tuple[int, ...]:
    """Return (0, 1) of `L1-L2`."""
    words = re.findall(r"L[1-9]", text.upper())
    if not words or any(word not in POLES for word in words) or len(set(words)) < len(words):
        raise ConfigError(place, f"{text!r} names no poles", "Write L1, L2, L3 or L1-L2.")
    return tuple(sorted(POLES.index(word) for word in words))
