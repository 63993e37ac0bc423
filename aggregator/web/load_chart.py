"""The chart of past readings as SVG, with limits drawn over them. A script adds the reading under the pointer
and zoom; the chart is whole without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aggregator.web.markup import text
from telemetry.text import day_of_month, time_of_day

NOTHING_STORED = "<p>Nothing of this time is stored.</p>"
_LEAST_SPAN = 5.0
"""Of an axis that does not begin at 0, in its unit: noise must not look like a fault."""
_WIDTH, _HEIGHT, _LEFT, _BOTTOM, _TOP = 900.0, 280.0, 68.0, 24.0, 10.0


@dataclass(frozen=True, slots=True)
class LoadSeries:
    """A load over time; None is not known, and stays empty."""

    at: Sequence[int]
    """Start of each bucket, ns since 1970."""
    values: Sequence[float | None]
    highs: Sequence[float | None]
    """Highest value of each bucket."""
    unit: str
    step: int
    """ns; a longer distance between two instants is a gap."""


def load_chart(
    series: LoadSeries,
    start: int,
    end: int,
    limits: Sequence[tuple[str, float]],
    label: str,
    *,
    from_zero: bool = True,
) -> str:
    """Return a figure; `limits`: names and values of horizontal lines.

    With `from_zero` the axis begins at 0, so that areas compare as loads do; without, near the lowest
    value, for quantities whose 0 says nothing (°C, MHz).
    """
    known = [value for value in (*series.values, *series.highs) if value is not None]
    if not known:
        return NOTHING_STORED
    drawn_values = [*known, *(value for _, value in limits)]
    highest_drawn = max(drawn_values)
    if from_zero:
        axis = _axis(0.0, max(highest_drawn * 1.05, 1e-9))
    else:
        axis = _axis(min(drawn_values), max(highest_drawn, min(drawn_values) + _LEAST_SPAN))
    bottom, top = axis.bottom, axis.top

    def x(at: int) -> float:
        return _LEFT + (_WIDTH - _LEFT) * (at - start) / max(1, end - start)

    def y(value: float) -> float:
        return _TOP + (_HEIGHT - _TOP - _BOTTOM) * (
            1 - (min(max(value, bottom), top) - bottom) / (top - bottom)
        )

    parts = [*_grid(axis, y, series.unit), *_times(start, end, x)]
    for run in _runs(series):
        line = " ".join(
            f"{'L' if n else 'M'}{x(series.at[i]):.1f} {y(series.values[i] or 0.0):.1f}"
            for n, i in enumerate(run)
        )
        base = f"L{x(series.at[run[-1]]):.1f} {y(bottom):.1f}L{x(series.at[run[0]]):.1f} {y(bottom):.1f}Z"
        high, drawn = "", False
        for i in run:
            highest = series.highs[i]
            if highest is not None:
                high += f"{'L' if drawn else 'M'}{x(series.at[i]):.1f} {y(highest):.1f} "
            drawn = highest is not None
        parts += [
            f'<path class="area" d="{line}{base}"/>',
            f'<path class="high" d="{high.rstrip()}"/>',
            f'<path class="line" d="{line}"/>',
        ]
    for name, value in limits:
        parts.append(
            f'<line class="limit {text(name.replace(" ", "-"))}" x1="{_LEFT}" x2="{_WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
            f'<text class="limit" x="{_WIDTH - 4}" y="{y(value) - 4:.1f}" text-anchor="end">{text(name)} {value:g} {text(series.unit)}</text>'
        )
    last = next((value for value in reversed(series.values) if value is not None), None)
    words = f"{label}: up to {max(known):.1f} {series.unit}, last {'not known' if last is None else f'{last:.1f} {series.unit}'}"
    return (
        f'<figure class="chart"><svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" tabindex="0" aria-label="{text(words)}"'
        f' data-start="{start // 1_000_000}" data-seconds="{(end - start) / 1e9:.3f}" data-step="{series.step / 1e9:g}"'
        f' data-unit="{text(series.unit)}" data-points="{_points(series, start)}">'
        f"{''.join(parts)}</svg><figcaption>{text(words)} <output></output></figcaption></figure>"
    )  # fmt: skip


def _points(series: LoadSeries, start: int) -> str:
    """Return the known values as `seconds since the start:value`, for the script."""
    return " ".join(
        f"{(at - start) / 1e9:.1f}:{value:.1f}"
        for at, value in zip(series.at, series.values, strict=True)
        if value is not None
    )


def _runs(series: LoadSeries) -> Iterator[list[int]]:
    """Yield the places of values without a gap between them."""
    run: list[int] = []
    for place, (at, value) in enumerate(zip(series.at, series.values, strict=True)):
        if run and (value is None or at - series.at[run[-1]] > 2.5 * series.step):
            yield run
            run = []
        if value is not None:
            run.append(place)
    if run:
        yield run


class _Axis(NamedTuple):
    bottom: float
    top: float
    many: int
    """Round steps between them."""


def _axis(low: float, high: float) -> _Axis:
    """Return the axis of round steps around two values, of which the second is greater."""
    span = high - low
    size = 10.0 ** math.floor(math.log10(span) - 0.3)
    step = next(size * part for part in (1, 2, 2.5, 5, 10) if size * part * 5 >= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    return _Axis(step * first, step * last, last - first)


def _grid(axis: _Axis, y: Callable[[float], float], unit: str) -> Iterator[str]:
    for part in range(axis.many + 1):
        value = axis.bottom + (axis.top - axis.bottom) * part / axis.many
        yield f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g} {text(unit)}</text>'


_TICKS = (60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 7 * 86_400)


def _times(start: int, end: int, x: Callable[[int], float]) -> Iterator[str]:
    length = (end - start) / 1e9
    every = next((each for each in _TICKS if length / each <= 7), _TICKS[-1]) * 1_000_000_000
    at = -(-start // every) * every
    while at < end:
        words = (
            day_of_month(at) if every >= 86_400 * 10**9 else time_of_day(at).removesuffix("Z")[:5]
        )
        yield f'<line class="grid" x1="{x(at):.1f}" x2="{x(at):.1f}" y1="{_TOP}" y2="{_HEIGHT - _BOTTOM}"/>'
        yield f'<text x="{x(at):.1f}" y="{_HEIGHT - 6}" text-anchor="middle">{words}</text>'
        at += every
