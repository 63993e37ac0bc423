"""Transformers, UPSs and transfer switches between the sources and the panels, as elements of the tree."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial

from power.devices.conversion import TRANSFORMER, Conversion, conversion_points
from power.devices.supply import Points, check_points
from power.site.circuit import Circuit, ElementKind, InGroup, InputCurrent, feeders, in_group, is_generator
from power.site.config import EfficiencyPoints, PowerConfig, TransferConfig, TransformerConfig, UpsConfig, amps
from power.site.protection import protect
from power.wiring import Wiring, line_to_neutral
from present.units import quoted
from telemetry.errors import ConfigError

PRIMARY = "{}.primary"
"""Name of the row of a transformer's primary breaker."""
MOST_OVER_BREAKER = 10
"""Full-load current of a transformer over the rating of its breaker from which one of both is a slip."""
UPS_POWER_FACTOR = 0.9
"""Watts over volt-amperes of a UPS whose second rating is not given."""


def chained_ups(site: PowerConfig) -> set[str]:
    """Return the UPSs that are elements of the tree: they say what feeds them, or feed an element by name.
    Others stand beside it, and are judged by their load alone."""
    named = {
        name
        for panel in site.panels.values()
        for name in ([panel.parent] if isinstance(panel.parent, str) else panel.parent or ())
    }
    named |= {each.parent for each in site.transformers.values() if each.parent}
    named |= {name for each in site.transfers.values() for name in (each.preferred, each.alternate)}
    named |= {name for each in site.circuits.values() for name in (each.parent, each.panel) if name}
    named |= {name for each in site.ups.values() for name in (each.parent, each.bypass) if isinstance(name, str)}
    return {
        name
        for name, ups in site.ups.items()
        if name in named or ups.parent or ups.source or isinstance(ups.bypass, str)
    }


def elements_of(where: str, site: PowerConfig) -> dict[str, str]:
    """Return the table of every element of the tree. Raises `ConfigError` for a name of two elements, and for
    an element that is named as a source."""
    chained = chained_ups(site)
    found: dict[str, str] = {}
    for table, names in (
        ("panels", site.panels),
        ("transformers", site.transformers),
        ("ups", [name for name in site.ups if name in chained]),
        ("transfers", site.transfers),
        ("circuits", site.circuits),
    ):
        for name in names:
            if name in found or name in site.sources:
                other = _SINGULAR[found.get(name, "sources")]
                raise ConfigError(f"{where}: {table}.{name}", f"a {other} has this name too", "Rename one of them.")
            found[name] = table
    for table, specs in (("panels", site.panels), ("transformers", site.transformers), ("ups", site.ups)):
        for name, spec in specs.items():
            if spec.source in found:
                other = _SINGULAR[found[spec.source]]
                cure = f'Write parent = "{spec.source}" where it feeds this, or give the source another name.'
                raise ConfigError(
                    f"{where}: {table}.{name}.source", f"{spec.source!r} is a {other}, not a source", cure
                )
    return found


_SINGULAR = {
    "panels": "panel", "transformers": "transformer", "ups": "UPS", "transfers": "transfer switch",
    "circuits": "circuit", "sources": "source",
}  # fmt: skip


def inputs_of(site: PowerConfig, table: str, name: str, behind: Mapping[str, str]) -> tuple[str, ...]:
    """Return the names of all that can feed an element. `behind`: UPS of the tree by circuit that it lists."""
    match table:
        case "panels":
            parent = site.panels[name].parent
            return (parent,) if isinstance(parent, str) else parent or ()
        case "transformers":
            parent = site.transformers[name].parent
            return (parent,) if parent else ()
        case "transfers":
            return (site.transfers[name].preferred, site.transfers[name].alternate)
        case "ups":
            ups = site.ups[name]
            bypass = ups.bypass if isinstance(ups.bypass, str) else None
            return tuple(each for each in (ups.parent, bypass) if each)
        case _:
            circuit = site.circuits[name]
            above = circuit.parent or circuit.panel or behind.get(name)
            return (above,) if above else ()


