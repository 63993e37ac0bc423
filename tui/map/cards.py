"""Cards of a few GPUs, in place of a map on a desktop. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.cells import cell_len

from present.device.gpu import clock_limit_row, pcie_row, short_model
from present.units import celsius, gibibytes_of, megahertz, number, percent, watts_of
from tui.kit.chart import dots, spark
from tui.kit.text import bar, clean, fit
from tui.kit.theme import Line, Piece
from tui.state import readings
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import Floats
from tui.state.row_status import RowStatus
from tui.tables.listing import gpu_mark

MOST = 64
TALL, NARROW = 5, 37
TALLEST, WIDE_CARDS = 14, 110
"""Lines of a card at most unless half of the screen is more, and the width of the map from which on cards grow."""
TWO_TRACES = 9
"""Lines from which on the temperature is drawn below the power."""
TRACED = (readings.POWER, readings.TEMPERATURE)
"""Metrics that a card draws over time."""
_DEGREES = (20.0, 100.0)
FACTS = ("gpu_memory_temperature_celsius", "gpu_fan_speed_ratio", "gpu_pcie_link_generation", "gpu_pcie_link_width")
"""Further metrics of a card that has room."""
_FRAMES = {RowStatus.WARN: "warn", RowStatus.CRIT: "crit", RowStatus.DOWN: "down", RowStatus.STALE: "stale"}


def columns_of(count: int, width: int, height: int) -> int:
    """Return how many cards fit beside each other; 0 when they don't fit at all."""
    across = max(1, min(width // NARROW, count))
    across = -(-count // -(-count // across)) if count else across  # rows of one length
    return across if 0 < count <= MOST and -(-count // across) * TALL <= height and width >= NARROW else 0


def cards(
    state: DashboardState,
    rows: Sequence[int],
    width: int,
    across: int,
    past: Floats | None,
    cursor: int | None,
    tall: int = TALL,
) -> list[Line]:
    """Draw a card of `tall` lines for each row. `past`: earlier values by time, metric of `TRACED` and row."""
    size = width // across
    lines: list[Line] = []
    for start in range(0, len(rows), across):
        drawn = [
            _card(state, row, size, None if past is None else past[:, :, row], row == cursor, tall)
            for row in rows[start : start + across]
        ]
        lines += [[piece for card in drawn for piece in card[y]] for y in range(tall)]
    return lines


def _card(state: DashboardState, row: int, width: int, past: Floats | None, here: bool, tall: int) -> list[list[Piece]]:
    gpus = state.gpus
    status = RowStatus(state.gpu_status[row])
    frame = "here" if here else _FRAMES.get(status, "frame")
    inner = width - 4
    power, limit = gpus.value(readings.POWER, row), gpus.value(readings.LIMIT, row)
    used, total = gpus.value(readings.MEMORY_USED, row), gpus.value(readings.MEMORY_TOTAL, row)
    util = gpus.value(readings.UTILIZATION, row)
    model = short_model(gpus.who.name[row]).removeprefix("GeForce ")
    name = f" gpu{gpus.who.gpu[row]} {clean(model)} "
    many = len(state.nodes) > 1
    name = f" {fit(clean(gpus.who.node[row]), min(12, len(gpus.who.node[row])), tail=True)}{name}" if many else name
    word = f" {gpu_mark(state, row)[0]} "
    title = fit(name, min(cell_len(name), width - 2 - cell_len(word)))
    rule = "─" * max(0, width - 2 - cell_len(title) - cell_len(word))
    limited = clock_limit_row(lambda metric: gpus.value(metric, row))
    limit_words = f"{limited.label}: {limited.short}" if limited.short else f"no {limited.label}"
    hot = celsius(gpus.value(readings.TEMPERATURE, row))
    drawn = watts_of(power, limit, exact=True)
    trace = ""
    room = max(0, inner - len(limit_words) - 1)
    if tall > TALL:
        limit_words = limit_words.removeprefix(f"{limited.label}: ")
    elif past is not None and len(past):
        trace = spark(past[:, 0], (0.0, _top(past[:, 0], limit)), min(room, 60))
    caution = limited.tone or "dim"
    rows: list[list[Piece]] = [
        [("╭", frame), (title, "strong" if frame == "frame" else frame), (rule, frame),
         (word, frame if frame != "frame" else "ok"), ("╮", frame)],
        _gauge("util", percent(util), util, drawn, inner),
        _gauge("mem", gibibytes_of(used, total),
               used / total if used is not None and total else None, hot, inner),
        *([[(fit(trace, room), "bar"), (" ", ""), (limit_words, caution)]] if tall <= TALL else
          [_facts(state, row, limit_words, caution), *_trace(past, limit, inner, tall - TALL)]),
        [(f"╰{'─' * (width - 2)}╯", frame)],
    ]  # fmt: skip
    return [rows[0], *([("│ ", frame), *_filled(middle, inner), (" │", frame)] for middle in rows[1:-1]), rows[-1]]


def _facts(state: DashboardState, row: int, limited: str, caution: str) -> list[Piece]:
    value = state.gpus.value
    clock = value(readings.CLOCK, row)
    memory, fan = (value(metric, row) for metric in FACTS[:2])
    bus = pcie_row(lambda metric: value(metric, row))
    pieces: list[Piece] = [(megahertz(clock), ""), (" ", ""), (limited, caution)]
    if memory is not None:
        pieces.append((f"  mem {celsius(memory)}", ""))
    if bus.value:
        pieces.append((f"  {bus.label} {bus.value}", bus.tone or "dim"))
    if fan is not None:
        pieces.append((f"  fan {percent(fan)}", "dim"))
    return pieces


def _trace(past: Floats | None, limit: float | None, width: int, tall: int) -> list[list[Piece]]:
    """Draw earlier power over several lines, up to the power limit; with room, the temperature below it."""
    if past is None or not len(past):
        return [[] for _ in range(tall)]
    span = (0.0, _top(past[:, 0], limit))
    if tall < TWO_TRACES:
        return _dots(past[:, 0], span, width, tall)
    warm = (tall - 2) // 3
    return [
        [(f"power W, 0 to {number(span[1])}", "dim")],
        *_dots(past[:, 0], span, width, tall - 2 - warm),
        [(f"temperature °C, {_DEGREES[0]:.0f} to {_DEGREES[1]:.0f}", "dim")],
        *_dots(past[:, 1], _DEGREES, width, warm),
    ]


def _dots(values: Floats, span: tuple[float, float], width: int, tall: int) -> list[list[Piece]]:
    newest = values[-2 * width :]
    padded = np.concatenate([np.full(2 * width - len(newest), np.nan), newest])
    return [[(line, "bar")] for line in dots(padded, span, width, tall)]


def _top(past: Floats, limit: float | None) -> float:
    """Return the power that is drawn at full height, watts."""
    return limit or max(1.0, float(np.nanmax(past, initial=1.0)))


_WORDS = len("287/288 GiB")


def _gauge(word: str, words: str, ratio: float | None, right: str, width: int) -> list[Piece]:
    room = max(3, width - 5 - _WORDS - 10 - 2)
    return [
        (fit(word, 5), "dim"), (fit(words, _WORDS, right=True), ""), (" ", ""),
        (bar(ratio, room), "bar"), (" ", ""), (fit(right, 10, right=True), "strong"),
    ]  # fmt: skip


def _filled(pieces: list[Piece], width: int) -> list[Piece]:
    kept: list[Piece] = []
    left = width
    for text, tone in pieces:
        size = cell_len(text)
        if size > left:  # a fact that does not fit is left out whole
            break
        kept.append((text, tone))
        left -= size
    return [*kept, (" " * left, "")]
