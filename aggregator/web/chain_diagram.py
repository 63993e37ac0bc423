"""The power chain as a one-line diagram: from the source through panels and breakers to nodes and their GPUs. It is
drawn from the model alone, at the same places each time; lines move where power flows."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from aggregator.web.bars import load_parts
from aggregator.web.fleet_map import NodeCells, colour
from aggregator.web.markup import path, text
from api.chain import ChainState
from api.power import CircuitState
from power.snapshot.power_chain import Branch, source_state
from present.circuit.chain import NO_SHARE
from present.circuit.figures import share
from present.circuit.rows import load_row, share_row
from present.units import watts
from telemetry.text import counted

WIDTH = 860.0
_SOURCE, _BUS, _BREAKER, _LANES, _NODE = 30.0, 150.0, 300.0, 400.0, 500.0
"""Where sources, bus bars, breakers, the lanes of cords and nodes begin, from the left."""
_ACROSS, _CELL, _GAP = 8, 36.0, 4.0
"""GPUs of a row of a node, width of a cell, and what lies between two."""
_ROW, _LEAF, _HEAD, _LINE, _APART = 26.0, 66.0, 8.0, 26.0, 16.0
"""Heights of a row of cells, of a circuit, above all, from the top of a circuit to its line, and between two nodes."""


def chain_diagram(found: Branch, status: Mapping[str, int], cells: Mapping[str, NodeCells], highest: float) -> str:
    """Return the diagram; nothing without circuits that feed nodes. `cells`: the GPUs of nodes with their watts, none of
    a node that has not been heard of; `highest`: the watts at the end of the scale of colours."""
    if not found.leaves:
        return ""
    nodes, leaves, height = _places(found, cells)
    drawn = (
        *_feeders(found, leaves, status),
        *(
            part
            for one in found.leaves
            for part in _leaf(one, leaves[one.id], found.states[one.id], status.get(one.id, 0))
        ),
        *_cords(found, leaves, nodes, cells),
        *(part for name, at in nodes.items() for part in _node(name, at, cells.get(name), highest)),
    )
    words = "; ".join(f"{one.id} {share_row(one).value}" for one in found.leaves)
    return f'<svg class="chain" viewBox="0 0 {WIDTH:.0f} {height:.0f}" role="group" aria-label="{text(words)}">{"".join(drawn)}</svg>'


def remarks(found: Branch) -> Iterator[str]:
    """Yield what the diagram leaves out."""
    if found.folded:
        whose = found.around or "the most urgent one"
        yield f"Of {counted(found.folded + len(found.leaves), 'circuit')} with nodes the branch of {whose}."
    if found.left_out:
        yield f"{counted(found.left_out, 'further node')} of {'it' if len(found.leaves) == 1 else 'them'} not drawn."


def diagram_height(found: Branch, cells: Mapping[str, NodeCells]) -> float:
    """Return the height of the diagram, in units of its `WIDTH`."""
    return _places(found, cells)[2]


def _places(found: Branch, cells: Mapping[str, NodeCells]) -> tuple[dict[str, float], dict[str, float], float]:
    """Return the top of each node and of each circuit, and the height of all."""
    nodes, bottom = _node_places(found, cells)
    leaves = _leaf_places(found, nodes, cells)
    return nodes, leaves, max(bottom, *(at + _LEAF for at in leaves.values())) + 6


def _node_places(found: Branch, cells: Mapping[str, NodeCells]) -> tuple[dict[str, float], float]:
    """Return the top of each node, and the bottom of all."""
    places, at = {}, _HEAD
    for name in found.nodes:
        places[name] = at
        at += _height(cells.get(name)) + _APART
    return places, at - _APART


def _height(its: NodeCells | None) -> float:
    """Return the height of a node: one that has not been heard of yet has its place for a row of GPUs."""
    rows = 0 if its is None else max(1, -(-len(its.values) // _ACROSS))
    return 30 + rows * _ROW


def _leaf_places(found: Branch, nodes: Mapping[str, float], cells: Mapping[str, NodeCells]) -> dict[str, float]:
    """Return the top of each circuit: about where the middle of its nodes is, and never above the one before."""
    at, places = _HEAD - 8, {}
    for one in found.leaves:
        its = [nodes[name] + _height(cells.get(name)) / 2 for name in one.nodes if name in nodes]
        middle = sum(its) / len(its) - _LINE if its else at
        places[one.id] = at = max(at, middle if len(found.leaves) <= len(nodes) else at)
        at += _LEAF
    return places


def _wire(way: str, state: ChainState, ratio: float | None) -> Iterator[str]:
    """Yield a line, wider by its share of the rating, and the dots that move along it where power flows."""
    width = 2 + 3 * min(1.0, ratio or 0.0)
    yield f'<path class="wire {state}" stroke-width="{width:.1f}" d="{way}"/>'
    if state in {ChainState.FLOWS, ChainState.OVER}:
        speed = "fast" if (ratio or 0) > 1 else "half" if (ratio or 0) > 0.5 else "slow"
        yield f'<path class="dots {speed}" d="{way}"/>'


def _feeders(found: Branch, leaves: Mapping[str, float], status: Mapping[str, int]) -> Iterator[str]:
    """Yield a bus bar for each circuit that feeds others, and the source before it."""
    groups: dict[str | None, list[CircuitState]] = {}
    for one in found.leaves:
        groups.setdefault(one.parent, []).append(one)
    by_name = {one.id: one for one in found.feeders}
    for name, its in groups.items():
        lines = [leaves[one.id] + _LINE for one in its]
        top, bottom = min(lines) - 16, max(lines) + 16
        middle = (top + bottom) / 2
        feeder = by_name.get(name or "")
        state, ratio = source_state([found.states[one.id] for one in its]), None
        if feeder is not None:
            state, ratio = found.states[feeder.id], share(feeder)
        yield from _wire(f"M{_SOURCE + 12:.0f} {middle:.0f}H{_BUS:.0f}", state, ratio)
        yield f'<circle class="symbol" cx="{_SOURCE:.0f}" cy="{middle:.0f}" r="11"/><path class="symbol" d="M{_SOURCE - 6:.0f} {middle:.0f}c2-6 4-6 6 0s4 6 6 0"/>'
        yield f'<rect class="bus" x="{_BUS:.0f}" y="{top:.0f}" width="8" height="{bottom - top:.0f}"/>'
        if feeder is not None:
            tone = _tone(status.get(feeder.id, 0))
            yield f'<a href="{path("circuits", feeder.id)}"><text class="name{tone}" x="{_BUS - 6:.0f}" y="{middle - 12:.0f}" text-anchor="end">{text(feeder.id)}</text></a>'
            yield f'<text x="{_BUS - 6:.0f}" y="{middle + 20:.0f}" text-anchor="end">{text(share_row(feeder).value)}</text>'


def _tone(status: int) -> str:
    return ("", " ticket", " page")[status]


def _leaf(circuit: CircuitState, at: float, state: ChainState, status: int) -> Iterator[str]:
    """Yield a circuit: its line to the breaker and on, its name, load, and the bar to its limits."""
    y, ratio = at + _LINE, share(circuit)
    mark = _tone(status) or (" page" if state is ChainState.OVER else "")
    yield from _wire(f"M{_BUS + 8:.0f} {y:.0f}H{_LANES:.0f}", state, ratio)
    blade = "M0-9V9" if state is not ChainState.OPEN else "M0 9V4L5-5M0-9v3"
    yield f'<g transform="translate({_BREAKER:.0f} {y:.0f})"><rect class="symbol{mark}" x="-9" y="-9" width="18" height="18" rx="2"/><path class="symbol{mark}" d="{blade}"/></g>'
    yield f'<a href="{path("circuits", circuit.id)}"><text class="name{mark}" x="{_BUS + 16:.0f}" y="{y - 9:.0f}">{text(circuit.id)}</text></a>'
    words = NO_SHARE.get(state) or share_row(circuit).value
    yield f'<text class="{mark.strip()}" x="{_BREAKER + 14:.0f}" y="{y - 9:.0f}">{text(words)}</text>'
    yield f'<text x="{_BREAKER + 14:.0f}" y="{y + 17:.0f}">{text(load_row(circuit).value)}</text>'
    if circuit.rated_amps is not None:
        yield f'<svg class="limits" x="{_BUS + 16:.0f}" y="{y + 14:.0f}" width="110" height="6">{load_parts(circuit, mark.strip())}</svg>'


def _cords(
    found: Branch, leaves: Mapping[str, float], nodes: Mapping[str, float], cells: Mapping[str, NodeCells]
) -> Iterator[str]:
    """Yield a line from each circuit to each of its nodes, each circuit in a lane of its own."""
    step = (_NODE - _LANES - 20) / max(1, len(found.leaves))
    feeding = {name: [one.id for one in found.leaves if name in one.nodes] for name in nodes}
    for place, one in enumerate(found.leaves):
        lane, y = _LANES + 8 + place * step, leaves[one.id] + _LINE
        for name in one.nodes:
            if name in nodes:
                its = feeding[name]
                port = nodes[name] + _height(cells.get(name)) * (its.index(one.id) + 1) / (len(its) + 1)
                yield from _wire(
                    f"M{_LANES:.0f} {y:.0f}L{lane:.0f} {y:.0f} {lane:.0f} {port:.0f} {_NODE:.0f} {port:.0f}",
                    found.states[one.id],
                    share(one),
                )


def _node(name: str, at: float, its: NodeCells | None, highest: float) -> Iterator[str]:
    """Yield a node with a cell for each GPU and its watts."""
    mark = "" if its is None else its.mark
    yield f'<rect class="box {mark}" x="{_NODE:.0f}" y="{at:.0f}" width="{WIDTH - _NODE - 4:.0f}" height="{_height(its):.0f}" rx="3"/>'
    yield f'<a href="{path("nodes", name)}"><text class="name {mark}" x="{_NODE + 10:.0f}" y="{at + 17:.0f}">{text(name)}</text></a>'
    read = [] if its is None else [value for value in its.values if not math.isnan(value)]
    total = (
        "no GPU is read"
        if not read
        else f"GPUs {watts(sum(read))}"
        if its is not None and len(read) == len(its.values)
        else f"GPUs at least {watts(sum(read))}"
    )
    yield f'<text x="{WIDTH - 14:.0f}" y="{at + 17:.0f}" text-anchor="end">{text(total)}</text>'
    if its is None:
        return
    for place, value in enumerate(its.values):
        x, y = _NODE + 10 + place % _ACROSS * (_CELL + _GAP), at + 26 + place // _ACROSS * _ROW
        its_mark = its.marks.get(its.uuids[place], "")
        figure = "?" if math.isnan(value) else watts(value).partition(" ")[0]
        kind = colour(value, 0.0, highest)
        frame = (
            f'<rect class="frame {its_mark}" x="{x + 1:.0f}" y="{y + 1:.0f}" width="{_CELL - 2:.0f}" height="18" rx="1"/>'
            if its_mark
            else ""
        )
        yield (
            f'<a href="{path("gpus", its.uuids[place])}"><rect class="{kind}" x="{x:.0f}" y="{y:.0f}" width="{_CELL:.0f}" height="20" rx="2"/>'
            f"{frame}"
            f'<text class="on {kind}" x="{x + _CELL / 2:.0f}" y="{y + 14:.0f}" text-anchor="middle">{text(figure)}</text></a>'
        )
