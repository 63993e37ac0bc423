"""Interval sets agree with plain sets, whatever is added in whatever order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from telemetry.wire.intervals import IntervalSet

spans = st.lists(st.tuples(st.integers(0, 60), st.integers(-2, 8)), max_size=25)


@given(spans, st.lists(st.integers(0, 70), max_size=25), st.integers(0, 70), st.integers(0, 70))
def test_an_interval_set_is_a_set(pairs: list[tuple[int, int]], numbers: list[int], low: int, high: int) -> None:
    """Membership, size, what is missing, and whether a number was new."""
    intervals, plain = IntervalSet(), set[int]()
    for first, length in pairs:
        intervals.add_span(first, first + length - 1)
        plain.update(range(first, first + length))
    for number in numbers:
        assert intervals.add(number) == (number not in plain)
        plain.add(number)
    assert len(intervals) == len(plain)
    assert all((number in intervals) == (number in plain) for number in range(80))
    missing = [n for first, last in intervals.missing(low, high) for n in range(first, last + 1)]
    assert missing == [n for n in range(low, high + 1) if n not in plain]
    assert intervals.end == max(plain, default=-1)


@given(spans)
def test_spans_are_sorted_and_do_not_touch(pairs: list[tuple[int, int]]) -> None:
    """So that there are as few as can be, and equal sets look equal."""
    intervals = IntervalSet((first, first + length) for first, length in pairs)
    listed = list(intervals)
    assert all(first <= last for first, last in listed)
    assert all(a[1] + 1 < b[0] for a, b in pairwise(listed))
    assert IntervalSet(listed) == intervals
    assert intervals.spans == len(listed)
