"""The answer of `kilowatch check`: a result for each part of the node, and the verdict of all."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

import msgspec


class Verdict(StrEnum):
    """State of a part of the node."""

    FIT = "fit"
    DEGRADED = "degraded"
    """Work may go on; a person should look at it."""
    UNFIT = "unfit"
    """No work is to be placed here."""
    UNKNOWN = "not known"
    """No check was possible: that is no good answer."""
    LEFT_OUT = "left out"
    """The settings leave it out; it counts for nothing."""


class CheckResult(msgspec.Struct, frozen=True, kw_only=True):
    """Answer of one check."""

    check: str
    """`driver`, `GPU 3`, `kernel log`, `node`."""
    verdict: Verdict
    text: str
    action: str = ""
    rule: str | None = None
    """Rule that reports this in a running cluster, and heading of its runbook; None without one."""


class CheckReply(msgspec.Struct, frozen=True, kw_only=True):
    """Output of `kilowatch check --json`."""

    node: str
    verdict: Verdict
    """The worst: unfit, degraded, not known, fit."""
    reason: str
    """The worst results in one line; "" for a node that is fit."""
    at: int
    """ns since 1970."""
    seconds: float
    """Duration of the checks."""
    results: list[CheckResult]
    """Worst first."""
    measured: dict[str, float] = {}
    """By name, what `--full` measured, in bytes or operations a second."""


_WORST = (Verdict.UNFIT, Verdict.DEGRADED, Verdict.UNKNOWN, Verdict.FIT, Verdict.LEFT_OUT)


def worst_first(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Return results by verdict; those of one verdict stay in their order."""
    return sorted(results, key=lambda one: _WORST.index(one.verdict))


def verdict_of(results: Iterable[CheckResult]) -> Verdict:
    """Return the worst verdict. Without a single result that counts nothing is known."""
    found = {one.verdict for one in results} - {Verdict.LEFT_OUT}
    return min(found, key=_WORST.index, default=Verdict.UNKNOWN)


def reason_of(results: Iterable[CheckResult]) -> str:
    """Return the results of the worst verdict in one line: `GPU 3: a memory row waits; driver: ...`."""
    found = list(results)
    worst = verdict_of(found)
    if worst is Verdict.FIT:
        return ""
    return "; ".join(f"{one.check}: {one.text}" for one in found if one.verdict is worst)
