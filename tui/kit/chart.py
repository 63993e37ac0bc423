"""A chart in braille: one metric over time, on a fixed span. Pure.

Two points a sign across, four up. A gap stays empty, and is never joined by a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tui.kit.text import fit
from tui.kit.theme import Line, Piece

Floats = npt.NDArray[np.float64]
LEFT_DOTS = (0x40, 0x04, 0x02, 0x01)
RIGHT_DOTS = (0x80, 0x20, 0x10, 0x08)
"""Dots from the bottom of a sign to its top."""


@dataclass(frozen=True)
class Mark:
    """A level that is drawn as a line across: a limit."""

    value: float
    label: str
    tone: str = "warn"


def resample(at: Floats, values: Floats, start: float, end: float, points: int) -> Floats:
    """Return the mean of the values in each of `points` equal times; NaN where there is none."""
    if end <= start or not len(at):
        return np.full(points, np.nan)
    place = ((at - start) / (end - start) * points).astype(np.intp)
    good = (place >= 0) & (place < points) & ~np.isnan(values)
    sums = np.bincount(place[good], values[good], points)
    counts = np.bincount(place[good], minlength=points)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def held(at: Floats, values: Floats, start: float, end: float, points: int, hold: float | Floats) -> Floats:
    """Return a value for each of `points` equal times: the mean of its readings; where it has none, the
    reading before it, which holds for `hold` (one for all, or one each), and no longer. An absent
    reading holds too: a gap is never drawn over."""
    spaced = resample(at, values, start, end, points)
    if end <= start or not len(at):
        return spaced
    middles = start + (np.arange(points) + 0.5) * (end - start) / points
    before = np.searchsorted(at, middles, side="right") - 1
    stands = (before >= 0) & (middles - at[before] < np.broadcast_to(hold, at.shape)[before])
    return np.where(np.isnan(spaced) & stands, values[before], spaced)


def apart(at: Floats) -> float:
    """Return the usual time between two readings; 0 for fewer than two."""
    return float(np.median(np.diff(at))) if len(at) > 1 else 0.0


LATE = 1.5
"""Usual spacings for which a reading holds: the next may be late, not missing."""


def dots(values: Floats, span: tuple[float, float], width: int, height: int) -> list[str]:
    """Draw `2 * width` values as filled columns, top line first."""
    full = height * 4
    scaled = (values[: 2 * width] - span[0]) / (span[1] - span[0]) * full
    tops = np.where(np.isnan(scaled), -1, np.clip(np.ceil(scaled), 1, full)).astype(int).tolist()
    tops += [-1] * (2 * width - len(tops))
    lines: list[str] = []
    for line in range(height):
        floor = (height - 1 - line) * 4
        signs = []
        for x in range(width):
            bits = sum(LEFT_DOTS[: max(0, min(4, tops[2 * x] - floor))])
            bits += sum(RIGHT_DOTS[: max(0, min(4, tops[2 * x + 1] - floor))])
            signs.append(chr(0x2800 + bits) if bits else " ")
        lines.append("".join(signs))
    return lines


def chart(
    values: Floats,
    span: tuple[float, float],
    width: int,
    height: int,
    as_text: Callable[[float], str],
    marks: Sequence[Mark] = (),
    times: Sequence[str] = (),
) -> list[Line]:
    """Draw a chart with its scale on the left and times below. `values`: `2 * (width - 7)` of them.
    `as_text` writes a value of the scale in at most six signs."""
    room, tall = max(1, width - 7), max(1, height - (1 if times else 0))
    lines: list[Line] = []
    rows = {line_of(mark.value, span, tall): mark for mark in marks if span[0] <= mark.value <= span[1]}
    drawn = dots(values, span, room, tall)
    names = labels(drawn, rows, room)
    for y, signs in enumerate(drawn):
        lines.append([(tick(y, span, tall, as_text), "dim"), *_crossed(signs, rows.get(y), names.get(y, []))])
    if times:
        lines.append([(" " * 7 + spread(times, room), "dim")])
    return lines


def tick(y: int, span: tuple[float, float], tall: int, as_text: Callable[[float], str]) -> str:
    """Return the scale at a line: both ends, and the middle from five lines on."""
    values = {0: span[1], tall - 1: span[0]}
    if tall >= 5:
        values[tall // 2] = (span[0] + span[1]) / 2
    return f"{fit(as_text(values[y]) if y in values else '', 6, right=True)}┤"


Label = tuple[int, str, str]
"""Column, text and tone of the name of a limit."""


def labels(drawn: Sequence[str], rows: Mapping[int, Mark], past: int) -> dict[int, list[Label]]:
    """Place the name of each limit at the right of its line, or of the line above or below, where it
    covers no dot, in the first `past` columns if it fits there; a name for which there is no such
    place is left out."""
    placed: dict[int, list[Label]] = {}
    for y, mark in rows.items():
        text = f" {mark.label} "
        blank = " " * len(text)
        near = [at for at in (y, y - 1, y + 1) if at == y or (at not in rows and 0 <= at < len(drawn))]
        for line, end in [(at, end) for end in (past, None) for at in near]:
            column = drawn[line].rfind(blank, 0, end)
            if column >= 0:
                placed.setdefault(line, []).append((column, text, mark.tone))
                break
    return placed


def line_of(value: float, span: tuple[float, float], tall: int) -> int:
    """Return the line of a value, counted from the top, in a picture of `tall` lines."""
    share = (value - span[0]) / (span[1] - span[0])
    return max(0, min(tall - 1, tall - 1 - int(share * tall - 1e-9)))


def _crossed(signs: str, mark: Mark | None, names: Sequence[Label]) -> list[Piece]:
    """Draw a line of the chart. A limit is dashes where the line is free; its dots stay, in the limit's
    tone."""
    tone = "bar" if mark is None else mark.tone
    cells: list[Piece] = [("┄" if mark and sign == " " else sign, tone) for sign in signs]
    for column, text, its in names:
        cells[column : column + len(text)] = [(sign, its) for sign in text]
    return joined(cells)


def joined(cells: Sequence[Piece]) -> list[Piece]:
    """Join neighbours of one tone."""
    pieces: list[Piece] = []
    for text, tone in cells:
        if pieces and pieces[-1][1] == tone:
            pieces[-1] = (pieces[-1][0] + text, tone)
        else:
            pieces.append((text, tone))
    return pieces


def spread(words: Sequence[str], width: int) -> str:
    """Write words evenly over a line: the first at its start, the last at its end."""
    line = [" "] * width
    for n, word in enumerate(words):
        start = round((width - len(word)) * n / max(1, len(words) - 1))
        if start >= 0 and start + len(word) <= width:
            line[start : start + len(word)] = word
    return "".join(line)


def spark(values: Floats, span: tuple[float, float], width: int) -> str:
    """Draw the newest `2 * width` values as one line; empty for no width."""
    if width <= 0:
        return ""
    newest = values[-2 * width :]
    padded = np.concatenate([np.full(2 * width - len(newest), np.nan), newest])
    return dots(padded, span, width, 1)[0]
