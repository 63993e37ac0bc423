"""What pages read of the past is read once for all who look at it within ten seconds."""

from __future__ import annotations

import asyncio

import pytest

from aggregator.web.held_clocks import nothing_held
from aggregator.web.load_chart import LoadSeries
from aggregator.web.multiples import SharedPast
from aggregator.web.past_readings import median_of


async def test_it_is_made_once_and_a_fault_is_not_kept() -> None:
    shared = SharedPast()
    made: list[int] = []

    async def make() -> int:
        made.append(len(made))
        await asyncio.sleep(0)
        if len(made) == 1:
            raise RuntimeError
        return made[-1]

    with pytest.raises(RuntimeError):
        await shared.read(("a",), make)
    found = await asyncio.gather(*(shared.read(("a",), make) for _ in range(5)))
    assert (found, len(made)) == ([1] * 5, 2)
    assert await shared.read(("b",), make) == 2
    shared.SECONDS = -1.0
    assert await shared.read(("a",), make) == 3


async def test_no_more_than_its_room_is_kept() -> None:
    shared = SharedPast()
    made: list[int] = []

    async def make() -> None:
        made.append(1)

    for number in range(shared.MOST + 1):
        await shared.read((str(number),), make)
    await shared.read((str(shared.MOST),), make)
    await shared.read(("0",), make)
    assert len(made) == shared.MOST + 2, "the oldest had gone"


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
    assert (
        nothing_held(0.12, slight=False)
        == "Nothing held them in the 12% of this time that is known."
    )
    assert nothing_held(1.0, slight=True) == "Nothing held them for more than 0.5% of this time."
