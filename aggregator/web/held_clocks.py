"""The reasons that held the clocks of a GPU, and when: a strip for each."""

from __future__ import annotations

from aggregator.http.history import StoredPast
from aggregator.web.load_chart import LoadSeries, runs
from aggregator.web.markup import fact, text
from aggregator.web.past_readings import readings_of
from present.device.gpu import CLOCK_LIMITS, POWER_CAP
from present.device.health import held_row
from present.row import FactRow
from present.units import percent
from telemetry.metric import Table

_LEAST_HELD = 0.005
"""Part of the time below which a reason is not listed."""


async def held_clocks(stored: StoredPast, gpu: str, start: int, end: int) -> str:
    """Return the reasons that limited the clocks of a GPU, the worst first; nothing where none is stored."""
    drawn, parts, slight = [], [], False
    for metric in CLOCK_LIMITS:
        series = await readings_of(stored, Table.GPU, gpu, metric, start, end)
        values = [min(1.0, value) for value in series.values if value is not None]
        if not values:
            continue
        part, share = _known(series, start, end), sum(values) / len(values)
        parts.append(part)
        if share >= _LEAST_HELD:
            row = held_row(metric, share, part)
            mark = "" if CLOCK_LIMITS[metric] == POWER_CAP else "ticket"
            drawn.append(_line(row, held_strip(series, start, end, mark)))
        slight = slight or share > 0
    if not drawn and parts:
        return f"<p>{text(nothing_held(min(parts), slight=slight))}</p>"
    return "".join(drawn)


def nothing_held(known: float, *, slight: bool) -> str:
    """Return that no reason held the clocks. `known`: part of the time with readings; `slight`: whether one did, for less
    than is listed."""
    time = "this time" if known > 0.99 else f"the {percent(known)} of this time that is known"
    least = percent(_LEAST_HELD, 1)
    return f"Nothing held them for more than {least} of {time}." if slight else f"Nothing held them in {time}."


def _line(row: FactRow, strip: str) -> str:
    return f'<p class="held">{text(row.label)}: {fact(row)}</p>{strip}'


def _known(series: LoadSeries, start: int, end: int) -> float:
    """Return the part of a time with readings."""
    spans = (series.at[run[-1]] - series.at[run[0]] + series.step for run in runs(series))
    return min(1.0, sum(spans) / max(1, end - start))


def held_strip(series: LoadSeries, start: int, end: int, mark: str) -> str:
    """Return when a reason limited the clocks; hatched where that is not known."""
    length = max(1, end - start)
    parts, before, least = "", start, 2.5 * series.step
    for run in runs(series):
        first, last = series.at[run[0]], series.at[run[-1]] + series.step
        parts += _part("unknown", before - start, first - before, length, least)
        before = last
        held = [place for place in run if series.values[place]]
        while held:  # neighbours are one shape
            many = next((n for n in range(1, len(held)) if held[n] != held[0] + n), len(held))
            since, until = series.at[held[0]], series.at[held[many - 1]] + series.step
            parts += _part(f"fill {mark}".rstrip(), since - start, until - since, length)
            held = held[many:]
    parts += _part("unknown", before - start, end - before, length, least)
    return f'<svg class="bar" aria-hidden="true"><rect class="ground" width="100%" height="100%"/>{parts}</svg>'


def _part(kind: str, begin: int, span: int, length: int, least: float = 0.0) -> str:
    if span <= least:
        return ""
    x = min(1.0, max(0.0, begin / length))
    width = min(1.0 - x, span / length)
    return f'<rect class="{kind}" x="{percent(x, 2)}" width="{percent(width, 2)}" height="100%"/>'
