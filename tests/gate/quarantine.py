"""Tests that are run and told, but do not judge: their cause is known, and they are being mended (`tests/quarantine.toml`)."""

from __future__ import annotations

import datetime
from pathlib import Path

import msgspec

FILE = Path("tests/quarantine.toml")
MOST = 5
MOST_DAYS = 14


class Quarantined(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A test that does not judge for some days."""

    test: str
    """Node id."""
    cause: str
    """Why it fails now and then, as far as that was found."""
    since: datetime.date
    last_day: datetime.date


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    test: list[Quarantined] = []


def load(file: Path = FILE) -> dict[str, Quarantined]:
    """Return by node id what is quarantined; nothing where there is no file. Raises `ValueError` with what to change."""
    if not file.exists():
        return {}
    found = msgspec.toml.decode(file.read_bytes(), type=_File).test
    if len(found) > MOST:
        raise ValueError(f"{file}: {len(found)} tests; mend one before another comes in ({MOST})")
    for one in found:
        if not one.cause.strip():
            raise ValueError(f"{file}: {one.test} has no cause")
        if not 0 <= (one.last_day - one.since).days <= MOST_DAYS:
            raise ValueError(f"{file}: {one.test}: last_day is at most {MOST_DAYS} days after since")
    return {one.test: one for one in found}


def over(quarantined: dict[str, Quarantined], today: datetime.date) -> list[str]:
    """Return a line for each test whose last day has passed. The gate only says so: a tree that nobody changed does
    not turn red by the calendar."""
    return [
        f"QUARANTINE OVER {one.test}: since {one.last_day}; mend it or delete it: {one.cause}"
        for one in quarantined.values()
        if today > one.last_day
    ]
