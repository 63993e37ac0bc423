"""The months of energy on disk: a JSON file each, replaced whole every quarter of an hour.

A file has the load profile of every circuit that is billed or budgeted, and the idle GPUs by node. One that
can't be used is set aside.
"""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from aggregator.folder import kinds
from power.report.load_profile import ROWS_AT_ONCE, LoadProfile
from power.report.month_ledger import NodeIdle, merge_idle, merge_tree, profile_tree
from power.report.months import month_named
from telemetry.files.state_file import json_of, replace_file

FOLDER = "months"
KEPT = 37
"""Months that are kept: three years, and the present one."""


class MonthCopy(NamedTuple):
    """A month as it is to be written."""

    profile: LoadProfile
    idle: dict[str, tuple[float, float, float, float]]


def copy_of(profile: LoadProfile, idle: NodeIdle) -> MonthCopy:
    """Return a month that a thread may write while the present one goes on."""
    return MonthCopy(profile.copied(), idle.totals())


class _Rows(msgspec.Struct):
    """Part of a file with the load profile: the rows are decoded one by one."""

    start: int
    rows: dict[str, msgspec.Raw]


class _MonthFile(msgspec.Struct):
    """Content of a file."""

    profile: _Rows
    idle: dict[str, Any]
    version: int = 1


class MonthFiles:
    """The folder of months."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder / FOLDER

    def names(self) -> list[str]:
        """Return the months that there are, oldest first."""
        return sorted(path.stem for path in self._folder.glob("20??-??.json"))

    def save(self, month: MonthCopy) -> None:
        """Replace the file of a month. Raises `OSError`."""
        self._folder.mkdir(parents=True, exist_ok=True)
        # Few rows at a time: a coder holds up all other threads while it runs, and lists of numbers are large.
        names, rows = month.profile.names, {}
        for first in range(0, len(names), ROWS_AT_ONCE):
            part = profile_tree(month.profile.copied(names[first : first + ROWS_AT_ONCE]))
            for name, row in part["rows"].items():
                rows[name] = msgspec.Raw(msgspec.json.encode(row))
        profile = {"start": month.profile.month.start, "rows": rows}
        tree = {"version": 1, "profile": profile, "idle": month.idle}
        path = self._folder / f"{month.profile.month.name}.json"
        replace_file(path, msgspec.json.encode(tree))
        for old in self.names()[:-KEPT]:
            (self._folder / f"{old}.json").unlink(missing_ok=True)

    def load(self, name: str, zone: tzinfo) -> tuple[LoadProfile, NodeIdle]:
        """Return a month; an empty one where there is no file that can be used. Raises
        `ConfigError` for what is no month."""
        month = month_named(name, zone)

        def decode(raw: bytes) -> tuple[LoadProfile, NodeIdle]:
            tree = json_of(_MonthFile)(raw)
            profile, idle = LoadProfile(month), NodeIdle()
            profile.rows(tree.profile.rows)
            for row, memory in tree.profile.rows.items():
                part = {row: msgspec.json.decode(memory)}
                merge_tree(profile, {"start": tree.profile.start, "rows": part})
            merge_idle(idle, tree.idle)
            return profile, idle

        return kinds.read(self._folder / f"{name}.json", decode) or (LoadProfile(month), NodeIdle())
