"""The errors that kilowatch raises on purpose.

KilowattError
├── ConfigError      an operator must edit a file or a flag
├── SourceError      a source of readings can't be opened or read
├── DriverError      the GPU driver is missing, mismatched or refuses
├── WireError        a message from the bus does not decode
├── BusError         the broker can't be reached or refuses
├── StoreError       the store can't be opened or written
├── NodeError        a request about a node that can't be carried out
└── IncidentError    a request about an incident or a silence can't be carried out

Each message has the place, the problem and the cure; the command line prints it as one line.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class KilowattError(Exception):
    """An error that an operator can act on; shown as one line, never as a traceback."""


class ConfigError(KilowattError):
    """A setting that an operator must change: `where` it is, what is wrong, what to write instead."""

    def __init__(self, where: str, problem: str, hint: str = "") -> None:
        super().__init__(f"{where}: {problem}. {hint}".rstrip())
        self.where = where
        self.problem = problem
        self.hint = hint


class SourceError(KilowattError):
    """A source of readings can't be opened or understood."""


class DriverError(KilowattError):
    """The GPU driver as a whole does not answer; `code` is NVML's return code if there is one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class WireError(KilowattError):
    """A message does not decode; `reason` is a short word that is counted in a metric."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason


class BusError(KilowattError):
    """The broker can't be reached, or refuses a request; `problem` is without the cure."""

    def __init__(self, problem: str, cure: str = "") -> None:
        super().__init__(f"{problem}. {cure}" if cure else problem)
        self.problem = problem
        self.cure = cure


class StoreError(KilowattError):
    """The store can't be opened, written or read; `problem` is without the cure, where it has one of its own."""

    def __init__(self, problem: str, cure: str = "") -> None:
        super().__init__(f"{problem}. {cure}" if cure else problem)
        self.problem = problem
        self.cure = cure


class NodeError(KilowattError):
    """A request about a node that can't be carried out."""


class IncidentError(KilowattError):
    """A request about an incident or a silence that can't be carried out."""


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """Return "Did you mean 'x'?" for the closest known word, or "" when none is close."""
    close = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"Did you mean {close[0]!r}?" if close else ""
