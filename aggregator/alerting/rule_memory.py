"""The file that has the memory of windowed outliers over a restart (`alerts.engine.kept_memory`).

It is written every few minutes and at the end, whole or not at all. One that can't be read costs the memory:
the rates are counted anew.
"""

from __future__ import annotations

import logging
import os
import zlib
from pathlib import Path

import msgspec

from alerts.engine.kept_memory import KeptMemory, MemoryCopy

log = logging.getLogger(__name__)

NAME = "rule_memory.bin"
PERIOD = 300.0
"""Seconds between two writings: a crash loses the load of so much time, but no growth of a counter."""
_MAX_BYTES = 4 * 1024**3


def load(folder: Path) -> KeptMemory | None:
    """Return what was kept; None where there is nothing, or it can't be read."""
    path = folder / NAME
    try:
        unpacker = zlib.decompressobj()
        body = unpacker.decompress(path.read_bytes(), _MAX_BYTES)
        return msgspec.msgpack.decode(body, type=KeptMemory)  # one without its end does not decode
    except FileNotFoundError:
        return None
    except (OSError, zlib.error, msgspec.DecodeError) as error:
        log.warning("%s can't be read: %s. Rates among peers are counted anew.", path, error)
        return None


def save(folder: Path, copy: MemoryCopy) -> None:
    """Replace the file, whole or not at all. Raises `OSError`."""
    kept = copy.kept()
    path = folder / NAME
    fresh = path.with_name(f"{NAME}.new")
    with fresh.open("wb") as file:
        file.write(zlib.compress(msgspec.msgpack.encode(kept), 1))
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)
