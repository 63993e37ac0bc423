"""The wait of the tests: for a condition, with one patience that a slow machine stretches.

`KILOWATCH_PATIENCE=4 make test` waits four times as long for everything, and lets each test take four
times as long. A test that passes takes no longer by it.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

FACTOR = float(os.environ.get("KILOWATCH_PATIENCE", "1"))
"""By which all patience is multiplied."""
PATIENCE = 60.0
"""Seconds that a condition has, before they are multiplied."""
EVERY = 0.01
"""Seconds between two looks."""

What = str | Callable[[], str]
"""What is waited for, as text, or what returns it once it did not come; else the source of the condition."""


async def until(condition: Callable[[], Any], what: What = "", seconds: float = PATIENCE, every: float = EVERY) -> Any:
    """Wait until a condition is true, and return its value. Raises `AssertionError` that says what did not
    come. A condition that asks another side may be awaitable."""
    ends = time.monotonic() + seconds * FACTOR
    while True:
        late = time.monotonic() > ends  # then this look is the last
        found = condition()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        assert not late, _never(condition, what, seconds, found)
        await asyncio.sleep(every)


def wait_until(
    condition: Callable[[], T | None], what: What = "", seconds: float = PATIENCE, every: float = 5 * EVERY
) -> T:
    """As `until`, where no loop runs: for other processes and threads, which are asked less often."""
    ends = time.monotonic() + seconds * FACTOR
    while True:
        late = time.monotonic() > ends
        found = condition()
        if found:
            return found
        assert not late, _never(condition, what, seconds, found)
        time.sleep(every)


def within(seconds: float = PATIENCE) -> asyncio.Timeout:
    """Return a limit for what is awaited in its block: `async with within():`. A hang ends here, and nothing else."""
    return asyncio.timeout(seconds * FACTOR)


def end_of_patience(seconds: float = PATIENCE) -> float:
    """Return when, by `time.monotonic()`, a loop that does more than wait gives up."""
    return time.monotonic() + seconds * FACTOR


def _never(condition: Callable[[], Any], what: What, seconds: float, found: object) -> str:
    if callable(what):
        what = what()
    if not what:
        try:
            what = " ".join(inspect.getsource(condition).split())
        except (OSError, TypeError):  # a partial, or what C has defined
            what = repr(condition)
    return f"not within {seconds * FACTOR:g} s: {what} (at last {found!r})"
