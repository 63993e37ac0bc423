"""A fault in each function that runs between the border and the receiver of pages, one after another."""

from __future__ import annotations

import logging
import os
import re
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.injected_faults import PACKAGES, FaultResult, always, inject, of_victim
from tests.faults.injected_outcomes import EXEMPT, UNRAISED, WHOLE
from tests.faults.injection import functions, recorded
from tests.faults.injection_scene import Scene
from tests.kit.night import seed

PARTS = 24
"""The functions are shared among so many tests of a package."""
RUN_PARTS = range(PARTS) if os.environ.get("KILOWATCH_INJECT") == "all" else (seed(0) % PARTS,)
"""Parts that run: all by `make inject`; one among the other slow tests, always the same, and another each night, for all
take half an hour of two cores."""
ONCE = 8
"""Of so many functions one raises a single time, too; all raise for as long as they are called."""
_RUN: list[str] = []


@dataclass
class InjectedRun:
    """Effects of faults in some functions."""

    wrong: list[str] = field(default_factory=list)
    """Faults that cost more than they may, or that nobody said."""
    raised: int = 0
    unraised: list[str] = field(default_factory=list)
    """Functions that were never called while a fault was injected into them."""

    def assert_good(self) -> None:
        """Fail with all that is wrong, and with the functions that were never called without a reason."""
        assert not self.wrong, "\n" + "\n".join(self.wrong)
        assert self.raised
        unknown = [name for name in self.unraised if reason_of(UNRAISED, name) is None]
        assert not unknown, "\n".join(["never raised:", *unknown])


@contextmanager
def quiet() -> Iterator[None]:
    """Log nothing: hundreds of tracebacks are the purpose of these tests."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


async def run_functions(folder: Path) -> list[str]:
    """Return the names of all functions that run in the scene, once it is under way."""
    if not _RUN:
        found = functions(PACKAGES)
        with recorded(dict.fromkeys(found)) as ran:  # from the start: only of new threads it can be
            async with Scene(folder).running() as scene:
                for _ in range(2):
                    await scene.second()
                ran.clear()
                await scene.everything()
                _RUN.extend(sorted(found[code][0] for code in set(ran)))
    return _RUN


def reason_of(table: dict[str, str], name: str) -> str | None:
    """Return the reason that a table gives for a function; its keys are regular expressions."""
    return next((why for pattern, why in table.items() if re.fullmatch(pattern, name)), None)


async def injected(folder: Path, prefix: str, part: int, parts: int) -> InjectedRun:
    """Inject into every `parts`-th function whose name begins so; none is left out without a reason."""
    with quiet():
        every = await run_functions(folder / "first")
        assert len(every) > 600
        names = [name for name in every if re.match(prefix, name) and reason_of(EXEMPT, name) is None]
        return await _injected(folder, names[part::parts])


async def _injected(folder: Path, names: list[str]) -> InjectedRun:
    by_name = dict(functions(PACKAGES).values())
    todo = [(name, once) for name in names for once in (False, True)[: 1 + _once_too(name)]]
    run = InjectedRun()
    number = 0
    while todo:
        async with Scene(folder / str(number)).running() as scene:
            for _ in range(2):
                await scene.second()
            for done, (name, once) in enumerate(list(todo)):
                todo.pop(0)
                number += 1
                result = await inject(scene, name, by_name[name], of_victim, number, once=once)
                whole = reason_of(WHOLE, name) is not None
                if not acceptable(result, whole=whole):
                    run.wrong.append(f"{result}{' (once)' if once else ''}")
                run.raised += bool(result.raised)
                if not (result.raised or once):
                    number += 1
                    result = await inject(scene, name, by_name[name], always, number, once=False)
                    known = reason_of(UNRAISED, name) is not None
                    if not result.raised and done and not known:  # by what has happened here
                        todo.insert(0, (name, once))
                        break
                    if not result.raised:
                        run.unraised.append(name)
                    elif not acceptable(result, whole=True):
                        run.wrong.append(f"{result} (in all calls)")
                if not result.good:
                    break  # the next begin with a scene that nothing has happened to
    return run


def _once_too(name: str) -> bool:
    """Return whether a function raises a single time, too: the same ones whatever else runs beside them."""
    return zlib.crc32(name.encode()) % ONCE == 0


def acceptable(result: FaultResult, *, whole: bool) -> bool:
    """Return whether a fault cost no more than it may. A whole failure may keep other faults from being
    paged while it lasts, but it is said all the same."""
    if not result.raised:
        return result.paged and result.stored
    if whole:
        return result.named and result.alerted
    return result.good
