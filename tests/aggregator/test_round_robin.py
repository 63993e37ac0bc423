"""Long work takes turns: one piece in each iteration of the event loop."""

from __future__ import annotations

import asyncio
import itertools

from aggregator.load.round_robin import RoundRobin
from tests.kit.waiting import within


async def test_each_piece_has_an_iteration_of_its_own() -> None:
    """However many tasks want one: between two pieces, everything else has run."""
    turns, order = RoundRobin(), list[str]()
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()

    def other() -> None:
        order.append("-")
        if not ended.is_set():
            loop.call_soon(other)

    async def work(name: str) -> None:
        for _ in range(3):
            await turns.turn()
            order.append(name)

    loop.call_soon(other)
    await asyncio.gather(*map(work, "abc"))
    ended.set()
    text = "".join(order)
    assert [letter for letter in text if letter != "-"] == list("abcabcabc")
    assert not any(one != "-" and two != "-" for one, two in itertools.pairwise(text))


async def test_who_gives_up_its_turn_holds_up_nobody() -> None:
    turns, order = RoundRobin(), list[str]()

    async def work(name: str) -> None:
        await turns.turn()
        order.append(name)

    tasks = [asyncio.create_task(work(name)) for name in "abc"]
    await asyncio.sleep(0)  # all wait
    tasks[0].cancel()
    tasks[1].cancel()
    await asyncio.wait(tasks)
    assert order == ["c"]
    async with within():
        await turns.turn()  # and the next one too
