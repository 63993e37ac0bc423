"""The embedded store: a ledger with the readings themselves, DuckDB for the newest hours and sealed
Parquet files before."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from aggregator.store.duck import EngineReader, MovedError
from aggregator.store.history import read_history
from aggregator.store.ledger import LedgerStore
from aggregator.store.past import PastQuery, read_past
from aggregator.store.protocol import Batch, BlockRows, FleetPast, Frames, HistorySeries, MeanRows, PastInstants
from aggregator.store.provisional import ProvisionalSpans, create_provisional, delete_old, delete_replaced, insert_means
from aggregator.store.sealed_files import FileChoice
from aggregator.store.stored_spans import Fresh, Span
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table
from telemetry.wire.schema import SCHEMA

RETRIES, RETRY_SECONDS = 100, 0.03
"""How often a query is repeated whose tables are sealed or dropped at that moment, and the seconds
between."""
QUERY_SECONDS = 30.0
"""Seconds after which a query is cancelled, or a few that are too large would keep all threads that
there are for others."""
Periods = Mapping[int, Mapping[str, str]]
Answer = TypeVar("Answer")


class EmbeddedStore(LedgerStore):
    """The `Store` of a data folder."""

    _provisional: ProvisionalSpans
    _means: list[MeanRows]
    """Means of the batch that is being written."""
    _replaced: list[Span]
    """Means that the batch which is being written replaces."""

    def write(self, batch: Batch) -> int:
        """Store a batch in one transaction; return how many frames were new."""
        self._means, self._replaced = [], []
        runs = self._runs  # of sessions that end with this batch too
        lost = [(runs.get((hole.node, hole.session), -1), hole.first, hole.last) for hole in batch.holes]
        new = super().write(batch)
        self._provisional.add(self._means)
        self._provisional.remove(self._replaced)
        self._provisional.keep(lost)
        return new

    def _insert_more(self, batch: Batch, fresh: Fresh) -> None:
        """Insert the means of a batch, and delete those that its frames replace."""
        provisional, stored = self._provisional, self._stored
        self._means = provisional.outstanding(batch.means, batch.frames, fresh, stored)
        insert_means(self._engine, self._means)
        self._replaced = provisional.replaced(batch.frames, fresh, stored)
        if self._replaced:
            delete_replaced(self._engine, self._replaced)

    def _retain(self, now: int) -> None:
        before = self._retained_at
        super()._retain(now)
        if self._retained_at != before:
            oldest = now - int(self._config.raw_age_seconds * 1e9)
            with self._engine.transaction():
                deleted = delete_old(self._engine, oldest)
            if deleted:
                self._provisional = ProvisionalSpans.load(self._engine)

    def _load(self) -> None:
        super()._load()
        create_provisional(self._engine)
        self._provisional = ProvisionalSpans.load(self._engine)

    def _insert(self, tables: Mapping[str, str], batch: Batch, fresh: Fresh, *, every: bool) -> None:
        """Insert the frames of a batch that are `fresh`, with their rows."""
        super()._insert(tables, batch, fresh, every=every)
        by_block: dict[int, list[BlockRows]] = {}
        for part in batch.blocks:
            by_block.setdefault(part.block, []).append(part)
        for number, parts in sorted(by_block.items()):
            kept = None
            if not every:
                name = SCHEMA.blocks[number].name
                each = [self._rows(name, part, batch.frames, fresh) for part in parts]
                kept = np.concatenate(each)
            columns = _columns(number, parts, batch.frames, kept)
            if len(columns["seq"]):
                name = SCHEMA.blocks[number].name
                self._engine.insert(tables[name], columns)
                self._folding.add(name, len(columns["seq"]))

    def _rows(self, block: str, rows: BlockRows, frames: Frames, fresh: Fresh) -> Fresh:
        """Return which rows of a block are to be stored."""
        if self._refills:
            return self._refills.rows(block, rows, frames, fresh)
        return fresh[rows.frame]

    def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return one metric of one device; in any thread, beside commits. Raises `StoreError`, also
        for a metric that does not exist."""
        return self._answer(
            lambda reader, periods, sealed: read_history(reader, sealed, periods, device, metric, start, end, step)
        )

    def past(
        self,
        table: Table,
        columns: Sequence[str],
        when: PastInstants,
        reach: Mapping[Lane, int],
        nodes: Sequence[str] | None,
    ) -> FleetPast:
        """Return the newest readings of all devices at each instant; as `history`, in any thread."""
        query = PastQuery(table, tuple(columns), when, dict(reach), nodes)
        return self._answer(lambda reader, periods, sealed: read_past(reader, sealed, periods, query))

    def _answer(self, query: Callable[[EngineReader, Periods, FileChoice], Answer]) -> Answer:
        """Return the answer to a query, wherever its rows are by now."""
        tries = 0
        while True:
            periods, choice = dict(self._periods), FileChoice(self._sealed)
            try:
                with self._engine.reader(QUERY_SECONDS) as reader:
                    return query(reader, periods, choice)
            except StoreError as error:
                if self._sealed.find_lost():
                    continue  # with the files that are left
                tries += 1
                if not isinstance(error, MovedError) or tries == RETRIES:
                    raise
                time.sleep(RETRY_SECONDS)


def _columns(
    number: int, parts: Sequence[BlockRows], frames: Frames, kept: npt.NDArray[np.bool_] | None
) -> dict[str, npt.NDArray[Any]]:
    block = SCHEMA.blocks[number]
    frame = np.concatenate([part.frame for part in parts])
    device = np.concatenate([part.device for part in parts])
    # Column by column in memory, as the engine reads them: a copy now is cheaper than strides then.
    wide = np.concatenate([part.gauges.T for part in parts], axis=1)
    tall = np.concatenate([part.counters.T for part in parts], axis=1)
    for values in (wide, tall):  # copies of ours
        values[np.isinf(values)] = np.nan  # no number: it would be the mean of its whole bucket
    if kept is not None:
        frame, device, wide, tall = frame[kept], device[kept], wide[:, kept], tall[:, kept]
    columns: dict[str, npt.NDArray[Any]] = {
        "run": frames.run[frame],
        "device": device,
        "seq": frames.seq[frame],
        "ts": frames.sampled_at[frame],
        "received": frames.received_at[frame],
    }
    columns.update(zip(block.gauges, np.ascontiguousarray(wide), strict=True))
    columns.update(zip(block.counters, np.ascontiguousarray(tall), strict=True))
    return columns
