"""Provisional means in the hot database: rows that stand for frames which may still come.

One table a block, beside those of the periods: it is not sealed. A row is removed in the transaction
that stores the last of its frames. Where some of them are lost for good it stays, until it is as old as
readings may be, or until there are too many.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.store.duck import DuckEngine, ReadConnection
from aggregator.store.protocol import SPAN_SECONDS, Frames, MeanRows
from aggregator.store.sealed_files import TimeWindow
from aggregator.store.stored_spans import Fresh, Span, StoredSpans
from aggregator.store.tables import BLOCKS, make_block_tables
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.schema import SCHEMA, Block

PREFIX = "provisional_"
MOST_ROWS = 20_000_000
"""Rows of one block; the oldest go first. 10,000 s of 100,000 GPUs take about a gigabyte."""


def create_provisional(engine: DuckEngine) -> None:
    """Make the tables, or bring those of an older release up to date."""
    keys = "run integer, device integer, seq bigint, last_seq bigint, ts bigint, received bigint, frames integer"
    make_block_tables(engine, {PREFIX + name: block for name, block in BLOCKS.items()}, keys)


class ProvisionalSpans:
    """The frames that means in the database stand for, by run."""

    def __init__(self) -> None:
        self._spans: dict[int, array[int]] = {}
        """First and last number of each span, one after the other."""

    @classmethod
    def load(cls, engine: ReadConnection) -> ProvisionalSpans:
        """Read them from the database."""
        found = cls()
        union = " union ".join(f"select run, seq, last_seq from {PREFIX}{name}" for name in BLOCKS)
        for run, first, last in engine.rows(f"select * from ({union}) order by run, seq"):
            found._spans.setdefault(run, array("q")).extend((first, last))
        found.keep(engine.rows("select run, first, last from holes") if found._spans else ())
        return found

    def replaced(self, frames: Frames, fresh: Fresh, stored: StoredSpans) -> list[Span]:
        """Return the spans whose last missing frame is among those of `frames` that came on request.

        `stored`: what was stored before; `fresh`: which of `frames` are new to it.
        """
        came = fresh & frames.backfilled
        if not self._spans or not came.any():
            return []
        numbers: dict[int, IntervalSet] = {}
        for run, seq in zip(frames.run[came].tolist(), frames.seq[came].tolist(), strict=True):
            if run in self._spans:
                if run not in numbers:
                    numbers[run] = stored.of(run)
                numbers[run].add(seq)
        return [
            (run, first, last)
            for run, there in numbers.items()
            for first, last in _pairs(self._spans[run])
            if not there.missing(first, last)
        ]

    @staticmethod
    def outstanding(means: Sequence[MeanRows], frames: Frames, fresh: Fresh, stored: StoredSpans) -> list[MeanRows]:
        """Return the means without those whose frames are all stored by now: a ring can be faster
        than the ten seconds of a mean. The other arguments are those of `replaced`."""
        came: set[tuple[int, int]] = set()
        if means:
            came.update(zip(frames.run[fresh].tolist(), frames.seq[fresh].tolist(), strict=True))
        found = []
        for rows in means:
            spans = zip(rows.run.tolist(), rows.first.tolist(), rows.last.tolist(), strict=True)
            wanted = np.array([not _there(span, came, stored) for span in spans], np.bool_)
            found.append(rows if wanted.all() else rows.only(wanted))
        return [rows for rows in found if len(rows.run)]

    def add(self, means: Sequence[MeanRows]) -> None:
        """Add the spans of means that were committed."""
        new = {
            span
            for rows in means
            for span in zip(rows.run.tolist(), rows.first.tolist(), rows.last.tolist(), strict=True)
        }
        for run, first, last in sorted(new):
            self._spans.setdefault(run, array("q")).extend((first, last))

    def remove(self, gone: Iterable[Span]) -> None:
        """Remove spans whose means are replaced."""
        by_run: dict[int, set[tuple[int, int]]] = {}
        for run, first, last in gone:
            by_run.setdefault(run, set()).add((first, last))
        for run, pairs in by_run.items():
            self._discard(run, pairs)

    def keep(self, holes: Iterable[Span]) -> None:
        """Keep the means for good whose frames are lost in part, given the lost frames."""
        for run, first, last in holes:
            pairs = _pairs(self._spans.get(run, array("q")))
            self._discard(run, {pair for pair in pairs if pair[1] >= first and pair[0] <= last})

    def _discard(self, run: int, gone: set[tuple[int, int]]) -> None:
        left = array("q")
        for pair in _pairs(self._spans.pop(run, array("q"))):
            if pair not in gone:
                left.extend(pair)
        if left:
            self._spans[run] = left


def _there(span: Span, came: set[tuple[int, int]], stored: StoredSpans) -> bool:
    run, first, last = span
    return all(
        (run, number) in came for begin, end in stored.missing(run, first, last) for number in range(begin, end + 1)
    )


def _pairs(spans: array[int]) -> Iterator[tuple[int, int]]:
    return zip(spans[::2], spans[1::2], strict=True)


# -- In the database, inside the caller's transaction --------------------------------------------


def insert_means(engine: DuckEngine, means: Sequence[MeanRows]) -> None:
    """Insert means."""
    for rows in means:
        block = SCHEMA.blocks[rows.block]
        columns: dict[str, npt.NDArray[Any]] = {
            "run": rows.run,
            "device": rows.device,
            "seq": rows.first,
            "last_seq": rows.last,
            "ts": rows.sampled_at,
            "received": rows.received_at,
            "frames": rows.frames,
        }
        columns.update(zip(block.gauges, np.ascontiguousarray(rows.gauges.T), strict=True))
        columns.update(zip(block.counters, np.ascontiguousarray(rows.counters.T), strict=True))
        engine.insert(PREFIX + block.name, columns)


def delete_replaced(engine: DuckEngine, gone: Sequence[Span]) -> None:
    """Delete the means of these spans."""
    spans = np.array(gone, np.int64).reshape(-1, 3)
    engine.run("create or replace temp table replaced_spans(run integer, seq bigint, last_seq bigint)")
    engine.insert(
        "replaced_spans",
        {
            "run": spans[:, 0].astype(np.int32),
            "seq": np.ascontiguousarray(spans[:, 1]),
            "last_seq": np.ascontiguousarray(spans[:, 2]),
        },
    )
    for name in BLOCKS:
        engine.run(
            f"delete from {PREFIX}{name} as p using replaced_spans as r "
            "where p.run = r.run and p.seq = r.seq and p.last_seq = r.last_seq"
        )


def spanning_means(engine: ReadConnection, block: Block, start: int, end: int) -> int:
    """Return the seconds of a mean when there is any that counts between two times, ns since 1970;
    else 0."""
    begin = start - SPAN_SECONDS * 1_000_000_000
    found = engine.rows(f"select 1 from {PREFIX}{block.name} where ts > ? and ts < ? limit 1", begin, end)
    return SPAN_SECONDS if found else 0


def without_replaced(but: Mapping[int, IntervalSet] | None) -> str:
    """Return a condition, after others, that leaves out means whose frames are all among those of `but`, by
    run: they are stored elsewhere."""
    return "".join(
        f" and not (run = {run} and seq >= {first} and last_seq <= {last})"
        for run, spans in (but or {}).items()
        for first, last in spans
    )


def provisional_windows(
    engine: ReadConnection,
    block: Block,
    device: str,
    start: int,
    end: int,
    but: Mapping[int, IntervalSet] | None = None,
) -> list[TimeWindow]:
    """Return the windows of a device's means between two times, ns since 1970, joined where they
    touch. A mean stands for the ten seconds before its last frame. `but`: as of `without_replaced`."""
    found: list[TimeWindow] = []
    for (last,) in engine.rows(
        f"select p.ts from {PREFIX}{block.name} p join devices d on d.id = p.device "
        f"where d.key = ? and p.ts >= ? and p.ts < ?{without_replaced(but)} order by p.ts",
        device,
        start,
        end,
    ):
        first = last - SPAN_SECONDS * 1_000_000_000
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], last
        else:
            found.append((first, last))
    return found


def delete_old(engine: DuckEngine, oldest: int) -> bool:
    """Delete means that were received before `oldest`, ns since 1970, and the oldest of those that
    are too many; return whether there were any."""
    deleted = False
    for name in BLOCKS:
        table = PREFIX + name
        ((rows, first),) = engine.rows(f"select count(*), min(received) from {table}")
        if not rows:
            continue
        before = oldest
        if rows > MOST_ROWS:
            ((bound,),) = engine.rows(f"select quantile_disc(received, {1 - MOST_ROWS / rows}) from {table}")
            before = max(before, bound)
        if first < before:
            engine.run(f"delete from {table} where received < ?", before)
            deleted = True
    return deleted
