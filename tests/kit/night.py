"""The size of tests that search: short in the gate, long in `make nightly` (mark `nightly`)."""

from __future__ import annotations

import os
from typing import TypeVar

T = TypeVar("T")

NIGHT = "KILOWATCH_NIGHT"
"""Environment variable of the long form, with the seed of the night."""


def size(short: T, long: T) -> T:
    """Return the one that is wanted here."""
    return long if os.environ.get(NIGHT) else short


def seed(usual: int) -> int:
    """Return the seed of a search: always the same in the gate, another each night."""
    return int(os.environ.get(NIGHT, usual))