def transformer(
    place: str, name: str, spec: TransformerConfig, site: PowerConfig, circuits: Mapping[str, Circuit]
) -> list[Circuit]:
    """Return the rows of a transformer: its secondary, below its primary where that has a breaker."""
    above = _above(place, spec.parent, spec.source, site, circuits)
    primary_volts = spec.primary.volts or (above.between_volts if above else None)
    if primary_volts is None:
        raise ConfigError(
            f"{place}.primary.volts", "the voltage is missing", "Write primary = { volts = 480, breaker = 125 }."
        )
    if above is not None and abs(primary_volts / above.between_volts - 1) > 0.1:
        raise ConfigError(
            f"{place}.primary.volts",
            f"{quoted(primary_volts, 'V')}, and {above.id}, which feeds it, has {quoted(above.between_volts, 'V')}",
            f"Write volts = {above.between_volts:g}, or correct its parent.",
        )
    if spec.secondary.volts is None:
        raise ConfigError(
            f"{place}.secondary.volts", "the voltage is missing", "Write secondary = { volts = 208, breaker = 225 }."
        )
    source = spec.source or _source(spec.parent, above, site)
    root: tuple[str, ...] = (spec.parent,) if spec.parent else (source,) if source else ()
    make = partial(_row, site=site, source=source, generator=_generated(source, above, site))
    rows = []
    given = spec.primary.wiring
    wiring = above.wiring if above and given is None else given or Wiring.DELTA
    if spec.primary.breaker is not None:
        rows.append(
            make(
                f"{place}.primary",
                PRIMARY.format(name),
                above.id if above else None,
                ElementKind.TRANSFORMER,
                primary_volts,
                wiring,
                spec.primary.breaker,
                inputs=root,
                group=in_group(None),
            )
        )
    feeder = rows[0] if rows else above
    output = spec.secondary.wiring or (Wiring.WYE if feeder is None or len(feeder.poles) == 3 else feeder.wiring)
    three = output in {Wiring.WYE, Wiring.DELTA} and (feeder is None or len(feeder.poles) == 3)
    watts = spec.kva * 1000
    rows.append(
        replace(
            make(
                f"{place}.secondary",
                name,
                feeder.id if feeder else None,
                ElementKind.TRANSFORMER,
                spec.secondary.volts,
                output,
                spec.secondary.breaker,
                inputs=(rows[0].id,) if rows else root,
                group=in_group(spec.redundancy),
            ),
            link=InputCurrent.DELTA_WYE if spec.delta_wye and three else InputCurrent.WIRE,
            points=efficiency_points(f"{place}.efficiency", spec.efficiency, TRANSFORMER, watts),
            limit_volt_amps=watts,
        )
    )
    for side, row in zip(("primary", "secondary")[-len(rows) :], rows, strict=True):
        full = watts / (3 * row.volts if len(row.poles) == 3 else row.between_volts)
        if math.isfinite(row.rated_amps) and full > MOST_OVER_BREAKER * row.rated_amps:
            guess = f"Did you mean {spec.kva:g} VA, which are {spec.kva / 1000:g} kVA? Write kva = {spec.kva / 1000:g}."
            cure = guess if spec.kva >= 1000 else "Write the kva of its label, and the amps of its breakers."
            raise ConfigError(
                f"{place}.kva",
                f"{spec.kva:,g} kVA are {quoted(round(full), 'A')}, and its {side} breaker has {quoted(row.rated_amps, 'A')}",
                cure,
            )
    return rows


def transfer(
    place: str, name: str, spec: TransferConfig, site: PowerConfig, circuits: Mapping[str, Circuit]
) -> Circuit:
    """Return the row of a transfer switch."""
    names = (spec.preferred, spec.alternate)
    if spec.preferred == spec.alternate:
        raise ConfigError(f"{place}.alternate", "it is the preferred input too", "Name the other input.")
    for key, one in zip(("preferred", "alternate"), names, strict=True):
        feeders(f"{place}.{key}", (one,), site, circuits)
    rows = [circuits[one] for one in names if one in circuits]
    if not rows:
        raise ConfigError(
            f"{place}.preferred",
            "both inputs are sources, whose voltage is not known",
            'Put a panel behind each: [power.panels.main] volts = 480, source = "utility".',
        )
    if abs(rows[0].between_volts / rows[-1].between_volts - 1) > 0.1:
        raise ConfigError(
            f"{place}.alternate",
            f"{quoted(rows[-1].between_volts, 'V')}, and the preferred input has {quoted(rows[0].between_volts, 'V')}",
            "Name two inputs of one voltage.",
        )
    inputs = names if spec.on == "preferred" else names[::-1]
    above = circuits.get(inputs[0])
    source = inputs[0] if above is None else above.source
    return replace(
        _row(
            place,
            name,
            above.id if above else None,
            ElementKind.TRANSFER,
            rows[0].between_volts,
            rows[0].wiring,
            spec.breaker,
            site=site,
            source=source,
            generator=_generated(source, above, site),
            inputs=inputs,
            group=in_group(spec.redundancy),
        ),
        poles=rows[0].poles,
        volts=rows[0].volts,
    )


