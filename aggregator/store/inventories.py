"""Inventories in the store: what many nodes have in common is stored once.

Nine tenths of an inventory are the schema of its frames and what each of its GPUs can't read, which all nodes
of a model and release share. Whole, those of 12,500 nodes are 500 MB, and a fleet that starts brings them in one second.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Collection, Sequence

import msgspec
import numpy as np

from aggregator.store.duck import Columns, DuckEngine, texts
from telemetry.text.decoders import of_json
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import Schema

log = logging.getLogger(__name__)

TABLES = """
create table if not exists inventories(
    node varchar primary key, session bigint, version bigint, taken_at bigint, body varchar);
alter table inventories add column if not exists parts varchar;
create table if not exists inventory_parts(id varchar primary key, body varchar);
"""
MOST_PARTS = 1024
"""Parts that are shared at most; an inventory with others is stored whole. A fleet of one model and release has two."""

_NO_SCHEMA = Schema(())


class _OwnPart(msgspec.Struct, frozen=True):
    """Part of an inventory that only its node has. An older release can't read it, and waits for the bus."""

    own: Inventory


class _SharedParts:
    """Parts of the inventories of a batch, each encoded once."""

    def __init__(self, stored: Collection[str]) -> None:
        self.new: dict[str, str] = {}
        """Parts that are not stored yet, by id."""
        self._stored = stored
        self._ids: dict[int, str | None] = {}
        """By identity: ingest shares equal parts."""

    def ids(self, inventory: Inventory) -> str | None:
        """Return the ids of an inventory's parts in their order; None where there is no room for them."""
        found = [self._id(part) for part in _parts_of(inventory)]
        return None if None in found else " ".join(filter(None, found))

    def _id(self, part: object) -> str | None:
        if id(part) not in self._ids:
            self._ids[id(part)] = self._add(msgspec.json.encode(part))
        return self._ids[id(part)]

    def _add(self, body: bytes) -> str | None:
        name = hashlib.blake2b(body, digest_size=16).hexdigest()
        if name not in self._stored and name not in self.new:
            if len(self._stored) + len(self.new) >= MOST_PARTS:
                return None
            self.new[name] = body.decode()
        return name


def insert_inventories(engine: DuckEngine, inventories: Sequence[Inventory], stored: Collection[str]) -> set[str]:
    """Insert the newest inventory of each node, in the caller's transaction; return the parts that are stored with it.
    `stored`: the ids of those that are there already."""
    newest = list({each.node: each for each in inventories}.values())
    if not newest:
        return set()
    parts = _SharedParts(stored)
    ids = [parts.ids(each) for each in newest]
    bodies = [
        msgspec.json.encode(each if its is None else _OwnPart(_without_parts(each)))
        for each, its in zip(newest, ids, strict=True)
    ]
    if parts.new:
        columns: Columns = {"id": texts(list(parts.new)), "body": texts(list(parts.new.values()))}
        engine.insert("inventory_parts", columns, "or ignore")
    engine.insert(
        "inventories",
        {
            "node": texts([each.node for each in newest]),
            "session": np.array([each.session for each in newest], np.int64),
            "version": np.array([each.version for each in newest], np.int64),
            "taken_at": np.array([each.taken_at for each in newest], np.int64),
            "body": texts([body.decode() for body in bodies]),
            "parts": texts(ids),
        },
        "or replace",
    )
    return set(parts.new)


def read_inventories(engine: DuckEngine) -> list[Inventory]:
    """Return the newest inventory of each node, that of the node known longest first; one that can't
    be read any more is left out."""
    bodies = dict(engine.rows("select id, body from inventory_parts"))
    schemas: dict[str, Schema] = {}
    capabilities: dict[str, dict[str, str]] = {}
    found = []
    for node, body, parts in engine.rows(
        "select i.node, i.body, i.parts from inventories i left join (select node, min(id) as id from runs "
        "group by node) r using (node) order by r.id nulls last, i.node"
    ):
        try:
            if parts is None:
                found.append(of_json(Inventory).decode(body))
                continue
            first, *others = parts.split(" ")
            for name in {first} - schemas.keys():
                schemas[name] = of_json(Schema).decode(bodies[name])
            for name in set(others) - capabilities.keys():
                capabilities[name] = of_json(dict[str, str]).decode(bodies[name])
            own = of_json(_OwnPart).decode(body).own
            found.append(_joined(own, schemas[first], [capabilities[name] for name in others]))
        except (msgspec.DecodeError, KeyError, ValueError) as error:
            log.warning("node=%s: its stored inventory can't be read: %s", node, error)
    return found


def stored_parts(engine: DuckEngine) -> set[str]:
    """Return the ids of the parts that are stored."""
    return {name for (name,) in engine.rows("select id from inventory_parts")}


def _parts_of(inventory: Inventory) -> list[object]:
    return [inventory.schema, *(gpu.capabilities for gpu in inventory.gpus)]


def _without_parts(inventory: Inventory) -> Inventory:
    gpus = tuple(msgspec.structs.replace(gpu, capabilities={}) for gpu in inventory.gpus)
    return msgspec.structs.replace(inventory, schema=_NO_SCHEMA, gpus=gpus)


def _joined(own: Inventory, schema: Schema, capabilities: Sequence[dict[str, str]]) -> Inventory:
    gpus = tuple(
        msgspec.structs.replace(gpu, capabilities=its) for gpu, its in zip(own.gpus, capabilities, strict=True)
    )
    return msgspec.structs.replace(own, schema=schema, gpus=gpus)
