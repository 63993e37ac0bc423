"""A chart of a load with a forecast: the past on the left, and a fan of its trend on the right. Pure.

The fan is the trend, with two sigma of the scatter and of the slope to each side, so it widens with time.
Without a clear slope it is level. It ends at `REACH`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from power.forecast import AHEAD_SECONDS, WINDOW_SECONDS, trends
from tui.kit.chart import LEFT_DOTS, RIGHT_DOTS, Floats, Mark, dots, joined, labels, line_of, tick
from tui.kit.theme import Line, Piece

REACH = AHEAD_SECONDS
"""Seconds that a trend is extended at most."""
_STEP = 5.0
"""Seconds of a step of the trend, as in the aggregator's."""
_LEAST = 5
"""Steps that a trend needs."""
_SIGMAS = 2.0


@dataclass(frozen=True)
class Fan:
    """A band of forecast values from now on."""

    level: float
    per_second: float
    scatter: float
    """Sigma of the readings around the line."""
    error: float
    """Sigma of the slope."""
    lever: float
    """Seconds from the middle of the fitted readings to now."""

    def middle(self, ahead: Floats) -> Floats:
        """Return the forecast by seconds from now, never below 0."""
        return np.maximum(self.level + self.per_second * ahead, 0.0)

    def half(self, ahead: Floats) -> Floats:
        """Return half the width of the band."""
        return _SIGMAS * np.sqrt(self.scatter**2 + (self.error * (self.lever + ahead)) ** 2)


def fan_of(at: Floats, values: Floats) -> Fan | None:
    """Fit a line to the last two minutes; `at` in seconds. None for too few readings."""
    at, values = at[~np.isnan(values)], values[~np.isnan(values)]
    if not len(at):
        return None
    recent = at >= at[-1] - WINDOW_SECONDS
    at, values = _steps(at[recent], values[recent])
    if len(at) < _LEAST:
        return None
    level, slope = (float(found[0]) for found in trends(at, values[:, None]))
    if np.isnan(slope):
        level, slope = float(np.median(values)), 0.0
    aside = values - slope * (at - at[-1])
    scatter = 1.4826 * float(np.median(np.abs(aside - np.median(aside))))
    lever = float(at[-1] - at.mean())
    error = scatter / float(np.sqrt(np.square(at - at.mean()).sum()))
    return Fan(level, slope, scatter, error, lever)


def _steps(at: Floats, values: Floats) -> tuple[Floats, Floats]:
    """Return time and mean of each step of five seconds that has readings."""
    _, place = np.unique(at // _STEP, return_inverse=True)
    counts = np.bincount(place)
    return np.bincount(place, at) / counts, np.bincount(place, values) / counts


@dataclass(frozen=True)
class Flag:
    """A future instant, drawn as a vertical line."""

    ahead: float
    """Seconds from now."""
    until: float | None = None
    """The latest instant at which it may happen, seconds from now."""
    tone: str = "crit"


def fan_chart(
    past: Floats,
    fan: Fan | None,
    ahead: float,
    span: tuple[float, float],
    width: int,
    height: int,
    as_text: Callable[[float], str],
    marks: Sequence[Mark] = (),
    flag: Flag | None = None,
) -> list[Line]:
    """Draw `height` lines: a scale, the past (two values a sign), now, and the forecast.

    `marks`: limits, the lowest first. A forecast above a limit has the tone of that limit.
    """
    room = max(4, width - 7)
    before = min(room - 3, -(-len(past) // 2))
    after = room - before - 1
    seconds = (np.arange(2 * after) + 0.5) * ahead / max(1, 2 * after)
    was = dots(past, span, before, height)
    may = _band(fan, seconds, span, after, height)
    rows = {line_of(m.value, span, height): m for m in marks if span[0] <= m.value <= span[1]}
    names = labels([f"{a}│{b}" for a, b in zip(was, may, strict=True)], rows, before)
    column, last = _columns(flag, ahead, after)
    lines: list[Line] = []
    for y in range(height):
        value = span[1] - (span[1] - span[0]) * (y / max(1, height - 1))
        cells: list[Piece] = [(sign, "bar") for sign in was[y]]
        cells.append(("│", "dim"))
        cells += [(sign, _above(value, marks)) for sign in may[y]]
        if y in rows:
            _cross(cells, rows[y])
        for start, text, its in names.get(y, []):
            cells[start : start + len(text)] = [(sign, its) for sign in text]
        if flag is not None and column < after:
            _plant(cells, before + 1 + column, before + 1 + last, flag.tone, top=y == 0)
        lines.append([(tick(y, span, height, as_text), "dim"), *joined(cells)])
    return lines


def _band(fan: Fan | None, seconds: Floats, span: tuple[float, float], width: int, height: int) -> list[str]:
    """Draw the fan: its middle solid, the rest every other dot."""
    full = height * 4
    grid = np.zeros((full, 2 * width), bool)
    if fan is not None:
        scale = full / (span[1] - span[0])
        middle = np.where(seconds <= REACH, (fan.middle(seconds) - span[0]) * scale, np.nan)
        half = fan.half(seconds) * scale
        y = np.arange(full)[:, None] + 0.5
        with np.errstate(invalid="ignore"):
            checked = (np.arange(full)[:, None] + np.arange(2 * width)) % 2 == 0
            grid |= (np.abs(y - middle) <= half) & checked
            grid |= np.abs(y - np.clip(middle, 0.5, None)) < 0.5 + 1e-9
    lines: list[str] = []
    for top in range(full - 4, -1, -4):
        signs = []
        for x in range(width):
            left, right = grid[top : top + 4, 2 * x], grid[top : top + 4, 2 * x + 1]
            bits = sum(bit for bit, on in zip(LEFT_DOTS, left, strict=True) if on)
            bits += sum(bit for bit, on in zip(RIGHT_DOTS, right, strict=True) if on)
            signs.append(chr(0x2800 + bits) if bits else " ")
        lines.append("".join(signs))
    return lines


def _above(value: float, marks: Sequence[Mark]) -> str:
    tones = [{"warn": "bar_warn", "crit": "bar_crit"}.get(m.tone, "bar") for m in marks if value > m.value]
    return tones[-1] if tones else "bar"


def _columns(flag: Flag | None, ahead: float, after: int) -> tuple[int, int]:
    """Return the first and last column of a flag, counted from now."""
    if flag is None or ahead <= 0:
        return after, after
    first = int(flag.ahead / ahead * after)
    last = first if flag.until is None else int(min(flag.until, ahead) / ahead * after)
    return first, min(max(first, last), after - 1)


def _cross(cells: list[Piece], mark: Mark) -> None:
    """Draw a limit: dashes where the line is free; dots stay, in the limit's tone."""
    cells[:] = [("┄" if text == " " else text, tone if text == "│" else mark.tone) for text, tone in cells]


def _plant(cells: list[Piece], first: int, last: int, tone: str, *, top: bool) -> None:
    """Draw an instant as a vertical line, with a bar to its latest edge at the top."""
    cells[first] = ("▼" if top else "┊", tone)
    if top:
        cells[first + 1 : last + 1] = [("─", tone)] * (last - first)


def axis(words: Sequence[tuple[int, str]], width: int) -> str:
    """Write each word around its column; one that would overlap another is left out."""
    line = [" "] * width
    taken = [False] * (width + 2)
    for column, word in words:
        start = max(0, min(column - len(word) // 2, width - len(word)))
        if len(word) <= width and not any(taken[start : start + len(word) + 2]):
            line[start : start + len(word)] = word
            taken[start + 1 : start + len(word) + 1] = [True] * len(word)
    return "".join(line)
