"""Rows of readings: fill them with gaps, check their shape, overlay the collector's own metrics.

Pure. `Rows` are lists of floats by block number, in inventory order (`collector.source`).
"""

from __future__ import annotations

from collections.abc import Mapping

from collector.source import Rows
from telemetry.gap import ERROR, Gap, reason_of
from telemetry.metric import Lane, Table
from telemetry.wire.inventory import Inventory
from telemetry.wire.schema import GPU_FAST, GPU_SLOW, NODE_FAST, SCHEMA
from telemetry.wire.tables import KINDS

WIDTHS = tuple(len(block.names) for block in SCHEMA.blocks)
"""Columns of each block."""
_COLUMNS = tuple({name: number for number, name in enumerate(block.names)} for block in SCHEMA.blocks)
OF_SOURCES = tuple(table for table in Table if table is not Table.NODE)
"""Tables that a source of readings fills; the host fills the other."""
_UNREAD = {Gap.NOT_READ, Gap.NOT_SUPPORTED}
_BLOCKS = {
    (table, lane): tuple(
        number for number, block in enumerate(SCHEMA.blocks) if block.table is table and block.lane is lane
    )
    for table in Table
    for lane in Lane
}


def count(inventory: Inventory, block: int) -> int:
    """Return how many rows a block has on this node."""
    return KINDS[SCHEMA.blocks[block].table].count(inventory)


def blocks(lanes: frozenset[Lane], *tables: Table) -> list[int]:
    """Return the numbers of the blocks of these tables on these lanes."""
    return [number for lane in lanes for table in tables for number in _BLOCKS[table, lane]]


def filled(inventory: Inventory, numbers: list[int], value: float) -> Rows:
    """Return blocks filled with one gap."""
    return {number: [[value] * WIDTHS[number] for _ in range(count(inventory, number))] for number in numbers}


def misshapen(inventory: Inventory, rows: Rows) -> str:
    """Return what is wrong with the shape of some rows, or ""."""
    for number, block in rows.items():
        if not 0 <= number < len(WIDTHS):
            return f"there is no block {number}"
        name = SCHEMA.blocks[number].name
        if len(block) != count(inventory, number):
            return f"{name} has {len(block)} rows and should have {count(inventory, number)}"
        for width in set(map(len, block)) - {WIDTHS[number]}:
            return f"{name} has {width} columns and should have {WIDTHS[number]}"
    return ""


def checked(inventory: Inventory, rows: Rows, lanes: frozenset[Lane]) -> tuple[Rows, str]:
    """Return rows that fit the inventory, and the problem. Misshapen rows are replaced by gaps."""
    problem = misshapen(inventory, rows)
    if problem:
        return filled(inventory, blocks(lanes, *OF_SOURCES), ERROR), problem
    return rows, ""


def overlaid(rows: Rows, own: Mapping[str, float]) -> Rows:
    """Return the node's blocks with the collector's own metrics in the columns that no source or
    host reader has filled."""
    node: Rows = {}
    for number in blocks(frozenset(Lane), Table.NODE):
        if number in rows:
            node[number] = [list(row) for row in rows[number]]
            for name, value in own.items():
                column = _COLUMNS[number].get(name)
                if column is None:
                    continue
                for row in node[number]:
                    if reason_of(row[column]) in _UNREAD:
                        row[column] = value
    return node


def answering(rows: Rows) -> int:
    """Return how many GPUs have at least one number in this tick."""
    return sum(
        any(value == value for value in row)  # noqa: PLR0124 - the only test of NaN that calls nothing
        for row in rows.get(GPU_FAST, rows.get(GPU_SLOW, ()))
    )


def has_node(rows: Rows) -> bool:
    """Return whether the source has read the `node` table too."""
    return NODE_FAST in rows
