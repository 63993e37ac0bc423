"""A pytest plugin that wakes the waits of tests early or late (`-p tests.gate.wakes`, `KILOWATCH_WAKES=early`).

A test that waits for one thing and asserts another passes where its poll happens to come at the right time. Early
it comes in the very turn in which its condition turns true, before anything else has happened; late it comes up to
0.4 s afterwards, when a state that passes has passed: what a busy machine does to one test in a thousand.
"""

from __future__ import annotations

import ast
import asyncio
import functools
import os
import re
import sys
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

WAKES = "KILOWATCH_WAKES"
TESTS = f"{Path(__file__).resolve().parents[1]}{os.sep}"
LATE = 0.4
"""Seconds between two looks."""
LONGEST = 0.5
"""Seconds from which a sleep is none between two looks."""
TURNS = 40
"""Looks in as many turns of the loop, after which others get the processor for a millisecond."""
WAIT = re.compile(r"_?(until|wait_until|wait_for|eventually|settled)(_\w+)?")
"""Names of functions that wait, as `tests/test_structure.py` has them."""


def polls(tree: ast.AST) -> Iterator[int]:
    """Yield the lines of sleeps between two looks: in functions of such a name, and in loops of nothing else."""
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if WAIT.fullmatch(name):
                yield from _sleeps(node)
            case ast.While(test=test, body=body) if not isinstance(test, ast.Constant):
                if not list(_calls_but_sleeps(body)):
                    yield from _sleeps(node)


def waits(source: str) -> bool:
    """Return whether a file has such sleeps."""
    return any(True for _ in polls(ast.parse(source)))


def _sleeps(node: ast.AST) -> Iterator[int]:
    for part in ast.walk(node):
        match part:
            case ast.Call(ast.Attribute(attr="sleep"), [_, *_]):
                yield from range(part.lineno, (part.end_lineno or part.lineno) + 1)


def _calls_but_sleeps(body: list[ast.stmt]) -> Iterator[ast.AST]:
    for statement in body:
        if isinstance(statement, ast.Assert):
            continue
        for part in ast.walk(statement):
            match part:
                case ast.Call(ast.Attribute(attr="sleep")):
                    pass
                case ast.Call():
                    yield part


@functools.cache
def _polls_of(file: str) -> frozenset[int]:
    return frozenset(polls(ast.parse(Path(file).read_text(encoding="utf-8"))))


def _is_poll(seconds: float, caller: FrameType) -> bool:
    file = caller.f_code.co_filename
    return 0 < seconds < LONGEST and file.startswith(TESTS) and caller.f_lineno in _polls_of(file)


def install(how: str) -> None:
    """Change the sleeps of polls in this process."""
    if how not in {"early", "late"}:
        raise ValueError(f"{WAKES}={how}: early or late")
    turns, sleep, block = 0, asyncio.sleep, time.sleep

    def woken(seconds: float, result: Any = None) -> Coroutine[Any, Any, Any]:
        nonlocal turns
        if _is_poll(seconds, sys._getframe(1)):
            turns += 1
            early = 0.001 if turns % TURNS == 0 else 0.0
            seconds = early if how == "early" else LATE
        return sleep(seconds, result)

    def blocked(seconds: float) -> None:
        if _is_poll(seconds, sys._getframe(1)):
            seconds = 0.0005 if how == "early" else LATE
        block(seconds)

    asyncio.sleep = woken  # type: ignore[assignment]
    time.sleep = blocked


def pytest_configure() -> None:
    """Change them before the first test file is read."""
    install(os.environ[WAKES])


def pytest_report_header() -> str:
    """Say how the waits wake."""
    return f"{WAKES}={os.environ[WAKES]}"
