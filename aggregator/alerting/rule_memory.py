"""The file that has the memory of windowed outliers over a restart (`alerts.engine.kept_memory`).

It is written every few minutes and at the end, whole or not at all. One that can't be used is set aside, which
costs the memory: the rates are counted anew.
"""

from __future__ import annotations

import os
import zlib
from pathlib import Path

import msgspec

from aggregator.folder import kinds
from alerts.engine.kept_memory import KeptMemory, MemoryCopy
from telemetry.text.decoders import of_msgpack

NAME = "rule_memory.bin"
PERIOD = 300.0
"""Seconds between two writings: a crash loses the load of so much time, but no growth of a counter."""
_MAX_BYTES = 4 * 1024**3


def load(folder: Path) -> KeptMemory | None:
    """Return what was kept; None where there is nothing that can be used."""
    return kinds.read(folder / NAME, _decoded)


def _decoded(raw: bytes) -> KeptMemory:
    body = zlib.decompressobj().decompress(raw, _MAX_BYTES)
    return of_msgpack(KeptMemory).decode(body)  # one without its end does not decode


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
