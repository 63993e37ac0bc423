"""Refill: the frames whose readings were in a lost file are requested again from the nodes' rings.

A frame's readings are spread over blocks, and over files by device, so that only the rows that the
lost file held are stored of a frame that comes again. When all of them have come the file is not
missing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aggregator.store.duck import ReadConnection, quoted
from aggregator.store.manifest import RAW, SealedFile
from aggregator.store.protocol import BlockRows, Frames, LostFrames
from aggregator.store.stored_spans import Fresh
from aggregator.store.tables import BLOCKS
from telemetry.wire.intervals import IntervalSet


@dataclass(slots=True)
class Refill:
    """The frames of one lost file."""

    file: SealedFile
    devices: npt.NDArray[np.int32]
    """Numbers of the devices that the file may hold, sorted."""
    frames: list[LostFrames]
    """The frames to request."""
    waiting: dict[int, IntervalSet]
    """By run, the frames that have not come again."""
    requested: dict[int, IntervalSet] = field(default_factory=dict)
    """Of those, the frames that are not recorded as lost: no ring has those any more."""

    def wants(self, run: int, seq: int) -> bool:
        """Return whether a frame has not come again."""
        spans = self.waiting.get(run)
        return spans is not None and seq in spans


def find_refill(
    reader: ReadConnection, root: Path, file: SealedFile, others: Iterable[SealedFile], hot: Iterable[str]
) -> Refill | None:
    """Return the refill of a lost file of readings; None where nothing says which frames it held.

    `others`: the files that can be read; one of another block of the same lane and period has the
    same frames. `hot`: the tables of the file's block that are not sealed. What these have of the
    lost rows already came again before a restart, and is not requested twice.
    """
    others, lane = list(others), BLOCKS[file.block].lane
    siblings = [
        other
        for other in others
        if other.kind == RAW
        and other.period == file.period
        and other.block != file.block
        and BLOCKS[other.block].lane is lane
    ]
    found = reader.rows("select id, node from devices where key between ? and ?", file.low_device, file.high_device)
    if not siblings or not found:
        return None
    nodes = sorted({node for _, node in found})
    refill = Refill(file, np.array(sorted(id_ for id_, _ in found), np.int32), [], {})
    names: dict[int, tuple[str, int]] = {}
    for node, session, run, first, last in reader.rows(
        _spans(f"{_read(root, siblings)} where list_contains(?, node)"), nodes
    ):
        names[run] = node, session
        refill.waiting.setdefault(run, IntervalSet()).add_span(first, last)
    if not names:
        return None
    for run, first, last in _there(reader, root, refill, others, hot):
        if run in refill.waiting:
            refill.waiting[run].remove_span(first, last)
    refill.waiting = {run: spans for run, spans in refill.waiting.items() if spans}
    refill.requested = {run: IntervalSet(spans) for run, spans in refill.waiting.items()}
    for run, first, last in reader.rows("select run, first, last from holes"):
        if run in refill.requested:
            refill.requested[run].remove_span(first, last)
    refill.frames = [LostFrames(*names[run], *span) for run, spans in refill.requested.items() for span in spans]
    return refill


def came_again_of(
    reader: ReadConnection, root: Path, file: SealedFile, others: Sequence[SealedFile], hot: Iterable[str]
) -> bool:
    """Return whether rows of a lost file were stored again: it would double them."""
    found = reader.rows("select id from devices where key between ? and ?", file.low_device, file.high_device)
    refill = Refill(file, np.array(sorted(id_ for (id_,) in found), np.int32), [], {})
    return next(_there(reader, root, refill, others, hot), None) is not None


def _there(
    reader: ReadConnection, root: Path, refill: Refill, others: Sequence[SealedFile], hot: Iterable[str]
) -> Iterator[tuple[int, int, int]]:
    """Yield run, first and last of the frames of which rows came again."""
    file, among = refill.file, refill.devices.tolist()
    for table in hot:
        yield from reader.rows(
            "select run, seq, seq from (select distinct run, seq from "
            f"{table} where list_contains(?, device) and ts between ? and ?)",
            among,
            file.first_ts,
            file.last_ts,
        )
    later = [
        other
        for other in others
        if (other.kind, other.block) == (RAW, file.block)
        and other.period > file.period
        and other.first_ts <= file.last_ts
        and other.last_ts >= file.first_ts
    ]
    if later:
        where = "where device between ? and ? and epoch_ns(ts) between ? and ?"
        for _, _, run, first, last in reader.rows(
            _spans(f"{_read(root, later)} {where}"), file.low_device, file.high_device, file.first_ts, file.last_ts
        ):
            yield run, first, last


def _read(root: Path, files: Iterable[SealedFile]) -> str:
    paths = ", ".join(quoted(str(root / file.path)) for file in files)
    return f"select distinct node, session, seq from read_parquet([{paths}], union_by_name = true)"


def _spans(frames: str) -> str:
    """Return a query for node, session, run, first and last of all spans of frames."""
    return (
        "select f.node, f.session, r.id, min(seq), max(seq) from (select node, session, seq, seq - "
        f"row_number() over (partition by node, session order by seq) as island from ({frames})) "
        "as f join runs r using (node, session) group by f.node, f.session, r.id, island"
    )


class Refills:
    """The refills under way; used by the thread that commits."""

    def __init__(self) -> None:
        self._under_way: list[Refill] = []

    def __bool__(self) -> bool:
        """Return whether any frame is awaited."""
        return bool(self._under_way)

    def add(self, refill: Refill) -> None:
        """Begin a refill."""
        self._under_way.append(refill)

    def rows(self, block: str, rows: BlockRows, frames: Frames, fresh: Fresh) -> Fresh:
        """Return which rows of a block are to be stored: of a frame that comes again, those that
        were lost; of any other, all if it is `fresh`."""
        kept = fresh[rows.frame]
        for at in np.unique(rows.frame[kept]).tolist():
            run, seq = int(frames.run[at]), int(frames.seq[at])
            wanting = [refill for refill in self._under_way if refill.wants(run, seq)]
            if wanting:
                lost = [refill.devices for refill in wanting if refill.file.block == block]
                among = rows.frame == at
                kept[among] = np.isin(rows.device[among], np.concatenate(lost) if lost else [])
        return kept

    def stored(self, frames: Frames, fresh: Fresh) -> list[SealedFile]:
        """Note frames that were committed; return the files of which nothing is missing any more."""
        pairs = zip(frames.run[fresh].tolist(), frames.seq[fresh].tolist(), strict=True)
        for run, seq in pairs:
            for refill in self._under_way:
                if (spans := refill.waiting.get(run)) is not None and spans.remove(seq) and not spans:
                    del refill.waiting[run]
        done = [refill for refill in self._under_way if not refill.waiting]
        self._under_way = [refill for refill in self._under_way if refill.waiting]
        return [refill.file for refill in done]


def rolled_up(file: SealedFile, files: Sequence[SealedFile]) -> list[SealedFile]:
    """Return the roll-ups of a file of readings: they have its name in folders of their own."""
    name = file.path.rpartition("/")[2]
    return [
        other for other in files if other.kind != RAW and other.block == file.block and other.path.endswith(f"/{name}")
    ]
