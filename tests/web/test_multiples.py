"""A GPU beside the others: their median, and the words about what held its clocks."""

from __future__ import annotations

from aggregator.web.held_clocks import nothing_held
from aggregator.web.load_chart import LoadSeries
from aggregator.web.past_readings import median_of


def test_the_median_is_of_those_that_are_known_at_each_instant() -> None:
    parts = [
        LoadSeries([0, 10, 20], values, [None] * 3, "W", 10)
        for values in ([1.0, 5.0, None], [3.0, None, None], [8.0, 7.0, None])
    ]
    found = median_of(parts)
    assert found is not None
    assert (found.at, found.values) == ([0, 10], [3.0, 6.0])
    assert median_of([LoadSeries([0], [None], [None], "W", 10)]) is None
    assert median_of([]) is None


def test_that_nothing_held_clocks_is_said_of_the_time_that_is_known() -> None:
    assert nothing_held(1.0, slight=False) == "Nothing held them in this time."
    assert nothing_held(0.12, slight=False) == "Nothing held them in the 12% of this time that is known."
    assert nothing_held(1.0, slight=True) == "Nothing held them for more than 0.5% of this time."
