"""The register of nodes that all members have in common: an entry a name, changed by compare-and-set.

A rename is two entries. The new name is written first and counts for nothing until the old one says so too: whoever
ends between the two has renamed nothing, and of two that give one machine a name the first is heard.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from aggregator.cluster.port import Bucket, BucketEntry, Coordination, CoordinationError
from aggregator.register.node_register import NodeRecord
from telemetry.errors import BusError
from telemetry.text.decoders import of_json

TRY_AGAIN = "Try again; `kilowatch cluster` shows its state."


class ClusterRegister:
    """The `SharedRecords` of members."""

    def __init__(self, coordination: Coordination) -> None:
        self._coordination = coordination
        self._entries: dict[str, BucketEntry] = {}
        """As they were read or written last, by key."""
        self._whole: Mapping[str, NodeRecord] | None = None
        """Records of the entries, by name; None after a change, until they are read again."""

    async def newest(self) -> Mapping[str, NodeRecord]:
        """Return all records, by name; none of a half rename. Raises `BusError`."""
        try:
            entries = await self._coordination.entries(Bucket.NODES)
        except CoordinationError as error:
            raise BusError(f"NATS does not answer: {error}", TRY_AGAIN) from error
        if self._whole is None or entries != self._entries:
            self._entries = entries
            self._whole = whole_records(decoded_records(entries))
        return self._whole

    async def put(self, records: Sequence[NodeRecord]) -> bool:
        """Write records, one after the other; return False at the first that has changed since `newest`. Raises
        `BusError`: whether the last one was written is then not known."""
        for record in records:
            key, value = key_of(record.name), msgspec.json.encode(record)
            known = self._entries.get(key)
            try:
                revision = await self._coordination.compare_and_set(
                    Bucket.NODES, key, value, 0 if known is None else known.revision
                )
            except CoordinationError as error:
                raise BusError(f"NATS does not answer: {error}", TRY_AGAIN) from error
            if revision is None:
                return False
            self._entries[key] = BucketEntry(value, revision)
            self._whole = None
        return True


def key_of(name: str) -> str:
    """Return the key of a name: one may have characters that a key may not."""
    return name.encode().hex()


def decoded_records(entries: Mapping[str, BucketEntry]) -> dict[str, NodeRecord]:
    """Return the records of entries, by name; one that can't be read, of a later release, is none."""
    found = {}
    for entry in entries.values():
        try:
            record = of_json(NodeRecord).decode(entry.value)
        except msgspec.MsgspecError:
            continue
        found[record.name] = record
    return found


def whole_records(records: Mapping[str, NodeRecord]) -> dict[str, NodeRecord]:
    """Return the records without the new names of renames of which the old name knows nothing."""
    return {name: each for name, each in records.items() if not _is_half(each, records)}


def _is_half(record: NodeRecord, records: Mapping[str, NodeRecord]) -> bool:
    last = record.formerly[-1] if record.formerly else None
    if last is None or last.until is not None or last.renamed is None:
        return False
    old = records.get(last.name)
    return old is None or (old.renamed_to != record.name and (record.name, last.renamed) not in old.given)
