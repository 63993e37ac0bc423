"""The checkpoint of the electrical side: breaker heat, energy and the ledger in one file, replaced whole.

A new file is written beside the old one, flushed to the disk and renamed over it: a crash at any
point leaves one of the two. A file that can't be read is set aside, never deleted.
"""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

import msgspec

from power.report.energy_ledger import EnergyLedger

log = logging.getLogger(__name__)

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
    """Return the last checkpoint; an empty one where there is none or it can't be read."""
    path = folder / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ElectricalCheckpoint)
    except FileNotFoundError:
        return ElectricalCheckpoint()
    except OSError as error:
        log.warning("%s: it can't be read: %s. Breakers are assumed to be as warm as their load.", path, error.strerror)  # fmt: skip
        return ElectricalCheckpoint()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        kept = set_aside(path)
        log.warning("%s: it is damaged (%s) and was renamed to %s. Breakers are assumed to be as warm "
                  "as their load, energy is counted from now on.", path, error, kept.name)  # fmt: skip
        return ElectricalCheckpoint()


def save(folder: Path, memory: bytes) -> None:
    """Replace the file by `memory`, whole or not at all. Raises `OSError`."""
    replace_file(folder / NAME, memory)


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file, whole or not at all. Raises `OSError`."""
    fresh = path.with_name(path.name + ".new")
    with fresh.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    handle = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def set_aside(path: Path) -> Path:
    """Rename a damaged file, and return its new path."""
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    with contextlib.suppress(OSError):
        path.rename(kept)
    return kept
