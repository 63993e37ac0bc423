"""How a scenario says what it is: its number in the campaign, and what ought to happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import environ
from typing import TypeVar

Scenario = TypeVar("Scenario", bound=Callable[..., object])
Observe = Callable[[str], None]
"""Takes what was observed, one sentence."""

SEEDS = int(environ.get("KILOWATCH_FAULT_SEEDS", "1"))
"""How often each scenario runs, each time with another seed."""
KILLS = int(environ.get("KILOWATCH_FAULT_KILLS", "4"))
"""How many parts the campaign of kills kills with each seed."""
OUTAGE = float(environ.get("KILOWATCH_FAULT_OUTAGE", "6"))
"""Seconds for which a broker stays away."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of docs/faults.md."""

    number: str
    expected: str


def fault(number: str, expected: str) -> Callable[[Scenario], Scenario]:
    """Mark a test as a scenario; the first line of its docstring says what is done."""

    def mark(scenario: Scenario) -> Scenario:
        scenario.fault = Fault(number, expected)  # type: ignore[attr-defined]
        return scenario

    return mark
