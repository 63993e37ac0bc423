"""The fleet map: a cell for each GPU, by rack and node, coloured by a quantity of one scale for the fleet. Of a few
GPUs a cell has its figure; of many a rack is one picture."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

from aggregator.web.icons import icon
from aggregator.web.markup import link, path, text
from present.units import celsius, percent, watts
from telemetry.catalogue import CATALOGUE
from telemetry.text import counted

_METRICS = {metric.name: metric for metric in CATALOGUE}
QUANTITIES = {"temperature": "gpu_temperature_celsius", "power": "gpu_power_watts", "use": "gpu_utilization_ratio"}
"""Metrics of the map by their names in the URL, the default first."""
STEPS = 6
CELL, GAP, ACROSS = 5, 1, 8
"""Units of a cell of a rack's picture, between cells, and cells of a row."""
DEEP, MOST_COLUMNS = 18, 15
"""Rows of a rack's picture up to which it has one column, and columns that have room beside each other: all nodes of which no
rack is known are one."""
_STEP, _ROOM = 50.0, 1.03
"""Watts to which the end of the scale of power is rounded up, and its least room: GPUs at a limit of 700 W read some watts more
or less, and the end stays."""


class MapForm(StrEnum):
    """Forms of the map, the most detailed first."""

    FIGURES = "figures"
    """Each node is a box with a figure of each GPU."""
    NAMED = "named"
    """Each rack is a picture with its name."""
    DENSE = "dense"
    """Each rack is a picture of one size, its name shown when it is pointed at or has the focus: 10,000 GPUs on one screen."""


class NodeCells(NamedTuple):
    """The GPUs of a node."""

    rack: str
    node: str
    values: Sequence[float]
    """NaN is not known."""
    uuids: Sequence[str]
    mark: str = ""
    """Severity of its worst alert: `page`, `ticket` or ""."""
    marks: Mapping[str, str] = {}
    """The same by GPU."""


class OtherNode(NamedTuple):
    """A node that has no GPUs, and need not have any."""

    role: str
    node: str
    state: str
    """Of its collector: `online`, `stale`, `offline` or `unheard`."""


def other_nodes(nodes: Sequence[OtherNode]) -> str:
    """Return the band of the nodes without GPUs, by role."""
    listed = sorted(nodes, key=lambda one: (one.role, one.node))
    groups = "".join(
        f'<section class="rack"><h3>{text(role) or "no role"}</h3><p>'
        f"{' '.join(_other(one) for one in inside)}</p></section>"
        for role, inside in groupby(listed, key=lambda one: one.role)
    )
    return f'<div class="map">{groups}</div>'


def _other(one: OtherNode) -> str:
    name = link(one.node, "nodes", one.node)
    return name if one.state == "online" else f'{name} <span class="badge ticket">{text(one.state)}</span>'


def fleet_map(nodes: Sequence[NodeCells], quantity: str, form: MapForm = MapForm.FIGURES) -> str:
    """Return the map with its legend and a choice of the quantity."""
    scale = scale_of(quantity, max((_highest(one.values) for one in nodes), default=0.0))
    if form is not MapForm.FIGURES:
        return map_of(quantity, scale, [rack_pictures(nodes, quantity, scale)], form)
    boxes = {rack: _boxes(rack, inside, quantity, scale) for rack, inside in _by_rack(nodes).items()}
    return map_of(quantity, scale, [_drawn(nodes, boxes)], form)


class DrawnRacks(NamedTuple):
    """Racks as they were drawn at one time."""

    html: Mapping[str, str]
    """By rack."""
    gpus: int
    unknown: int
    """GPUs of them whose value is not known."""


def rack_pictures(nodes: Sequence[NodeCells], quantity: str, scale: tuple[float, float]) -> DrawnRacks:
    """Draw each rack as one picture."""
    pictures = {rack: _picture(rack, inside, quantity, scale) for rack, inside in _by_rack(nodes).items()}
    return _drawn(nodes, pictures)


def map_of(quantity: str, scale: tuple[float, float], drawn: Sequence[DrawnRacks], form: MapForm) -> str:
    """Return the map of racks that are drawn, each rack in its place."""
    tabs = "".join(
        f'<li><a href="{path("", map=name)}#map"{" aria-current=page" if name == quantity else ""}>{name}</a></li>'
        for name in QUANTITIES
    )
    unknown = sum(one.unknown for one in drawn)
    missing = f", {unknown:,} not known (hatched)" if unknown else ""
    found = counted(sum(one.gpus for one in drawn), "GPU") + missing
    racks = [each for one in drawn for each in one.html.items()]
    groups = "".join(html for _, html in sorted(racks, key=lambda each: place_of(each[0])))
    return (
        f'<nav aria-label="Quantity of the map"><ul class="tabs">{tabs}</ul></nav>'
        f"{_legend(quantity, *scale, found)}"
        f'<div class="map{" dense" if form is MapForm.DENSE else ""}">{groups}</div>'
    )


def scale_of(quantity: str, highest: float) -> tuple[float, float]:
    """Return the ends of the scale: of temperatures and use those of all charts; of power 0 and the highest reading, rounded
    up, so that no cell changes its colour because another GPU draws a watt more."""
    span = _METRICS[QUANTITIES[quantity]].span or (0.0, 1.0)
    return (0.0, math.ceil(highest * _ROOM / _STEP) * _STEP or span[1]) if quantity == "power" else span


