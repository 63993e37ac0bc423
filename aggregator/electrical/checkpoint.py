"""What the electrical side must not forget: heat, energy, the account; one file, written whole.

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
    """The file."""

    version: int = 1
    at: int = 0
    """ns since 1970 when it was written."""
    live: dict[str, Any] = {}
    """`power.live.Live.memory`."""
    ledger: EnergyLedger = msgspec.field(name="account", default_factory=EnergyLedger)


def load(folder: Path) -> ElectricalCheckpoint:
    """Return what was saved last; an empty memory where there is none, or none that can be read."""
    path = folder / NAME
    try:
        return msgspec.json.decode(path.read_bytes(), type=ElectricalCheckpoint)
    except FileNotFoundError:
        return ElectricalCheckpoint()
    except OSError as error:
        log.warning("%s: it can't be read: %s. Breakers are taken to be as warm as their load.", path, error.strerror)  # fmt: skip
        return ElectricalCheckpoint()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        kept = _set_aside(path)
        log.warning("%s: it is damaged (%s) and is kept as %s. Breakers are taken to be as warm as "
                  "their load, energy is counted from now on.", path, error, kept.name)  # fmt: skip
        return ElectricalCheckpoint()


def save(folder: Path, memory: bytes) -> None:
    """Write it down, whole or not at all. Raises `OSError`."""
    path = folder / NAME
    fresh = path.with_name(NAME + ".new")
    with fresh.open("wb") as file:
        file.write(memory)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _set_aside(path: Path) -> Path:
    number = 1
    while (kept := path.with_name(f"{path.name}.damaged-{number}")).exists():
        number += 1
    with contextlib.suppress(OSError):
        path.rename(kept)
    return kept
