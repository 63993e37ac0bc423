"""How a scenario says what it is: its number in the campaign, and what ought to happen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import environ
from typing import TypeVar

from tests.kit.waiting import FACTOR

Scenario = TypeVar("Scenario", bound=Callable[..., object])
Observe = Callable[[str], None]
"""Takes what was observed, one sentence."""
Told = Callable[[str, object], None]
"""`record_property` of pytest: tests of other parts report to the campaign by it, `expected` and `observed`."""

SEEDS = int(environ.get("KILOWATCH_FAULT_SEEDS", "1"))
"""How often each scenario runs, each time with another seed."""
KILLS = int(environ.get("KILOWATCH_FAULT_KILLS", "4"))
"""How many parts the campaign of kills kills with each seed."""
OUTAGE = float(environ.get("KILOWATCH_FAULT_OUTAGE", "6"))
"""Seconds for which a broker stays away."""
STOP = float(environ.get("KILOWATCH_FAULT_STOP", "3"))
"""Seconds for which a part is stopped by a signal."""
SESSIONS = int(environ.get("KILOWATCH_FAULT_SESSIONS", "300"))
"""Light sessions that storm back to a broker, beside real parts."""
BACKLOG = int(environ.get("KILOWATCH_FAULT_BACKLOG", "40"))
"""Frames that every node of a fleet has kept while the broker was away; a node for every frame
of it and as many again."""
SOAK = float(environ.get("KILOWATCH_FAULT_SOAK", "10"))
"""Seconds of a soak with a random mix of faults."""
ROUNDS = int(environ.get("KILOWATCH_FAULT_ROUNDS", "2"))
"""Rounds in which the GPUs of a node change seven times while frames are missing."""
FLEET = int(environ.get("KILOWATCH_FAULT_FLEET", "8"))
"""Seconds for which a fleet of real size reports, and the aggregator's memory is watched."""
FLEET_GPUS = int(environ.get("KILOWATCH_FAULT_FLEET_GPUS", "80"))
"""GPUs of that fleet."""
SLACK = float(environ.get("KILOWATCH_FAULT_SLACK", "4")) * FACTOR
"""How many times longer than on an idle machine something may take: in CI others want its cores
too, the long form has the machine for itself."""
SERVING = 5.0
"""Seconds in which a part that was killed serves again."""


@dataclass(frozen=True, slots=True)
class Fault:
    """One row of docs/faults.md."""

    number: str
    expected: str
    once: bool = False
    """Whether it runs with one seed alone: it takes hours."""


def fault(number: str, expected: str, *, once: bool = False) -> Callable[[Scenario], Scenario]:
    """Mark a test as a scenario; the first line of its docstring says what is done."""

    def mark(scenario: Scenario) -> Scenario:
        scenario.fault = Fault(number, expected, once)  # type: ignore[attr-defined]
        return scenario

    return mark
