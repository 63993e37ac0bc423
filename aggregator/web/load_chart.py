"""The chart of past readings as SVG, with limits drawn over them. A script adds the reading under the pointer
and zoom; the chart is whole without it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from aggregator.web.markup import text
from present.units import percent
from telemetry.text import day_of_month, time_of_day

NOTHING_STORED = "<p>Nothing of this time is stored.</p>"
_LEAST_SPAN = 5.0
"""Of an axis that does not begin at 0, in its unit: noise must not look like a fault."""
_WIDTH, _HEIGHT = 1000.0, 100.0
"""Size of the plot in its own units, which are stretched over the width and height that it has; words and marks stand beside it,
and keep their size."""


_LEAST_NAMED = 0.08
"""Part of the width from which on a gap has its word."""


class _Frame(NamedTuple):
    """Room above and below the plot, as parts of the height."""

    top: float
    bottom: float

    def place(self, y: float) -> str:
        """Return a height of the plot, as percent of the whole."""
        return percent(self.top + (1.0 - self.top - self.bottom) * y / _HEIGHT, 2)

    @property
    def height(self) -> str:
        """The height of the plot, as percent of the whole."""
        return percent(1.0 - self.top - self.bottom, 2)


_WHOLE, _SMALL = _Frame(0.06, 0.09), _Frame(0.11, 0.15)


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
    peers: LoadSeries | None = None,
    caption: str | None = None,
    empty: bool = False,
) -> str:
    """Return a figure; `limits`: names and values of horizontal lines; `peers`: what others do, in grey; `empty`: with its
    place also where nothing is known, so that what is below does not move when the first reading comes.

    With `from_zero` the axis begins at 0, so that areas compare as loads do; without, near the lowest
    value, for quantities whose 0 says nothing (°C, MHz). With `caption` it is a small one, below these words.
    """
    known = [value for value in (*series.values, *series.highs) if value is not None]
    if not known and not empty:
        return NOTHING_STORED if caption is None else ""
    frame = _WHOLE if caption is None else _SMALL
    words, parts = f"{label}: nothing of this time is stored", ""
    if known:
        last = next((value for value in reversed(series.values) if value is not None), None)
        words = f"{label}: up to {max(known):.1f} {series.unit}, last {'not known' if last is None else f'{last:.1f} {series.unit}'}"
        others = [] if peers is None else [value for value in peers.values if value is not None]
        drawn_values = [*known, *others, *(value for _, value in limits)]
        axis = _axis_of(min(drawn_values), max(drawn_values), from_zero=from_zero)
        parts = "".join(_plot(series, start, end, limits, peers, axis, frame))
    drawn = (
        f'<svg role="img" tabindex="0" aria-label="{text(words)}"'
        f' data-start="{start // 1_000_000}" data-seconds="{(end - start) / 1e9:.3f}" data-step="{series.step / 1e9:g}"'
        f' data-unit="{text(series.unit)}" data-points="{_points(series, start)}">'
        f"{''.join((*_gaps(series, start, end, frame), *_times(start, end, few=caption is not None)))}{parts}</svg>"
    )
    if caption is None:
        return f'<figure data-k="{text(label)}" class="chart">{drawn}<figcaption>{text(words)} <output></output></figcaption></figure>'
    return f'<figure data-k="{text(label)}" class="chart small"><figcaption><b>{text(label)}</b> <output>{text(caption)}</output></figcaption>{drawn}</figure>'


def _plot(
    series: LoadSeries,
    start: int,
    end: int,
    limits: Sequence[tuple[str, float]],
    peers: LoadSeries | None,
    axis: _Axis,
    frame: _Frame,
) -> Iterator[str]:
    """Yield what is drawn of known readings, on its axis."""

    def x(at: int) -> float:
        return _WIDTH * (at - start) / max(1, end - start)

    def y(value: float) -> float:
        return _HEIGHT * (1 - (min(max(value, axis.bottom), axis.top) - axis.bottom) / (axis.top - axis.bottom))

    yield from _grid(axis, y, frame)
    yield (
        f'<svg y="{frame.place(0.0)}" width="100%" height="{frame.height}" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}"'
        f' preserveAspectRatio="none">{"".join(_paths(series, peers, x, y))}</svg>'
    )
    yield from _ticks(axis, y, series.unit, frame)
    for name, value in limits:
        at = frame.place(y(value))
        yield (
            f'<line class="limit {text(name.replace(" ", "-"))}" x1="0" x2="100%" y1="{at}" y2="{at}"/>'
            f'<text class="limit" x="99.6%" y="{at}" dy="-4" text-anchor="end">{text(name)} {value:g} {text(series.unit)}</text>'
        )


def _paths(
    series: LoadSeries, peers: LoadSeries | None, x: Callable[[int], float], y: Callable[[float], float]
) -> Iterator[str]:
    """Yield what is drawn of the readings: those of others first, so that they lie below."""
    if peers is not None:
        for run in runs(peers):
            yield f'<path class="peers" d="{_line(peers, run, x, y)}"/>'
    for run in runs(series):
        line = _line(series, run, x, y)
        base = f"L{x(series.at[run[-1]]):.1f} {_HEIGHT}L{x(series.at[run[0]]):.1f} {_HEIGHT}Z"
        high, drawn = "", False
        for i in run:
            highest = series.highs[i]
            if highest is not None:
                high += f"{'L' if drawn else 'M'}{x(series.at[i]):.1f} {y(highest):.1f} "
            drawn = highest is not None
        yield f'<path class="area" d="{line}{base}"/>'
        yield f'<path class="high" d="{high.rstrip()}"/>'
        yield f'<path class="line" d="{line}"/>'


def _line(series: LoadSeries, run: Sequence[int], x: Callable[[int], float], y: Callable[[float], float]) -> str:
    return " ".join(
        f"{'L' if n else 'M'}{x(series.at[i]):.1f} {y(series.values[i] or 0.0):.1f}" for n, i in enumerate(run)
    )


def _gaps(series: LoadSeries, start: int, end: int, frame: _Frame) -> Iterator[str]:
    """Yield what is not known, hatched: between, before and after the readings."""
    known = [(series.at[run[0]], series.at[run[-1]] + series.step) for run in runs(series)]
    ends = [start, *(end for _, end in known)]
    for since, until in zip(ends, [*(begin for begin, _ in known), end], strict=True):
        if until - since <= 2.5 * series.step:
            continue
        x, width = (part / max(1, end - start) for part in (since - start, until - since))
        yield f'<rect class="qx" x="{percent(x, 2)}" width="{percent(width, 2)}" y="{frame.place(0.0)}" height="{frame.height}"/>'
        if width > _LEAST_NAMED:
            yield f'<text class="tick" x="{percent(x + width / 2, 2)}" y="50%" text-anchor="middle">not known</text>'


def _points(series: LoadSeries, start: int) -> str:
    """Return the known values as `seconds since the start:value`, for the script."""
    return " ".join(
        f"{(at - start) / 1e9:.1f}:{value:.1f}"
        for at, value in zip(series.at, series.values, strict=True)
        if value is not None
    )


def runs(series: LoadSeries) -> Iterator[list[int]]:
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


def _axis_of(lowest: float, highest: float, *, from_zero: bool) -> _Axis:
    """Return the axis of some values."""
    if from_zero:
        return _axis(0.0, max(highest * 1.05, 1e-9))
    return _axis(lowest, max(highest, lowest + _LEAST_SPAN))


def _axis(low: float, high: float) -> _Axis:
    """Return the axis of round steps around two values, of which the second is greater."""
    span = high - low
    size = 10.0 ** math.floor(math.log10(span) - 0.3)
    step = next(size * part for part in (1, 2, 2.5, 5, 10) if size * part * 5 >= span)
    first, last = math.floor(low / step), math.ceil(high / step)
    last = max(last, first + 1)
    return _Axis(step * first, step * last, last - first)


def _shown(axis: _Axis, frame: _Frame) -> Iterator[float]:
    """Yield the values beside the axis."""
    for part in range(axis.many + 1) if frame is _WHOLE else (0, axis.many):
        yield axis.bottom + (axis.top - axis.bottom) * part / axis.many


def _grid(axis: _Axis, y: Callable[[float], float], frame: _Frame) -> Iterator[str]:
    for value in _shown(axis, frame):
        at = frame.place(y(value))
        yield f'<line class="grid" x1="0" x2="100%" y1="{at}" y2="{at}"/>'


def _ticks(axis: _Axis, y: Callable[[float], float], unit: str, frame: _Frame) -> Iterator[str]:
    for value in _shown(axis, frame):
        yield f'<text class="tick" x="2" y="{frame.place(y(value))}" dy="-3">{value:g} {text(unit)}</text>'


_TICKS = (60, 300, 600, 1800, 3600, 10_800, 21_600, 43_200, 86_400, 7 * 86_400)


def _times(start: int, end: int, *, few: bool) -> Iterator[str]:
    length = (end - start) / 1e9
    most = 3 if few else 7
    every = next((each for each in _TICKS if length / each <= most), _TICKS[-1]) * 1_000_000_000
    at = -(-start // every) * every
    while at < end:
        words = day_of_month(at) if every >= 86_400 * 10**9 else time_of_day(at).removesuffix("Z")[:5]
        part = (at - start) / max(1, end - start)
        anchor = "start" if part < 0.04 else "end" if part > 0.96 else "middle"
        place = percent(part, 2)
        yield f'<line class="grid" x1="{place}" x2="{place}" y1="6%" y2="91%"/>'
        yield f'<text x="{place}" y="98%" text-anchor="{anchor}">{words}</text>'
        at += every
