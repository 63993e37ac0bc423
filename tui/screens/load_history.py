"""A chart of a circuit: its load, its limits, and the forecast to the right of now. Pure."""

from __future__ import annotations

import numpy as np

from api.power import CircuitState
from present.circuit.figures import continuous_watts
from present.circuit.outlook import CONTINUOUS, MAY_TRIP
from present.circuit.rows import limit_marks
from present.units import watts_change
from telemetry.text import short_duration, time_of_day
from tui.kit.chart import LATE, Floats, Mark, held
from tui.kit.text import clean
from tui.kit.theme import Line
from tui.kit.trip_forecast import REACH, Fan, Flag, axis, fan_chart, fan_of
from tui.screens.history import rounded, scale_watts

Past = tuple[Floats, Floats]
"""Times in ns, and watts."""
SEEN = 5.0
"""Seconds for which a load holds at least: the dashboard samples irregularly."""
_LEAST = 5
"""Samples that the chart needs."""
_AHEAD = 0.25
"""Length of the forecast as a share of the past; more where a trip is forecast."""


def stands(at: Floats) -> Floats:
    """Return how long each reading holds, in the unit of `at`: a little longer than the usual spacing
    around it. Stored readings are coarser than those that this dashboard has seen."""
    apart = np.diff(at)
    if not len(apart):
        return np.zeros(len(at))
    around = np.pad(apart, 3, mode="edge")
    usual = np.median(np.lib.stride_tricks.sliding_window_view(around, 7), axis=1)
    return LATE * np.append(usual, usual[-1])


def past_lines(
    circuit: CircuitState, past: Past, width: int, height: int, *, utc: bool, within: int | None = None
) -> list[Line]:
    """Draw at most `height` lines. `within`: seconds of history, all without."""
    at, values = (each.astype(np.float64) for each in past)
    name = clean(circuit.id)
    if within is not None and len(at):
        recent = at >= at[-1] - within * 1e9
        at, values = at[recent], values[recent]
    if np.count_nonzero(~np.isnan(values)) < _LEAST:
        return [[(f"{name} load W", "strong"), ("  under five samples yet", "dim")]]
    seconds = (at - at[-1]) / 1e9
    trip = circuit.trip_seconds.earliest
    ahead = horizon(-float(seconds[0]), trip)
    length = max(-float(seconds[0]), ahead)  # the forecast never takes more than half
    room = max(4, width - 7)
    before = round((room - 1) * length / (length + ahead))
    spaced = held(seconds, values, -length, 0.0, 2 * before, np.maximum(stands(seconds), SEEN))
    fan = fan_of(seconds, values)
    marks = limits(circuit)
    flag = None if trip is None or trip > ahead else Flag(trip, circuit.trip_seconds.latest)
    drawn = fan_chart(
        spaced, fan, ahead, (0.0, _top(values, marks, fan)), width, max(1, height - 2), scale_watts, marks, flag
    )
    start = int(at[-1] - length * 1e9)
    words = [(before, "now"), (room, f"+{_short(ahead)}")]
    if flag is not None:
        column = before + 1 + int(flag.ahead / ahead * (room - before - 1))
        words.insert(0, (column, f"{MAY_TRIP} {time_of_day(int(at[-1] + flag.ahead * 1e9), utc=utc)}"))
    words.append((0, time_of_day(start, utc=utc)))
    return [
        [(f"{name} load W", "strong"), (f"  {_short(length)} to now, forecast: {_trend(fan)}", "dim")],
        *drawn,
        [(" " * 7 + axis(words, room), "dim")],
    ]


def horizon(length: float, trip: float | None) -> float:
    """Return the length of the forecast in seconds: a quarter of the past, and up to the trip if that is
    not too far."""
    ahead = max(10.0, min(REACH, length * _AHEAD))
    if trip is not None and trip <= max(length, REACH):
        ahead = max(ahead, 1.3 * trip)
    return ahead


def limits(circuit: CircuitState) -> list[Mark]:
    """Return the limits in watts at the present mix of poles, lowest first."""
    continuous = continuous_watts(circuit)
    if continuous is None or not circuit.continuous_amps:
        return []
    per_amp = continuous / circuit.continuous_amps
    tones = {CONTINUOUS: "warn"}
    return [Mark(amps * per_amp, name, tones.get(name, "crit")) for name, amps in limit_marks(circuit)]


def _top(values: Floats, marks: list[Mark], fan: Fan | None) -> float:
    """Return the end of the scale: above the past, the limits, and a part of the fan."""
    highest = max([float(np.nanmax(values)), *(mark.value for mark in marks)])
    end = np.array([REACH])
    opened = 0.0 if fan is None else float((fan.middle(end) + fan.half(end))[0])
    return rounded(max(1.0, 1.1 * highest, min(1.05 * opened, 1.4 * highest)))


def _trend(fan: Fan | None) -> str:
    if fan is None:
        return "too few samples for a trend"
    if fan.per_second == 0:
        return "no trend"
    return f"trend {watts_change(60 * fan.per_second)} a minute"


def _short(seconds: float) -> str:
    return short_duration(seconds).replace(" ", "")