def _highest(values: Sequence[float]) -> float:
    return max((value for value in values if not math.isnan(value)), default=0.0)


def _drawn(nodes: Sequence[NodeCells], html: Mapping[str, str]) -> DrawnRacks:
    unknown = sum(math.isnan(value) for one in nodes for value in one.values)
    return DrawnRacks(html, sum(len(one.values) for one in nodes), unknown)


def place_of(rack: str) -> tuple[bool, str]:
    """Return by what racks are sorted: that of nodes without one is the last."""
    return not rack, rack


def columns_of(rows: int) -> tuple[int, int]:
    """Return the columns of the picture of a rack, and the rows of each."""
    columns = min(MOST_COLUMNS, max(1, -(-rows // DEEP)))
    return columns, max(1, -(-rows // columns))


def _by_rack(nodes: Sequence[NodeCells]) -> dict[str, list[NodeCells]]:
    listed = sorted(nodes, key=lambda one: (place_of(one.rack), one.node))
    return {rack: list(inside) for rack, inside in groupby(listed, key=lambda one: one.rack)}


def _boxes(rack: str, nodes: Sequence[NodeCells], quantity: str, scale: tuple[float, float]) -> str:
    """Return each node of a rack as a box with the figures of its GPUs, which are links."""
    where = f' <span class="dim">{text(rack)}</span>' if rack else ""
    return "".join(
        f'<section data-k="{text(one.node)}" class="rack {one.mark}"><h3>{_marked(one.mark)}{link(one.node, "nodes", one.node)}{where}</h3>'
        f'<p class="figures">{"".join(_figure(one, place, quantity, scale) for place in range(len(one.values)))}</p></section>'
        for one in nodes
    )


def _figure(one: NodeCells, place: int, quantity: str, scale: tuple[float, float]) -> str:
    value, uuid = one.values[place], one.uuids[place]
    mark = one.marks.get(uuid, "")
    words = "?" if math.isnan(value) else _value(quantity, value).partition(" ")[0]
    title = f"GPU {place}: {'not known' if math.isnan(value) else _value(quantity, value)}"
    return (
        f'<a class="{colour(value, *scale)} {mark}" href="{path("gpus", uuid)}" title="{text(title)}">{text(words)}</a>'
    )


def _picture(rack: str, nodes: Sequence[NodeCells], quantity: str, scale: tuple[float, float]) -> str:
    """Return a rack as one picture, a row for each node: cells of one colour side by side are one dashed line, because
    thousands of elements more are seconds of a browser. Its colours have an order, so that a browser changes the lines
    that it has."""
    shapes: dict[str, str] = {}
    columns, deep = columns_of(sum(-(-len(one.values) // ACROSS) for one in nodes))
    wide = ACROSS * (CELL + GAP) + GAP
    number = 0
    for one in nodes:
        names = [
            one.marks.get(uuid, "") or colour(value, *scale) for uuid, value in zip(one.uuids, one.values, strict=True)
        ]
        for first in range(0, len(names), ACROSS):
            place, (column, row) = 0, divmod(number, deep)
            for name, same in groupby(names[first : first + ACROSS]):
                many = len(list(same))
                way = f"M{column * wide + place * (CELL + GAP)} {row * (CELL + GAP)}"
                place += many
                shapes[name] = f"{shapes.get(name, '')}{way}H{column * wide + place * (CELL + GAP) - GAP}"
            number += 1
    width, height = columns * wide - 2 * GAP, deep * (CELL + GAP) - GAP
    mark = next((each for each in ("page", "ticket") if any(one.mark == each for one in nodes)), "")
    cells = "".join(f'<path class="{name}" d="{way}"/>' for name, way in sorted(shapes.items()))
    title = f"{rack or 'in no rack'}, {counted(len(nodes), 'node')}{f', {mark}' if mark else ''}"
    return (
        f'<a data-k="{text(rack)}." class="rack {mark}" href="{path("nodes", q=rack)}" title="{text(title)}">{_marked(mark)}<span class="name">{text(rack) or "in no rack"}</span>'
        f'<svg data-k="cells" viewBox="0 -{CELL / 2} {width} {height}" width="{width}" height="{height}" preserveAspectRatio="none" aria-hidden="true">{cells}</svg></a>'
    )


def _marked(mark: str) -> str:
    return f'<span class="mark">{icon(mark)}</span>' if mark else ""


def colour(value: float, low: float, high: float) -> str:
    """Return the class of the colour of a value on a scale, `qx` where it is not known."""
    if math.isnan(value):
        return "qx"
    share = (value - low) / (high - low) if high > low else 0.0
    return f"q{min(STEPS - 1, max(0, int(share * STEPS)))}"


def _value(quantity: str, value: float) -> str:
    words: dict[str, Callable[[float], str]] = {"temperature": celsius, "power": watts, "use": percent}
    return words[quantity](value)


def _legend(quantity: str, low: float, high: float, found: str) -> str:
    swatches = "".join(f'<rect class="q{step}" x="{step * 12}" y="0" width="12" height="12"/>' for step in range(STEPS))
    return (
        f'<p data-k="legend" class="legend">{text(quantity)} {text(_value(quantity, low))} <svg viewBox="0 0 {STEPS * 12} 12" width="{STEPS * 12}" height="12" '
        f'aria-hidden="true">{swatches}</svg> {text(_value(quantity, high))}; {link("all nodes", "nodes")}; {found}</p>'
    )
