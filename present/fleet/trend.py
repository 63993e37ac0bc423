"""Whether a cluster draws more than before, and its fullest circuit is fuller, in words. Pure."""

from __future__ import annotations

from dataclasses import replace

from api.fleet import ClusterTrends, FleetSummary, Trend, TrendGap
from present.fleet.headline import Heard
from present.fleet.wall import WallSum, wall_row
from present.row import FactRow, Tone
from present.units import at_least, watts, watts_change
from telemetry.text import counted, duration

AN_HOUR = 3500.0
"""Seconds from which on it is an hour: samples are ten seconds apart."""
_SAME = 0.01
"""Part of a power by which it may differ and be as much as before."""
_SHORT = "it needs two minutes of readings"
_GAPS = {
    TrendGap.SHORT: _SHORT,
    TrendGap.PARTIAL: "a part of it is not known or assumed",
    TrendGap.OTHERS: "what was read before is not what is read now",
}


def power_trend(label: str, trend: Trend, now: str = "") -> FactRow:
    """Return how a power has changed: `12.0 kW, 800 W more than an hour ago`, short `+800 W in an hour`. `now`: its words
    beside it, of this second: a mean would contradict them."""
    if trend.now is None or trend.before is None or trend.seconds is None:
        return _unknown(label, trend, now)
    change, then = trend.now - trend.before, _then(trend.seconds)
    if abs(change) <= _SAME * max(trend.now, trend.before):
        words = f"about as much as {then} ago"
    else:
        words = f"{watts(abs(change))} {'more' if change > 0 else 'less'} than {then} ago"
    return FactRow(label, _after(now, words), short=f"{watts_change(change)} in {then}")


def breaker_trend(label: str, trend: Trend) -> FactRow:
    """Return whether the fullest circuit, of its rating, is fuller than before: `12 points up`, noted `in an hour`."""
    if trend.now is None or trend.before is None or trend.seconds is None:
        return _unknown(label, trend)
    change, then = round(100 * (trend.now - trend.before)), _then(trend.seconds)
    if not change:
        return FactRow(label, "the same", note=f"as {then} ago")
    way = "up" if change > 0 else "down"
    return FactRow(label, f"{counted(abs(change), 'point')} {way}", note=f"in {then}")


def trend_line(trends: ClusterTrends | None, wall: str, gpus: str, *, circuits: bool) -> str:
    """Return the trends as one sentence; "" where the aggregator does not say. `wall`, `gpus`: words of the power at the
    wall and of the GPUs; `circuits`: whether there are any."""
    if trends is None:
        return ""
    by_gpus = trends.wall_watts.gap is TrendGap.UNKNOWN
    power = trends.gpu_power_watts if by_gpus else trends.wall_watts
    rows = [power_trend("GPU power" if by_gpus else "at the wall", power, gpus if by_gpus else wall)]
    if circuits:
        its = breaker_trend("fullest circuit", trends.nearest_ratio)
        same = _span(power) == _span(trends.nearest_ratio)  # then it is said once
        rows.append(its if same or not its.note else replace(its, value=f"{its.value} {its.note}"))
    short = all(row.value.endswith(_SHORT) for row in rows)
    words = f"no trend yet: {_SHORT}" if short else "; ".join(f"{row.label} {row.value}" for row in rows)
    return f"{words[0].upper()}{words[1:]}."


def power_words(wall: WallSum, summary: FleetSummary, heard: Heard) -> tuple[str, str]:
    """Return the power at the wall and of the GPUs, as every first screen has them."""
    its = wall_row(wall, heard.nodes, summary.gpu_power_watts).value if wall.watts is not None else ""
    gpus = at_least(watts(summary.gpu_power_watts), partial=heard.unread > 0)
    return its, gpus if summary.gpu_power_watts is not None else ""


def _unknown(label: str, trend: Trend, now: str = "") -> FactRow:
    why = _GAPS.get(trend.gap or TrendGap.UNKNOWN, "it is not known")
    return FactRow(label, _after(now, f"without a trend: {why}"), Tone.STALE)


def _after(now: str, words: str) -> str:
    return f"{now}, {words}" if now else words


def _span(trend: Trend) -> str:
    return "" if trend.seconds is None else _then(trend.seconds)


def _then(seconds: float) -> str:
    return "an hour" if seconds >= AN_HOUR else duration(60 * round(seconds / 60))
