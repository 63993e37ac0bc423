"""A small picture of the readings on a card, for channels that take one: PNG, without other packages.

A panel a metric, time to the right, the moment as a vertical line. A gap is empty, never a number.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

from alerts.message.evidence_text import shown_columns
from api.evidence import Evidence
from present.alert.evidence import card_place
from present.device.reading import metric_text, reading_text

_PANELS = (
    "gpu_temperature_celsius",
    "gpu_memory_temperature_celsius",
    "gpu_power_watts",
    "gpu_sm_clock_hertz",
    "gpu_utilization_ratio",
    "node_wall_power_watts",
    "node_gpus_answering",
)
_MOST_PANELS = 4
_WIDTH, _PANEL, _MARGIN = 480, 84, 8
_SCALE = 2
_PALETTE = ((255, 255, 255), (20, 20, 20), (200, 205, 210), (30, 90, 200), (201, 54, 46))
_PAPER, _INK, _GRID, _LINE, _MOMENT = range(5)
_FONT = {
    character: tuple(rows.split())
    for character, rows in {
        "0": "111 101 101 101 111", "1": "010 110 010 010 111", "2": "111 001 111 100 111",
        "3": "111 001 111 001 111", "4": "101 101 111 001 001", "5": "111 100 111 001 111",
        "6": "111 100 111 101 111", "7": "111 001 010 010 010", "8": "111 101 111 101 111",
        "9": "111 101 111 001 111", "A": "010 101 111 101 101", "B": "110 101 110 101 110",
        "C": "011 100 100 100 011", "D": "110 101 101 101 110", "E": "111 100 110 100 111",
        "F": "111 100 110 100 100", "G": "011 100 101 101 011", "H": "101 101 111 101 101",
        "I": "111 010 010 010 111", "J": "001 001 001 101 010", "K": "101 101 110 101 101",
        "L": "100 100 100 100 111", "M": "101 111 111 101 101", "N": "110 101 101 101 101",
        "O": "010 101 101 101 010", "P": "110 101 110 100 100", "Q": "010 101 101 111 011",
        "R": "110 101 110 101 101", "S": "011 100 010 001 110", "T": "111 010 010 010 010",
        "U": "101 101 101 101 111", "V": "101 101 101 101 010", "W": "101 101 111 111 101",
        "X": "101 101 010 101 101", "Y": "101 101 010 010 010", "Z": "111 001 010 100 111",
        ".": "000 000 000 000 010", "-": "000 000 111 000 000", "%": "101 001 010 100 101",
        ":": "000 010 000 010 000", "+": "000 010 111 010 000", "°": "111 101 111 000 000",
        "/": "001 001 010 100 100", ",": "000 000 000 010 100",
    }.items()
}  # fmt: skip
"""Characters of three by five dots; any other is a blank."""


def picture_of(card: Evidence) -> bytes | None:
    """Return a PNG of the readings of a card; None where it has too few."""
    readings = card.readings
    shown = set(shown_columns(readings))
    panels = [
        name for name in _PANELS if name in shown and sum(value is not None for value in readings.columns[name]) >= 2
    ][:_MOST_PANELS]
    if not panels or readings.at[-1] <= readings.at[0]:
        return None
    canvas = _Canvas(_WIDTH, 20 + _PANEL * len(panels))
    canvas.text(_MARGIN, 5, f"{card_place(card)}  {card.rule.replace('_', ' ')}"[:56], _INK)
    first, length = readings.at[0], readings.at[-1] - readings.at[0]

    def across(at: int) -> int:
        share = min(1.0, max(0.0, (at - first) / length))
        return _MARGIN + round(share * (_WIDTH - 1 - 2 * _MARGIN))

    for number, name in enumerate(panels):
        top = 20 + number * _PANEL
        canvas.line(across(card.moment), top + 16, across(card.moment), top + _PANEL - 8, _MOMENT)
        _panel(canvas, top, name, [across(at) for at in readings.at], readings.columns[name])
    return canvas.png()


def _panel(canvas: _Canvas, top: int, name: str, across: Sequence[int], values: Sequence[float | None]) -> None:
    present = [value for value in values if value is not None]
    low, high = min(present), max(present)
    last = values[-1]
    words = f"{metric_text(name)}  {reading_text(name, low)} - {reading_text(name, high)}, now "
    canvas.text(_MARGIN, top + 2, f"{words}{reading_text(name, last)}"[:56], _INK)
    upper, lower = top + 18, top + _PANEL - 10
    for y in (upper, lower):
        canvas.line(_MARGIN, y, _WIDTH - _MARGIN, y, _GRID)
    span = high - low or 1.0
    before: tuple[int, int] | None = None
    for x, value in zip(across, values, strict=True):
        if value is None:
            before = None
            continue
        y = lower - round((value - low) / span * (lower - upper)) if high > low else (upper + lower) // 2
        canvas.line(*(before or (x, y)), x, y, _LINE, thick=True)
        before = x, y


class _Canvas:
    """Dots of a palette."""

    def __init__(self, width: int, height: int) -> None:
        self._width, self._height = width, height
        self._dots = bytearray(width * height)

    def dot(self, x: int, y: int, colour: int) -> None:
        if 0 <= x < self._width and 0 <= y < self._height:
            self._dots[y * self._width + x] = colour

    def line(self, x: int, y: int, x2: int, y2: int, colour: int, *, thick: bool = False) -> None:
        steps = max(abs(x2 - x), abs(y2 - y), 1)
        for step in range(steps + 1):
            at = x + round((x2 - x) * step / steps), y + round((y2 - y) * step / steps)
            self.dot(*at, colour)
            if thick:
                self.dot(at[0], at[1] + 1, colour)
                self.dot(at[0] + 1, at[1], colour)

    def text(self, x: int, y: int, words: str, colour: int) -> None:
        for place, character in enumerate(words.upper()):
            for row, dots in enumerate(_FONT.get(character, ())):
                for column, dot in enumerate(dots):
                    if dot == "1":
                        left = x + (place * 4 + column) * _SCALE
                        for down in range(_SCALE):
                            for right in range(_SCALE):
                                self.dot(left + right, y + row * _SCALE + down, colour)

    def png(self) -> bytes:
        rows = (self._dots[y * self._width : (y + 1) * self._width] for y in range(self._height))
        packed = zlib.compress(b"".join(b"\0" + row for row in rows), 9)
        header = struct.pack(">IIBBBBB", self._width, self._height, 8, 3, 0, 0, 0)
        palette = bytes(part for colour in _PALETTE for part in colour)
        chunks = ((b"IHDR", header), (b"PLTE", palette), (b"IDAT", packed), (b"IEND", b""))
        return b"\x89PNG\r\n\x1a\n" + b"".join(_chunks(chunks))


def _chunks(chunks: Sequence[tuple[bytes, bytes]]) -> Iterator[bytes]:
    for name, body in chunks:
        yield struct.pack(">I", len(body)) + name + body
        yield struct.pack(">I", zlib.crc32(name + body))