def ups_row(place: str, name: str, spec: UpsConfig, site: PowerConfig, circuits: Mapping[str, Circuit]) -> Circuit:
    """Return the row of a UPS that is an element of the tree."""
    above = _above(place, spec.parent, spec.source, site, circuits)
    if isinstance(spec.bypass, str):
        feeders(f"{place}.bypass", (spec.bypass,), site, circuits)
    source = spec.source or _source(spec.parent, above, site)
    first = spec.parent or source
    if spec.bypass is True and first is None:
        raise ConfigError(
            f"{place}.bypass", "it says not what feeds it", 'Write parent = "the panel", or bypass = "the panel".'
        )
    bypass = spec.bypass if isinstance(spec.bypass, str) else first if spec.bypass else None
    if spec.on_bypass and bypass is None:
        raise ConfigError(
            f"{place}.on_bypass", "it has no bypass", "Write bypass = true, or the name of what feeds it then."
        )
    model = above or circuits.get(bypass or "")
    volts = spec.volts or (model.between_volts if model else None)
    if volts is None:
        raise ConfigError(f"{place}.volts", "the voltage is missing", "Write volts = 415, between lines.")
    wiring = spec.wiring or (model.wiring if model else Wiring.WYE)
    points = efficiency_points(f"{place}.efficiency", spec.efficiency, spec.conversion, spec.watts)
    passes = spec.conversion is not Conversion.DOUBLE_CONVERSION
    inputs = tuple(dict.fromkeys(each for each in (first, bypass) if each))
    row = _row(
        place,
        name,
        above.id if above else None,
        ElementKind.UPS,
        volts,
        wiring,
        spec.breaker,
        site=site,
        source=source,
        generator=_generated(source, above, site),
        inputs=inputs,
        group=in_group(spec.redundancy),
    )
    if model is not None and spec.wiring is None:
        row = replace(row, poles=model.poles, volts=model.volts if spec.volts is None else row.volts)
    return replace(
        row,
        bypass=bypass,
        on_bypass=spec.on_bypass,
        modules=spec.modules,
        points=points,
        link=InputCurrent.WIRE if passes else InputCurrent.CONVERTER,
        limit_watts=spec.watts,
        limit_volt_amps=spec.volt_amps or spec.watts / UPS_POWER_FACTOR,
    )


def _row(
    place: str,
    name: str,
    parent: str | None,
    kind: ElementKind,
    volts: float,
    wiring: Wiring,
    breaker: float | str | None,
    *,
    site: PowerConfig,
    source: str | None,
    generator: bool,
    inputs: tuple[str, ...],
    group: InGroup,
) -> Circuit:
    """Return an element that has no cords of its own; without a breaker it limits no current."""
    poles = (0,) if wiring is Wiring.SINGLE else (0, 1) if wiring is Wiring.SPLIT else (0, 1, 2)
    rated = None if breaker is None else amps(f"{place}.breaker", breaker)
    limits = protect(place, rated, volts, site)
    return Circuit(
        name,
        parent,
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
        source=source,
        is_panel=True,
        generator=generator,
        kind=kind,
        inputs=inputs,
        **group,
    )


def _above(
    place: str, parent: str | None, source: str | None, site: PowerConfig, circuits: Mapping[str, Circuit]
) -> Circuit | None:
    if parent is not None and source is not None:
        raise ConfigError(place, "it has a parent and a source", "Keep the nearer one, the parent.")
    found = feeders(f"{place}.parent", (parent,) if parent else (), site, circuits)
    return found[0] if found else None


def _source(parent: str | None, above: Circuit | None, site: PowerConfig) -> str | None:
    if parent is not None and parent in site.sources:
        return parent
    return above.source if above else None


def _generated(source: str | None, above: Circuit | None, site: PowerConfig) -> bool:
    return above.generator if above is not None else is_generator(source, site)


def efficiency_points(
    place: str, given: EfficiencyPoints | None, conversion: Conversion | None, watts: float
) -> Points:
    """Return the efficiency by load, typical where none is given. Raises `ConfigError`."""
    if given is None:
        return conversion_points(conversion, watts)
    try:
        return check_points(((1e-6, given), (1.0, given)) if isinstance(given, float | int) else given)
    except ValueError as error:
        raise ConfigError(place, str(error), "Write 0.96, or [[0.25, 0.94], [0.5, 0.96], [1.0, 0.96]].") from error
