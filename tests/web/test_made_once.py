"""Parts of pages that are made once for all viewers who ask for them."""

from __future__ import annotations

import asyncio

import pytest

from aggregator.web.made_once import MadeOnce


async def test_it_is_made_once_and_a_fault_is_not_kept() -> None:
    shared = MadeOnce[int](10.0, 64)
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
    shared.seconds = -1.0
    assert await shared.read(("a",), make) == 3


async def test_no_more_than_its_room_is_kept() -> None:
    shared = MadeOnce[None](10.0, 64)
    made: list[int] = []

    async def make() -> None:
        made.append(1)

    for number in range(shared.most + 1):
        await shared.read((str(number),), make)
    await shared.read((str(shared.most),), make)
    await shared.read(("0",), make)
    assert len(made) == shared.most + 2, "the oldest had gone"
