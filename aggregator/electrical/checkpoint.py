"""The checkpoint of the electrical side: breaker heat, energy and the ledger in one file, replaced whole.

A new file is written beside the old one, flushed to the disk and renamed over it: a crash at any
point leaves one of the two. A file that can't be used is set aside, never deleted.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from aggregator.folder import kinds
from power.report.energy_ledger import EnergyLedger
from telemetry.files.state_file import json_of, replace_file

NAME = "electrical.json"


class ElectricalCheckpoint(msgspec.Struct, kw_only=True):
    """Content of the file."""

    version: int = 1
    at: int = 0
    """Time of writing, ns since 1970."""
    live: dict[str, Any] = {}
    """`power.live.LivePower.checkpoint`."""
    month: dict[str, Any] = {}
    """`power.report.month_ledger.MonthLedger.tail`."""
    unmapped: dict[str, float] = {}
    """Watts at the wall that each node on no circuit reported last."""
    throughput: dict[str, Any] = {}
    """`power.plan.throughput.ThroughputLedger.checkpoint`."""
    ledger: EnergyLedger = msgspec.field(name="account", default_factory=EnergyLedger)


def load(folder: Path) -> ElectricalCheckpoint:
    """Return the last checkpoint; an empty one where there is none that can be used."""
    return kinds.read(folder / NAME, json_of(ElectricalCheckpoint)) or ElectricalCheckpoint()


def save(folder: Path, memory: bytes) -> None:
    """Replace the file by `memory`, whole or not at all. Raises `OSError`."""
    replace_file(folder / NAME, memory)
