"""Into the tables that are not bound to a period: names, inventories, events and holes."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from aggregator.model import Batch, Device, Run, StoredEvent
from aggregator.store.duck import Columns, Engine, texts
from aggregator.store.stored import NewHole
from telemetry.inventory import Inventory


def insert_lasting(engine: Engine, batch: Batch, holes: Sequence[NewHole]) -> None:
    """Insert what of a batch is no reading; inside the caller's transaction."""
    _runs(engine, batch.runs)
    _devices(engine, batch.devices, batch.at)
    _inventories(engine, batch.inventories)
    _events(engine, batch.events)
    _holes(engine, holes, batch.at)


def _runs(engine: Engine, runs: Sequence[Run]) -> None:
    if runs:
        columns: Columns = {
            "id": np.array([run.id for run in runs], np.int32),
            "node": texts([run.node for run in runs]),
            "session": np.array([run.session for run in runs], np.int64),
        }
        engine.insert("runs", columns, "or ignore")


def _devices(engine: Engine, devices: Sequence[Device], at: int) -> None:
    if devices:
        index = [-1 if each.index is None else each.index for each in devices]
        columns: Columns = {
            "id": np.array([device.id for device in devices], np.int32),
            "node": texts([device.node for device in devices]),
            "key": texts([device.key for device in devices]),
            "index": np.array(index, np.int32),
            "name": texts([device.name for device in devices]),
            "since": np.full(len(devices), at, np.int64),
        }
        engine.insert("devices", columns, "or ignore")


def _inventories(engine: Engine, inventories: Sequence[Inventory]) -> None:
    newest = list({each.node: each for each in inventories}.values())
    if newest:
        columns: Columns = {
            "node": texts([each.node for each in newest]),
            "session": np.array([each.session for each in newest], np.int64),
            "version": np.array([each.version for each in newest], np.int64),
            "taken_at": np.array([_clamped(each.taken_at) for each in newest], np.int64),
            "body": texts([msgspec.json.encode(each).decode() for each in newest]),
        }
        engine.insert("inventories", columns, "or replace")


def _events(engine: Engine, events: Sequence[StoredEvent]) -> None:
    if not events:
        return
    happened = [each.event for each in events]
    columns: Columns = {
        "node": texts([event.node for event in happened]),
        "id": texts([event.id for event in happened]),
        "happened": np.array([_clamped(event.at) for event in happened], np.int64),
        "received": np.array([each.received_at for each in events], np.int64),
        "kind": texts([event.kind for event in happened]),
        "gpu": texts([event.gpu for event in happened]),
        "body": texts([msgspec.json.encode(event).decode() for event in happened]),
    }
    engine.insert("events", columns, "or ignore")


def _holes(engine: Engine, holes: Sequence[NewHole], at: int) -> None:
    if holes:
        columns: Columns = {
            "run": np.array([hole.run for hole in holes], np.int32),
            "first": np.array([hole.first for hole in holes], np.int64),
            "last": np.array([hole.last for hole in holes], np.int64),
            "reason": texts([hole.reason for hole in holes]),
            "received": np.full(len(holes), at, np.int64),
        }
        engine.insert("holes", columns)


def _clamped(at: int) -> int:
    return max(-(1 << 62), min(at, 1 << 62))
