"""The fleet map: a cell for each GPU, by rack and node, coloured by a quantity of one scale for the fleet."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import NamedTuple

from aggregator.web.markup import link, path, text
from present.units import value_text
from telemetry.catalogue import CATALOGUE
from telemetry.text import counted

_METRICS = {metric.name: metric for metric in CATALOGUE}
QUANTITIES = {
    "temperature": "gpu_temperature_celsius",
    "power": "gpu_power_watts",
    "use": "gpu_utilization_ratio",
}
"""Metrics of the map by their names in the URL, the default first."""
STEPS = 8
CELL, GAP, ACROSS = 12, 2, 8
"""Units of a cell, between cells, and cells of a row."""


class NodeCells(NamedTuple):
    """The GPUs of a node."""

    rack: str
    node: str
    values: Sequence[float]
    """NaN is not known."""


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
    return (
        name
        if one.state == "online"
        else f'{name} <span class="badge ticket">{text(one.state)}</span>'
    )


def fleet_map(nodes: Sequence[NodeCells], quantity: str) -> str:
    """Return the map with its legend and a choice of the quantity."""
    low, high = _scale(quantity, nodes)
    tabs = "".join(
        f'<li><a href="{path("", map=name)}#map"{" aria-current=page" if name == quantity else ""}>{name}</a></li>'
        for name in QUANTITIES
    )
    unknown = sum(math.isnan(value) for one in nodes for value in one.values)
    found = sum(len(one.values) for one in nodes)
    missing = f", {unknown:,} not known (hatched)" if unknown else ""
    racks = groupby(
        sorted(nodes, key=lambda one: (not one.rack, one.rack, one.node)), key=lambda one: one.rack
    )
    groups = "".join(
        f'<section class="rack"><h3>{text(rack) or "in no rack"}</h3>{"".join(_node(one, low, high) for one in inside)}</section>'
        for rack, inside in racks
    )
    return (
        f'<nav aria-label="Quantity of the map"><ul class="tabs">{tabs}</ul></nav>'
        f"<p>{counted(found, 'GPU')}{missing}</p>{_legend(quantity, low, high)}"
        f'<div class="map">{_hatching()}{groups}</div>'
    )


def _scale(quantity: str, nodes: Sequence[NodeCells]) -> tuple[float, float]:
    """Return the ends of the scale: of temperatures and use those of all charts, else 0 and what is drawn."""
    span = _METRICS[QUANTITIES[quantity]].span or (0.0, 1.0)
    if quantity != "power":
        return span
    known = [value for one in nodes for value in one.values if not math.isnan(value)]
    return 0.0, max(known, default=span[1])


def _node(one: NodeCells, low: float, high: float) -> str:
    width = min(ACROSS, max(1, len(one.values))) * (CELL + GAP)
    height = -(-max(1, len(one.values)) // ACROSS) * (CELL + GAP)
    cells = "".join(_cells(one.values, low, high))
    return (
        f'<a class="cells" href="{path("nodes", one.node)}"><svg viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" role="img" aria-label="{text(one.node)}"><title>{text(one.node)}</title>{cells}</svg></a>'
    )


def _cells(values: Sequence[float], low: float, high: float) -> Iterator[str]:
    """Yield a shape for each colour: a browser draws it sooner than an element for each GPU."""
    shapes: dict[str, str] = {}
    for place, value in enumerate(values):
        x, y = place % ACROSS * (CELL + GAP), place // ACROSS * (CELL + GAP)
        name = _class(value, low, high)
        shapes[name] = f"{shapes.get(name, '')}M{x} {y}l{CELL} 0 0 {CELL} -{CELL} 0z"
    for name, way in shapes.items():
        yield f'<path class="{name}" d="{way}"/>'


def _class(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return "qx"
    share = (value - low) / (high - low) if high > low else 0.0
    return f"q{min(STEPS - 1, max(0, int(share * STEPS)))}"


def _hatching() -> str:
    """Return the pattern of cells that are not known: told apart without colours."""
    return (
        '<svg class="pattern" aria-hidden="true"><defs><pattern id="hatch" width="4" height="4" '
        'patternUnits="userSpaceOnUse"><path d="M0 4L4 0"/></pattern></defs></svg>'
    )


def _legend(quantity: str, low: float, high: float) -> str:
    metric = _METRICS[QUANTITIES[quantity]]
    swatches = "".join(
        f'<rect class="q{step}" x="{step * CELL}" y="0" width="{CELL}" height="{CELL}"/>'
        for step in range(STEPS)
    )
    ends = [text(value_text(metric.unit, metric.states, value)) for value in (low, high)]
    return (
        f'<p class="legend">{ends[0]} <svg viewBox="0 0 {STEPS * CELL} {CELL}" width="{STEPS * CELL}" height="{CELL}" '
        f'aria-hidden="true">{swatches}</svg> {ends[1]} <span class="dim">{text(quantity)}; '
        f"{link('all nodes', 'nodes')}</span></p>"
    )
