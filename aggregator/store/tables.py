"""The tables of the hot database, and their names.

Readings are in one table per block and *period* of arrival (`gpu_fast_1763715600`, the period's
start in seconds since 1970), so that sealing a period ends with dropping tables, which costs
nothing, instead of deleting rows. Readings of a device that have no value are NULL.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

from aggregator.store import inventories, jobs
from aggregator.store.duck import DuckEngine, ReadConnection, column
from telemetry.wire.schema import SCHEMA, Block

BLOCKS: dict[str, Block] = {block.name: block for block in SCHEMA.blocks}
FRAMES = "frames"
_PERIOD_TABLE = re.compile(rf"({'|'.join([*BLOCKS, FRAMES])})_(\d+)")

_TABLES = """
create table if not exists runs(id integer primary key, node varchar, session bigint);
create table if not exists devices(
    id integer primary key, node varchar, key varchar, "index" integer, name varchar);
alter table devices add column if not exists since bigint;
create table if not exists events(
    node varchar, id varchar, happened bigint, received bigint, kind varchar, gpu varchar, body varchar,
    primary key (node, id));
create table if not exists holes(
    run integer, first bigint, last bigint, reason varchar, received bigint);
create table if not exists marks(run integer, first bigint, last bigint, sealed bigint);
create table if not exists files(
    path varchar primary key, kind varchar, block varchar, period bigint, ends bigint,
    rows bigint, bytes bigint, first_ts bigint, last_ts bigint,
    low_device varchar, high_device varchar, columns varchar[]);
alter table files add column if not exists sha256 varchar;
alter table files add column if not exists lost varchar;
alter table files add column if not exists refilled boolean;
create table if not exists replaced(path varchar primary key, ends bigint);
"""


def create_tables(engine: DuckEngine) -> None:
    """Make the tables that are not bound to a period."""
    engine.run(_TABLES)
    engine.run(inventories.TABLES)
    engine.run(jobs.TABLES)


def period_tables(engine: DuckEngine) -> dict[int, dict[str, str]]:
    """Return the tables of each period by block name (or `frames`); period in seconds."""
    found: dict[int, dict[str, str]] = {}
    for (name,) in engine.rows("select table_name from duckdb_tables() order by table_name"):
        match = _PERIOD_TABLE.fullmatch(name)
        if match:
            found.setdefault(int(match[2]), {})[match[1]] = name
    return found


def columns_of(engine: ReadConnection, table: str) -> list[str]:
    """Return the column names of a table."""
    return [
        name
        for (name,) in engine.rows(
            "select column_name from duckdb_columns() where table_name = ? order by column_index", table
        )
    ]


def create_period(engine: DuckEngine, period: int) -> dict[str, str]:
    """Make the tables of a period, or bring those of an older release up to date."""
    tables = {FRAMES: f"{FRAMES}_{period}"}
    engine.run(
        f"create table if not exists {tables[FRAMES]}("
        "run integer, seq bigint, ts bigint, received bigint, backfilled boolean)"
    )
    tables |= {name: f"{name}_{period}" for name in BLOCKS}
    keys = "run integer, device integer, seq bigint, ts bigint, received bigint"
    make_block_tables(engine, {tables[name]: block for name, block in BLOCKS.items()}, keys)
    return tables


def make_block_tables(engine: DuckEngine, blocks: Mapping[str, Block], keys: str) -> None:
    """Make a table of readings for each block, by its name, with the columns `keys` first; add to those of an
    older release the columns that they lack.

    A table is made in one statement: the engine takes as long for each column that it adds to one.
    """
    there: dict[str, set[str]] = {}
    for table, name in engine.rows("select table_name, column_name from duckdb_columns()"):
        there.setdefault(table, set()).add(name)
    for table, block in blocks.items():
        kinds = dict.fromkeys(block.gauges, "float") | dict.fromkeys(block.counters, "double")
        typed = {metric: f"{column(metric)} {kind}" for metric, kind in kinds.items()}
        if table not in there:
            engine.run(f"create table {table}({', '.join([keys, *typed.values()])})")
            continue
        for metric, text in typed.items():
            if metric not in there[table]:
                engine.run(f"alter table {table} add column {text}")


def period_of(at: int, seal_seconds: float) -> int:
    """Return the start of the period that holds `at` (ns since 1970), seconds since 1970."""
    length = max(1, int(seal_seconds))
    seconds = at // 1_000_000_000
    return seconds - seconds % length


def period_name(period: int) -> str:
    """Return a period's start as in file names: `2026-11-21T09-00-00Z`."""
    return datetime.fromtimestamp(period, UTC).strftime("%Y-%m-%dT%H-%M-%SZ")


def period_from_name(text: str) -> int | None:
    """Return the start of a period from the beginning of a file name."""
    try:
        start = datetime.strptime(text[:20], "%Y-%m-%dT%H-%M-%SZ").replace(tzinfo=UTC)
    except ValueError:
        return None
    return int(start.timestamp())
