"""A pytest plugin that runs tests in another order, by a seed (`-p tests.gate.shuffle`, `KILOWATCH_ORDER=seed`).

A test that passes only behind another, or only before it, fails; the same seed gives the same order again on any
machine. Files are shuffled, and the tests within each: those of a file stay together, as in the gate.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Collection

import pytest

SEED = "KILOWATCH_ORDER"
"""Environment variable with the seed, which all workers have."""


def shuffled(tests: list[str], seed: str, series: Collection[str] = ()) -> list[str]:
    """Return node ids in the order of a seed; the tests of some files keep theirs."""
    files: defaultdict[str, list[str]] = defaultdict(list)
    for test in tests:
        files[test.partition("::")[0]].append(test)
    chance = random.Random(seed)
    names = sorted(files)
    chance.shuffle(names)
    for name in names:
        if name not in series:
            chance.shuffle(files[name])
    return [test for name in names for test in files[name]]


def pytest_report_header() -> str:
    """Say by what seed the order comes again."""
    return f"{SEED}={os.environ[SEED]}"


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Shuffle what is left after all others have chosen and sorted."""
    from tests.gate.__main__ import SERIES  # later than pytest takes its plugins, of which it imports one

    tests = shuffled([item.nodeid for item in items], os.environ[SEED], SERIES)
    order = {test: place for place, test in enumerate(tests)}
    items.sort(key=lambda item: order[item.nodeid])
