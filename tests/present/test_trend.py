"""Whether it is better or worse than before, in words: never by ignorance, and never by a part that is missing."""

from __future__ import annotations

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from api.fleet import ClusterTrends, FleetSummary, Trend, TrendGap
from present.fleet.headline import Heard
from present.fleet.trend import breaker_trend, power_trend, power_words, trend_line
from present.fleet.wall import WallSum
from present.row import Tone


def trend(now: float, before: float, seconds: float = 3600.0) -> Trend:
    return Trend(now=now, before=before, seconds=seconds)


@pytest.mark.parametrize(
    ("found", "words", "short"),
    [
        (trend(12_000.0, 11_200.0), "800 W more than an hour ago", "+800 W in an hour"),
        (trend(9_000.0, 11_200.0), "2.2 kW less than an hour ago", "-2.2 kW in an hour"),
        (trend(12_000.0, 11_200.0, 1200.0), "800 W more than 20 min ago", "+800 W in 20 min"),
        (trend(12_000.0, 11_950.0), "about as much as an hour ago", "+50 W in an hour"),
        (trend(0.0, 0.0), "about as much as an hour ago", "+0 W in an hour"),
    ],
)
def test_a_power_is_compared_with_that_of_an_hour_ago(found: Trend, words: str, short: str) -> None:
    row = power_trend("at the wall", found)
    assert (row.value, row.short) == (words, short)


@pytest.mark.parametrize(
    ("found", "words"),
    [
        (trend(0.84, 0.72), "12 points up in an hour"),
        (trend(0.72, 0.731, 600.0), "1 point down in 10 min"),
        (trend(0.831, 0.834, 98.0), "the same as 2 min ago"),
    ],
)
def test_the_fullest_circuit_is_nearer_or_farther(found: Trend, words: str) -> None:
    row = breaker_trend("fullest circuit", found)
    assert f"{row.value} {row.note}" == words


@pytest.mark.parametrize("gap", [*TrendGap])
def test_what_is_not_known_has_words_and_no_figure(gap: TrendGap) -> None:
    for row in (power_trend("a", Trend(gap=gap)), breaker_trend("b", Trend(gap=gap))):
        assert row.value.startswith("without a trend: ")
        assert not any(sign.isdigit() for sign in row.value)
        assert row.short == ""
        assert row.tone is Tone.STALE


def test_the_line_has_the_wall_or_else_the_gpus_and_circuits_where_there_are_some() -> None:
    power, near = trend(12_000.0, 11_200.0), trend(0.84, 0.72)
    all_of_it = ClusterTrends(wall_watts=power, gpu_power_watts=trend(9000.0, 9000.0), nearest_ratio=near)
    line = "At the wall ≥12.0 kW, 800 W more than an hour ago"
    assert trend_line(all_of_it, "≥12.0 kW", "9.0 kW", circuits=True) == (f"{line}; fullest circuit 12 points up.")
    short = trend_line(all_of_it, "12.0 kW", "", circuits=True).removesuffix(".")
    assert cell_len(short) <= 78, "whole on a terminal of 80 columns"
    later = replace(all_of_it, nearest_ratio=trend(0.84, 0.84, 1200.0))
    assert trend_line(later, "≥12.0 kW", "", circuits=True) == f"{line}; fullest circuit the same as 20 min ago."
    assert trend_line(all_of_it, "≥12.0 kW", "9.0 kW", circuits=False) == f"{line}."
    gpus = ClusterTrends(
        wall_watts=Trend(gap=TrendGap.UNKNOWN), gpu_power_watts=power, nearest_ratio=Trend(gap=TrendGap.PARTIAL)
    )
    assert trend_line(gpus, "", "9.0 kW", circuits=True) == (
        "GPU power 9.0 kW, 800 W more than an hour ago; fullest circuit without a trend: a part of it is not known or assumed."
    )
    lost = ClusterTrends(wall_watts=Trend(gap=TrendGap.UNKNOWN), gpu_power_watts=Trend(gap=TrendGap.UNKNOWN))
    assert trend_line(lost, "", "", circuits=False) == "GPU power without a trend: it is not known."


def test_nothing_is_said_of_what_an_older_aggregator_does_not_say() -> None:
    assert trend_line(None, "1 W", "1 W", circuits=True) == ""
    short = trend_line(ClusterTrends(), "1 W", "1 W", circuits=True)
    assert short == "No trend yet: it needs two minutes of readings."


def test_a_power_that_is_known_in_part_says_so_and_one_that_is_not_has_no_words() -> None:
    heard = Heard(nodes=2, silent=0, gpus=4, unread=1)
    summary = FleetSummary(gpu_power_watts=900.0)
    assert power_words(WallSum(1200.0, 1), summary, heard) == ("≥1.2 kW", "≥900 W")
    assert power_words(WallSum(None, 0), FleetSummary(), heard) == ("", "")
