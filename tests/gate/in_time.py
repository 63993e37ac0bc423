"""Heavy tests that the gate leaves out where it would take too long with them: those farthest from the change. As a
plugin of pytest (`-p tests.gate.in_time`) it leaves out what `FILE` names.

`make nightly` takes all. Whatever a change does, all tests run that take less than three seconds, and all of the files
that it touches. Of tests that are as far, each landing has others: so that one which is left out now runs soon.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping
from pathlib import Path

import pytest

from tests.gate.judge import file_of
from tests.gate.record import PROCESSORS, WORKERS, Record

MINUTES = 25.0
"""By the record, of the tests that share a fast machine; more of them at the same time than the record had take less."""
MOST_MINUTES = 40.0
"""On any machine; those that need it to themselves come to it."""
FILE = Path("build/gate/too_long.txt")
"""A test a line."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out exactly the tests that are named: `--deselect` takes each name for the begin of others too."""
    named = set(FILE.read_text(encoding="utf-8").splitlines())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in named])
    items[:] = [item for item in items if item.nodeid not in named]


def left_out(
    record: Record,
    far: Mapping[str, int],
    slow: float,
    salt: str,
    others: Collection[str] = (),
    processors: int = PROCESSORS,
) -> tuple[str, ...]:
    """Return the heavy tests that the time does not suffice for.

    `far`: imports between the change and each test file that it reaches. `slow`: how many times as long as on a fast
    machine all takes. `salt`: orders tests that are as far. `others`: files that are not run, or not with these.
    """
    files = {file: seconds for file, seconds in record.files.items() if file not in others}
    heavy = {test: seconds for test, seconds in record.heavy.items() if file_of(test) not in others}
    at_once = WORKERS * processors / PROCESSORS / slow
    room = min(MINUTES * slow, MOST_MINUTES) * 60 * at_once - sum(files.values())
    out = []
    for test in sorted(heavy, key=lambda one: (_far(one, far), _order(one, salt))):
        if _far(test, far) and heavy[test] > room:
            out.append(test)
        else:
            room -= heavy[test]
    return tuple(sorted(out))


def _far(test: str, far: Mapping[str, int]) -> float:
    return far.get(file_of(test), float("inf"))


def _order(test: str, salt: str) -> bytes:
    return hashlib.sha256(f"{salt} {test}".encode()).digest()
