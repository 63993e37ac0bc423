"""An exception in every function between the border and the receiver of pages costs only its own.

Which functions there are is found by running the scene; none may be left out without a reason.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.injected_faults import (
    PACKAGES,
    FaultResult,
    always,
    inject,
    of_victim,
)
from tests.faults.injected_outcomes import EXEMPT, MOST_WHOLE, WHOLE
from tests.faults.injection import functions, recorded
from tests.faults.injection_scene import Scene

PARTS = 12
"""The functions are shared among so many tests."""
ONCE = 8
"""Of so many functions one raises a single time, too; all raise for as long as they are called."""
_RUN: list[str] = []


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """Hundreds of tracebacks are the purpose of these tests."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


async def run_functions(folder: Path) -> list[str]:
    """Return the names of all functions that run in the scene, once it is under way."""
    if not _RUN:
        found = functions(PACKAGES)
        async with Scene(folder).running() as scene:
            for _ in range(2):
                await scene.second()
            with recorded(dict.fromkeys(found)) as ran:
                await scene.everything()
        _RUN.extend(sorted(found[code][0] for code in ran))
    return _RUN


def reason_of(table: dict[str, str], name: str) -> str | None:
    """Return the reason that a table gives for a function; its keys are regular expressions."""
    return next((why for pattern, why in table.items() if re.fullmatch(pattern, name)), None)


@pytest.mark.parametrize("part", range(PARTS))
async def test_a_fault_in_any_function_costs_only_its_own(tmp_path: Path, part: int) -> None:
    """Named by the impairments and an alert within five seconds, while the honest nodes' frames are
    stored and another fault is paged: lasting, and over at once."""
    names = [name for name in await run_functions(tmp_path / "first") if reason_of(EXEMPT, name) is None]  # fmt: skip
    assert len(names) > 500
    wrong = await injected(tmp_path, names[part::PARTS])
    assert not wrong, "\n" + "\n".join(wrong)


async def injected(folder: Path, names: list[str]) -> list[str]:
    """Return what is wrong after a fault in each of some functions."""
    by_name = dict(functions(PACKAGES).values())
    todo = [(name, once) for at, name in enumerate(names) for once in (False, True)[: 1 + (at % ONCE == 0)]]  # fmt: skip
    wrong: list[str] = []
    number = 0
    while todo:
        async with Scene(folder / str(number)).running() as scene:
            for _ in range(2):
                await scene.second()
            while todo:
                name, once = todo.pop(0)
                number += 1
                result = await inject(scene, name, by_name[name], of_victim, number, once=once)
                whole = reason_of(WHOLE, name) is not None
                if not acceptable(result, whole=whole):
                    wrong.append(f"{result}{' (once)' if once else ''}")
                if not result.good:
                    break  # the next begin with a scene that nothing has happened to
    return wrong


def acceptable(result: FaultResult, *, whole: bool) -> bool:
    """Return whether a fault cost no more than it may. A whole failure may keep other faults from being
    paged while it lasts, but it is said all the same."""
    if not result.raised:
        return result.paged and result.stored
    if whole:
        return result.named and result.alerted
    return result.good


async def test_few_functions_may_stop_everything(tmp_path: Path) -> None:
    """Those are named one by one with the reason; each pattern still fits a function."""
    names = await run_functions(tmp_path)
    whole = [name for name in names if reason_of(WHOLE, name) is not None]
    assert len(whole) <= MOST_WHOLE < len(names) / 10, "\n".join(whole)
    every = {name for name, _ in functions(PACKAGES).values()}
    for pattern in (*WHOLE, *EXEMPT):
        assert any(re.fullmatch(pattern, name) for name in every), f"{pattern} fits no function"


async def test_the_injection_finds_a_fault_that_is_swallowed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An injected fault that nobody reports is found wrong: the test can fail."""
    by_name = dict(functions(PACKAGES).values())
    name = "aggregator.alerting.pipeline.AlertPipeline.notified"
    async with Scene(tmp_path).running() as scene:
        await scene.second()
        monkeypatch.setattr(scene.aggregator.impairments, "report", lambda *_, **__: None)
        result = await inject(scene, name, by_name[name], always, 1, once=False)
        assert result.raised
        assert not result.named
        assert not acceptable(result, whole=False)
