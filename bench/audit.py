"""Count of a store's frames and rows, by SQL in its files, after the aggregator has ended."""

from __future__ import annotations

from pathlib import Path

import duckdb

AUDIT_ROWS = 4_000_000
"""Rows that are compared at a time, which bounds the memory of an audit."""


def audit(folder: Path) -> dict[str, int]:
    """Count frames and rows of GPUs, how many of them are different, and how many frames are
    recorded as lost. A sealed frame is a number in `marks`: its rows show whether it came twice."""
    found = {"frames": 0, "distinct": 0, "rows": 0, "distinct_rows": 0, "holes": 0}
    file = str(folder / "hot.duckdb")
    with duckdb.connect(file, read_only=True, config={"memory_limit": "2GB"}) as store:
        for (table,) in store.execute("select table_name from duckdb_tables()").fetchall():
            if table.startswith("frames_"):
                _add(found, "", _counted(store, table, "run", "run"))
            elif table.startswith("gpu_fast_"):
                _add(found, "_rows", _counted(store, table, "device", "device, run"))
        for path in sorted((folder / "sealed" / "gpu_fast").glob("*.parquet")):
            _add(found, "_rows", _counted(store, f"'{path}'", "hash(device)", "device, session"))
        sealed = _spans(store, "marks")
        _add(found, "", (sealed, sealed))
        found["holes"] = _spans(store, "holes")
    return found


def _add(found: dict[str, int], kind: str, counted: tuple[int, int]) -> None:
    rows, distinct = counted
    found["rows" if kind else "frames"] += rows
    found[f"distinct{kind}"] += distinct


def _spans(store: duckdb.DuckDBPyConnection, table: str) -> int:
    ((numbers,),) = store.execute(f"select coalesce(sum(last - first + 1), 0)::bigint from {table}").fetchall()
    return int(numbers)


def _counted(store: duckdb.DuckDBPyConnection, source: str, split: str, who: str) -> tuple[int, int]:
    """Return how many rows there are, and how many of them are different, a part at a time."""
    ((rows,),) = store.execute(f"select count(*) from {source}").fetchall()
    parts, distinct = rows // AUDIT_ROWS + 1, 0
    for part in range(parts):
        ((count,),) = store.execute(
            f"select count(*) from (select distinct {who}, seq from {source} where {split} % {parts} = {part})"
        ).fetchall()
        distinct += count
    return rows, distinct
