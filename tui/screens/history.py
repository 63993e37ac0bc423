"""Charts of a device over a time span: request and drawing. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import quote, urlencode

import numpy as np

from api.columns import HistoryReply
from present.units import percent
from telemetry.text import duration, time_of_day
from tui.feed.wants import DocumentRequest
from tui.kit.chart import LATE, Mark, apart, chart, held
from tui.kit.text import DASH
from tui.kit.theme import Line, Piece
from tui.state.dashboard_state import DashboardState

HERE, ACROSS = "▲", "┊"
"""Signs of the shown instant in a chart that continues after it."""
T = TypeVar("T")
READABLE = 5
"""Lines that a plot needs, with a blank one above it."""


@dataclass(frozen=True)
class Plot:
    """A chart of a metric of a device."""

    title: str
    metric: str
    span: tuple[float, float]
    as_text: Callable[[float], str]
    """Text of a value of the scale, at most six signs."""
    now: str
    """The newest value with its unit."""
    marks: Sequence[Mark] = ()


def path_of(kind: str, name: str, metric: str, span: int) -> str:
    """Return the path of a history."""
    return f"api/v1/history?{urlencode({kind: name, 'metric': metric, 'from': f'-{span}s'}, quote_via=quote)}"


def history_request(kind: str, name: str, metric: str, span: int) -> DocumentRequest:
    """Return the request for a history, repeated about as often as it moves by a dot."""
    return DocumentRequest(path_of(kind, name, metric, span), HistoryReply, max(2.0, span / 150))


def plot_lines(
    state: DashboardState, kind: str, name: str, plot: Plot, span: int, width: int, height: int, *, utc: bool
) -> list[Line]:
    """Draw a titled chart of `height` lines."""
    path = path_of(kind, name, plot.metric, span)
    found = state.doc(path, HistoryReply)
    lines = history_lines(found, state.fault(path), plot, duration(span), width, height, utc=utc)
    return instant(lines, found, state.at, width)


def history_lines(
    found: HistoryReply | None, why: str, plot: Plot, times_: str, width: int, height: int, *, utc: bool
) -> list[Line]:
    """Draw a history, or `why` there is none; `times_`: its span as text."""
    title: list[Piece] = [(plot.title, "strong"), (f"  {times_}  ", "dim"), (plot.now, "")]
    if found is None:
        return [title, [(why or "loading …", "dim")], *([[]] * max(0, height - 2))]
    points = 2 * max(1, width - 7)
    at = np.array(found.at, np.float64)
    values = np.array(found.mean, np.float64)
    start, end = float(found.start), float(found.end)
    # A bucket holds for its own length; a reading until the next is overdue.
    hold = found.step * 1e9 or LATE * apart(at)
    spaced = held(at, values, start, end, points, hold)
    high = np.nanmax(values) if np.isfinite(values).any() else None
    low, top = plot.span
    if high is not None:
        top = top if high <= top else rounded(float(high))  # the past may exceed it
        title.append((f"  max {plot.as_text(float(high)).strip()}", "dim"))
    if plot.as_text is scale_watts:
        top = rounded(top)
    for windows, word in ((found.incomplete, "lost"), (found.provisional, "means of 10 s")):
        if windows:
            title.append((f"  {windows_text(windows, utc=utc)} {word}", "warn"))
    times = [time_of_day(int(start + (end - start) * part), utc=utc)[:8] for part in (0, 0.5, 1)]
    return [title, *chart(spaced, (low, top), width, max(2, height - 1), plot.as_text, plot.marks, times)]


def windows_text(windows: Sequence[tuple[int, int]], *, utc: bool) -> str:
    """Return when stored readings of a history are removed, damaged or provisional: `09:00-10:00`."""
    begin, end = (time_of_day(at, utc=utc)[:5] for at in (windows[0][0], windows[-1][1]))
    many = len(windows)
    return f"{begin}-{end}" if many == 1 else f"{many} spans between {begin} and {end}"


def instant(lines: list[Line], found: HistoryReply | None, at: int, width: int) -> list[Line]:
    """Mark an instant in a chart that continues after it. `lines`: with the title."""
    if found is None:
        return lines
    share = (at - found.start) / max(1, found.end - found.start)
    column = 7 + int(share * (width - 7))
    if not 7 <= column < width - 1:  # it is now that is shown, at the right end
        return lines
    title, *drawn, times = lines
    crossed = [overlaid(line, column, ACROSS, blank=True) for line in drawn]
    return [title, *crossed, overlaid(times, column, HERE, blank=False)]


def overlaid(line: Line, column: int, sign: str, *, blank: bool) -> Line:
    """Put a sign into a column of a line; with `blank`, only over a blank."""
    pieces: list[Piece] = []
    for text, tone in line:
        place, column = column, column - len(text)
        if not 0 <= place < len(text) or (blank and text[place] != " "):
            pieces.append((text, tone))
        else:
            pieces += [(text[:place], tone), (sign, "strong"), (text[place + 1 :], tone)]
    return pieces


def share_room(plots: Sequence[T], lines: int) -> tuple[Sequence[T], int]:
    """Return as many of the plots as are legible in so many lines, and the height of each."""
    shown = plots[: max(1, lines // READABLE)]
    return shown, lines // max(1, len(shown)) - 1


def beside(left: Sequence[Line], right: Sequence[Line], width: int, gap: int = 2) -> list[Line]:
    """Join two drawings; the left one is `width` wide."""
    from rich.cells import cell_len  # noqa: PLC0415

    lines: list[Line] = []
    for n in range(max(len(left), len(right))):
        a = list(left[n]) if n < len(left) else []
        pad = width - sum(cell_len(text) for text, _ in a) + gap
        lines.append([*a, (" " * max(0, pad), ""), *(right[n] if n < len(right) else ())])
    return lines


def grid(drawn: Sequence[Callable[[int, int], list[Line]]], width: int, height: int, across: int) -> list[Line]:
    """Draw charts in rows of `across`, sharing width and height."""
    if not drawn:
        return []
    rows = -(-len(drawn) // across)
    tall = max(4, height // rows)
    wide = (width - 2 * (across - 1)) // across
    lines: list[Line] = []
    for start in range(0, len(drawn), across):
        row = drawn[start](wide, tall)
        for number, draw in enumerate(drawn[start + 1 : start + across], 1):
            row = beside(row, draw(wide, tall), wide * number + 2 * (number - 1))
        lines += row
    return lines[: max(height, 0)]


def rounded(value: float) -> float:
    """Return the end of a scale that a value fits on: an even number, at most ten, of steps of 1, 2 or 5
    and zeros, so that the middle of the scale is round too."""
    if value <= 0:
        return value
    least = value / 10
    unit = 10.0 ** math.floor(math.log10(least))
    step = next(unit * part for part in (1, 2, 5, 10) if unit * part >= least * (1 - 1e-9))
    return 2 * step * math.ceil(value / (2 * step) - 1e-9)


def scale_watts(value: float) -> str:
    """Return watts for a scale."""
    return f"{value / 1e3:.1f}k" if value >= 9999.5 else f"{value:.0f}"


def scale_number(value: float) -> str:
    """Return a number for a scale."""
    return f"{value:.0f}"


def scale_percent(value: float) -> str:
    """Return a ratio for a scale."""
    return percent(value)


def growth(history: HistoryReply | None) -> float | None:
    """Return the growth of a counter; a reset is no decrease."""
    if history is None:
        return None
    known = np.array([v for v in history.mean if v is not None], np.float64)
    if len(known) < 2:
        return None
    steps = np.diff(known)
    return float(np.where(steps >= 0, steps, known[1:]).sum())


def share_of(history: HistoryReply | None) -> str:
    """Return the growth of a counter of seconds as a share of its time."""
    grown = growth(history)
    if history is None or grown is None:
        return DASH
    known = [at for at, value in zip(history.at, history.mean, strict=True) if value is not None]
    covered = (known[-1] - known[0]) / 1e9
    return percent(min(1.0, grown / covered)) if covered > 0 else DASH
