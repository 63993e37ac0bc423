"""A fault in each function that runs between the border and the receiver of pages, one after another."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.faults.injected_faults import PACKAGES, FaultResult, inject, of_victim
from tests.faults.injected_outcomes import EXEMPT, MOST_UNRAISED, WHOLE
from tests.faults.injection import functions, recorded
from tests.faults.injection_scene import Scene

ONCE = 8
"""Of so many functions one raises a single time, too; all raise for as long as they are called."""
_RUN: list[str] = []


@dataclass
class InjectedRun:
    """What faults in some functions did."""

    wrong: list[str] = field(default_factory=list)
    """Those that cost more than they may, or that nobody said."""
    raised: int = 0
    unraised: list[str] = field(default_factory=list)
    """Functions that were never called for the victim."""

    most_unraised: float = 0

    def assert_good(self) -> None:
        """Fail with all that is wrong, and where the fault was not raised in more functions than before."""
        assert not self.wrong, "\n" + "\n".join(self.wrong)
        assert self.raised
        names = "\n".join(self.unraised)
        assert len(self.unraised) <= self.most_unraised, (
            f"{len(self.unraised)} never raised:\n{names}"
        )


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


async def injected(folder: Path, prefix: str, part: int, parts: int) -> InjectedRun:
    """Inject into every `parts`-th function whose name begins so; none is left out without a reason."""
    with quiet():
        every = await run_functions(folder / "first")
        assert len(every) > 600
        names = [name for name in every if re.match(prefix, name) and reason_of(EXEMPT, name) is None]  # fmt: skip
        run = await _injected(folder, names[part::parts])
        run.most_unraised = MOST_UNRAISED[prefix] / parts
        return run


async def _injected(folder: Path, names: list[str]) -> InjectedRun:
    by_name = dict(functions(PACKAGES).values())
    todo = [(name, once) for at, name in enumerate(names) for once in (False, True)[: 1 + (at % ONCE == 0)]]  # fmt: skip
    run = InjectedRun()
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
                    run.wrong.append(f"{result}{' (once)' if once else ''}")
                run.raised += bool(result.raised)
                if not (result.raised or once):
                    run.unraised.append(name)
                if not result.good:
                    break  # the next begin with a scene that nothing has happened to
    return run


def acceptable(result: FaultResult, *, whole: bool) -> bool:
    """Return whether a fault cost no more than it may. A whole failure may keep other faults from being
    paged while it lasts, but it is said all the same."""
    if not result.raised:
        return result.paged and result.stored
    if whole:
        return result.named and result.alerted
    return result.good
