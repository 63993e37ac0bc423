"""Refill: the frames whose readings were in a lost file are requested again from the nodes' rings.

A frame's readings are spread over blocks, and over files by device, so that only the rows that the
lost file held are stored of a frame that comes again. When all of them have come the file is not
missing any more.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from aggregator.store.duck import ReadConnection, quoted
from aggregator.store.manifest import RAW, SealedFile
from aggregator.store.protocol import BlockRows, Frames, LostFrames
from aggregator.store.stored_spans import Fresh
from telemetry.intervals import IntervalSet


@dataclass(slots=True)
class Refill:
    """The frames of one lost file."""

    file: SealedFile
    devices: npt.NDArray[np.int32]
    """Numbers of the devices that the file may hold, sorted."""
    frames: list[LostFrames]
    waiting: dict[int, IntervalSet]
    """By run, the frames that have not come again."""

    def wants(self, run: int, seq: int) -> bool:
        """Return whether a frame has not come again."""
        spans = self.waiting.get(run)
        return spans is not None and seq in spans


def find_refill(
    reader: ReadConnection, root: Path, file: SealedFile, others: Iterable[SealedFile]
) -> Refill | None:
    """Return the refill of a lost file of readings; None where nothing says which frames it held.
    `others`: the files that can be read; one of another block in the same period has the same
    frames."""
    siblings = [
        quoted(str(root / other.path))
        for other in others
        if other.kind == RAW and other.period == file.period and other.block != file.block
    ]
    devices = dict(
        reader.rows(
            "select id, node from devices where key between ? and ?",
            file.low_device, file.high_device,
        )
    )  # fmt: skip
    if not siblings or not devices:
        return None
    spans = reader.rows(
        "select f.node, f.session, r.id, min(seq), max(seq) from (select node, session, seq, seq - "
        "row_number() over (partition by node, session order by seq) as island from (select distinct "
        f"node, session, seq from read_parquet([{', '.join(siblings)}], union_by_name = true) "
        "where list_contains(?, node))) as f join runs r using (node, session) "
        "group by f.node, f.session, r.id, island",
        sorted(set(devices.values())),
    )
    refill = Refill(file, np.array(sorted(devices), np.int32), [], {})
    for node, session, run, first, last in spans:
        refill.frames.append(LostFrames(node, session, first, last))
        refill.waiting.setdefault(run, IntervalSet()).add_span(first, last)
    return refill if refill.frames else None


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
                if (
                    (spans := refill.waiting.get(run)) is not None
                    and spans.remove(seq)
                    and not spans
                ):
                    del refill.waiting[run]
        done = [refill for refill in self._under_way if not refill.waiting]
        self._under_way = [refill for refill in self._under_way if refill.waiting]
        return [refill.file for refill in done]


def rolled_up(file: SealedFile, files: Sequence[SealedFile]) -> list[SealedFile]:
    """Return the roll-ups of a file of readings: they have its name in folders of their own."""
    name = file.path.rpartition("/")[2]
    return [
        other
        for other in files
        if other.kind != RAW and other.block == file.block and other.path.endswith(f"/{name}")
    ]
