"""Decide by the outcomes of all tests, and of the second try of those that failed, whether a change may land."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from tests.gate.outcomes import Outcome

MOST_FAILED = 8
"""With more failures than this there is no second try: the change or the machine is at fault."""
MOST_FLAKY = 3
"""Flaky tests that a run may have."""
HANG_COUNTS = 2
"""A test that hung counts as so many: it costs minutes, and hides a fault that lasts."""


@dataclass(slots=True)
class Tally:
    """What the outcomes of a run add up to."""

    seconds: dict[str, float] = field(default_factory=dict)
    """By test, set-up and tear-down included."""
    cpu: dict[str, float] = field(default_factory=dict)
    """Processor time by test, s."""
    skipped: set[str] = field(default_factory=set)
    failed: dict[str, bool] = field(default_factory=dict)
    """Tests that failed in any phase; whether they hung."""

    @property
    def passed(self) -> int:
        """Number of tests that ran and did not fail."""
        return len(self.seconds.keys() - self.skipped - self.failed.keys())

    def slowest(self, count: int) -> list[tuple[float, float, str]]:
        """Return the slowest tests with their seconds and their processor time."""
        rows = ((s, self.cpu.get(test, 0.0), test) for test, s in self.seconds.items())
        return sorted(rows, reverse=True)[:count]

    def costliest(self, count: int) -> list[tuple[float, str]]:
        """Return the files that compute longest, with their processor time."""
        files: dict[str, float] = {}
        for test, spent in self.cpu.items():
            files[file_of(test)] = files.get(file_of(test), 0.0) + spent
        return sorted(((spent, file) for file, spent in files.items()), reverse=True)[:count]


def tally(outcomes: Iterable[Outcome]) -> Tally:
    """Add up outcomes."""
    found = Tally()
    for one in outcomes:
        found.seconds[one.test] = found.seconds.get(one.test, 0.0) + one.seconds
        if one.cpu:
            found.cpu[one.test] = found.cpu.get(one.test, 0.0) + one.cpu
        if one.outcome == "failed":
            found.failed[one.test] = found.failed.get(one.test, False) or one.hung
        elif one.outcome == "skipped":
            found.skipped.add(one.test)
    return found


def file_of(test: str) -> str:
    """Return the file of a test."""
    return test.partition("::")[0]


def weight(failed: dict[str, bool]) -> int:
    """Return what failures count, by the test and whether it hung."""
    return sum(HANG_COUNTS if hung else 1 for hung in failed.values())


def too_many(failed: dict[str, bool]) -> str:
    """Return why nothing is tried a second time, empty where it is."""
    if weight(failed) <= MOST_FAILED:
        return ""
    return f"{len(failed)} tests failed, more than {MOST_FAILED} (a hang counts double): no second try"


def refusals(flaky: dict[str, bool], twice: Collection[str], touched: Collection[str]) -> list[str]:
    """Return why a change is refused after the second tries, one reason a line; none where it may land.

    `flaky` passed at the second try, `twice` did not, `touched` are the files of the change.
    """
    found = [f"FAILED TWICE {test}" for test in twice]
    found += [
        f"FLAKY AND CHANGED {test}: the change touches its file, so mend it in this change"
        for test in flaky
        if file_of(test) in touched
    ]
    if weight(flaky) > MOST_FLAKY:
        found.append(f"TOO MANY FLAKY {len(flaky)} tests; {MOST_FLAKY} are allowed, a hang counts double")
    return found
