"""Marks: which frames the store holds, as number spans per run, once their rows are sealed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from aggregator.store.duck import Columns, DuckEngine
from telemetry.intervals import IntervalSet

Span = tuple[int, int, int]
"""Run, first, last."""


def spans_of(engine: DuckEngine, table: str) -> list[Span]:
    """Return the spans of a `frames` table.

    Nearly every run has all numbers from its lowest to its highest, which one cheap grouping tells;
    only the others are searched for islands.
    """
    spans: list[Span] = []
    broken: list[int] = []
    for run, first, last, count in engine.rows(
        f"select run, min(seq), max(seq), count(*) from {table} group by run"
    ):
        if count == last - first + 1:
            spans.append((run, first, last))
        else:
            broken.append(run)
    if broken:
        spans += [
            (run, first, last)
            for run, first, last in engine.rows(
                "select run, min(seq), max(seq) from (select run, seq, seq - row_number() over "
                f"(partition by run order by seq) as island from {table} "
                "where list_contains(?, run)) group by run, island",
                broken,
            )
        ]
    return spans


def accounted_runs(engine: DuckEngine, frame_tables: Iterable[str]) -> dict[int, IntervalSet]:
    """Return what is stored or recorded as lost, by run."""
    found: dict[int, IntervalSet] = {}
    spans = engine.rows(
        "select run, first, last from marks union all select run, first, last from holes"
    )
    for run, first, last in spans:
        found.setdefault(run, IntervalSet()).add_span(first, last)
    for table in frame_tables:
        for run, first, last in spans_of(engine, table):
            found.setdefault(run, IntervalSet()).add_span(first, last)
    return found


def fold(engine: DuckEngine, frames_table: str, period: int) -> None:
    """Fold a `frames` table into the marks; inside the transaction that drops it."""
    new = spans_of(engine, frames_table)
    if not new:
        return
    merged: dict[int, IntervalSet] = {run: IntervalSet() for run, _, _ in new}
    old = engine.rows(
        "select run, first, last from marks where list_contains(?, run)", list(merged)
    )
    for run, first, last in [*old, *new]:
        merged[run].add_span(first, last)
    engine.run("delete from marks where list_contains(?, run)", list(merged))
    _insert(engine, [(run, *span) for run, spans in merged.items() for span in spans], period)


def _insert(engine: DuckEngine, spans: Sequence[Span], period: int) -> None:
    table = np.array(spans, np.int64).reshape(-1, 3)
    columns: Columns = {
        "run": table[:, 0].astype(np.int32),
        "first": np.ascontiguousarray(table[:, 1]),
        "last": np.ascontiguousarray(table[:, 2]),
        "sealed": np.full(len(table), period, np.int64),
    }
    engine.insert("marks", columns)
