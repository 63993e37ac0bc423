"""The use of a GPU over the run of its job as a strip, on the scale of the map; hatched is not known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby

from aggregator.web.load_chart import LoadSeries
from present.units import percent

CELLS = 96
"""Cells of a strip, each the mean of its time."""
STEPS = 5
"""Steps of the map without its darkest: a job that works would be a block that outshouts what is wrong."""
STRIP_LEGEND = (
    '<p class="legend">use over its run: 0 <svg width="55" height="11" viewBox="0 0 55 11" aria-hidden="true">'
    + "".join(f'<rect class="q{step}" x="{11 * step}" width="11" height="11"/>' for step in range(STEPS))
    + "</svg> 100%; hatched is not known</p>"
)
_UNKNOWN, _AWAY = "qx", ""


def use_strip(series: LoadSeries, spans: Sequence[tuple[int, int]], start: int, end: int) -> str:
    """Return the strip of readings in percent. `spans`: when the job held the GPU; nothing is drawn of other times."""
    words = list(_cells(series, spans, start, end))
    ways: dict[str, str] = {}
    hatched, place = "", 0
    for word, same in groupby(words):
        many = len(list(same))
        if word == _UNKNOWN:
            x, width = percent(place / CELLS, 2), percent(many / CELLS, 2)
            hatched += f'<rect class="qx" x="{x}" width="{width}" height="100%"/>'
        elif word != _AWAY:
            ways[word] = ways.get(word, "") + f"M{place} 0h{many}v1h-{many}z"
        place += many
    paths = "".join(f'<path class="{word}" d="{way}"/>' for word, way in sorted(ways.items()))
    return (
        f'<svg class="strip" aria-hidden="true"><svg width="100%" height="100%" viewBox="0 0 {CELLS} 1" preserveAspectRatio="none">'
        f"{paths}</svg>{hatched}</svg>"
    )


def _cells(series: LoadSeries, spans: Sequence[tuple[int, int]], start: int, end: int) -> Iterator[str]:
    length = max(1, end - start) / CELLS
    known: dict[int, list[float]] = {}
    for at, value in zip(series.at, series.values, strict=True):
        if value is None:
            continue
        first = int((at - start) / length)
        last = int((at + series.step - 1 - start) / length)  # a bucket may be longer than a cell
        for cell in range(first, max(first, last) + 1):
            known.setdefault(cell, []).append(value)
    for cell in range(CELLS):
        middle = start + (cell + 0.5) * length
        if not any(begin <= middle < until for begin, until in spans):
            yield _AWAY
        elif cell in known:
            mean = sum(known[cell]) / len(known[cell])
            yield f"q{min(STEPS - 1, max(0, int(mean / 100 * STEPS)))}"
        else:
            yield _UNKNOWN
