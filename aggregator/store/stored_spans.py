"""The frames that a store holds, as number spans per run, so that it stores each exactly once.

When a period is sealed its rows of frames are dropped, and their spans are kept as *marks*.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aggregator.store.duck import Columns, DuckEngine
from aggregator.store.protocol import Frames, Hole
from telemetry.wire.intervals import IntervalSet

Fresh = npt.NDArray[np.bool_]
"""For each frame of a batch, whether it is not stored yet."""


class NewHole(NamedTuple):
    """Frames of a run that are to be recorded as lost."""

    run: int
    first: int
    last: int
    reason: str


class StoredSpans:
    """The frames of all runs that are committed, or recorded as lost."""

    def __init__(self, spans: dict[int, IntervalSet] | None = None) -> None:
        self._spans = {} if spans is None else spans

    def of(self, run: int) -> IntervalSet:
        """Return the numbers of a run, a copy."""
        return IntervalSet(self._spans.get(run, IntervalSet()))

    def end(self, run: int) -> None:
        """Forget the numbers of a run of which no frame can come any more."""
        self._spans.pop(run, None)

    def missing(self, run: int, first: int, last: int) -> list[tuple[int, int]]:
        """Return the numbers of a run from `first` to `last` that are not stored, as spans."""
        return self._spans.get(run, IntervalSet()).missing(first, last)

    def fresh(self, frames: Frames) -> Fresh:
        """Return which frames are not stored yet, and not twice in the batch."""
        stored, seen = self._spans, set()
        fresh = np.ones(len(frames), np.bool_)
        for at, key in enumerate(zip(frames.run.tolist(), frames.seq.tolist(), strict=True)):
            spans = stored.get(key[0])
            if key in seen or (spans is not None and key[1] <= spans.end and key[1] in spans):
                fresh[at] = False
            seen.add(key)
        return fresh

    def new_holes(self, holes: Iterable[Hole], runs: Mapping[tuple[str, int], int]) -> list[NewHole]:
        """Return the parts of holes that are not accounted for yet; `runs`: the number of each session."""
        found = []
        for hole in holes:
            run = runs[hole.node, hole.session]
            spans = self._spans.get(run, IntervalSet())
            for first, last in spans.missing(hole.first, hole.last):
                found.append(NewHole(run, first, last, hole.reason))
        return found

    def forget(self, run: int, spans: IntervalSet) -> None:
        """Remove frames that are to be stored again."""
        stored = self._spans.get(run)
        if stored is not None:
            for first, last in spans:
                stored.remove_span(first, last)

    def remember(self, frames: Frames, fresh: Fresh, holes: Iterable[NewHole]) -> None:
        """Add frames and holes that were committed."""
        stored = self._spans
        runs, numbers = frames.run[fresh].tolist(), frames.seq[fresh].tolist()
        for run, seq in zip(runs, numbers, strict=True):
            spans = stored.get(run)
            if spans is None:
                spans = stored[run] = IntervalSet()
            spans.add(seq)
        for hole in holes:
            stored.setdefault(hole.run, IntervalSet()).add_span(hole.first, hole.last)


# -- In the database ----------------------------------------------------------------------------

Span = tuple[int, int, int]
"""Run, first, last."""


def spans_of(engine: DuckEngine, table: str) -> list[Span]:
    """Return the spans of a `frames` table.

    Nearly every run has all numbers from its lowest to its highest, which one cheap grouping shows;
    only the others are searched for islands.
    """
    spans: list[Span] = []
    broken: list[int] = []
    for run, first, last, count in engine.rows(f"select run, min(seq), max(seq), count(*) from {table} group by run"):
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
    """Return the frames that are stored or recorded as lost, by run."""
    found: dict[int, IntervalSet] = {}
    spans = engine.rows("select run, first, last from marks union all select run, first, last from holes")
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
    old = engine.rows("select run, first, last from marks where list_contains(?, run)", list(merged))
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
