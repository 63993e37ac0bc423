"""Which frames the store holds, as number spans per run: what makes it store each exactly once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from aggregator.store.protocol import Frames, Hole
from telemetry.intervals import IntervalSet

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

    def new_holes(
        self, holes: Iterable[Hole], runs: Mapping[tuple[str, int], int]
    ) -> list[NewHole]:
        """Return what of holes is not accounted for yet; `runs` gives each session its number."""
        found = []
        for hole in holes:
            run = runs[hole.node, hole.session]
            spans = self._spans.get(run, IntervalSet())
            for first, last in spans.missing(hole.first, hole.last):
                found.append(NewHole(run, first, last, hole.reason))
        return found

    def remember(self, frames: Frames, fresh: Fresh, holes: Iterable[NewHole]) -> None:
        """Enter what has been committed."""
        stored = self._spans
        runs, numbers = frames.run[fresh].tolist(), frames.seq[fresh].tolist()
        for run, seq in zip(runs, numbers, strict=True):
            spans = stored.get(run)
            if spans is None:
                spans = stored[run] = IntervalSet()
            spans.add(seq)
        for hole in holes:
            stored.setdefault(hole.run, IntervalSet()).add_span(hole.first, hole.last)
