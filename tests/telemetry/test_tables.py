"""The rows of the kinds of tables agree with each other and with what the API has fields for."""

from __future__ import annotations

import msgspec

from api.columns import ColumnRows
from telemetry.metric import Table
from telemetry.wire.tables import KINDS, StoredName

FIELDS = {field.name for field in msgspec.structs.fields(ColumnRows)}


def test_each_table_has_a_row_in_the_order_of_the_blocks() -> None:
    assert list(KINDS) == list(Table)


def test_the_keys_of_a_table_are_told_by_their_prefix() -> None:
    """No prefix begins another one; three tables have none, and are told apart by the form of their keys."""
    prefixes = [kind.prefix for kind in KINDS.values() if kind.prefix]
    assert sum(one.startswith(other) for one in prefixes for other in prefixes) == len(prefixes)
    bare = [table for table, kind in KINDS.items() if not kind.prefix]
    assert bare == [Table.GPU, Table.LINK, Table.NODE]


def test_a_device_that_is_gone_fills_the_fields_of_one_that_is_there() -> None:
    """But for the index of its owner, which is found by the owner's UUID."""
    for kind in KINDS.values():
        stored = kind.stored("a/1", StoredName(1, "b c"))
        assert stored.keys() == kind.columns.keys() <= FIELDS
        assert set(kind.identity) <= {"node", *kind.columns}
        assert kind.owner is None or "uuid" in kind.columns
