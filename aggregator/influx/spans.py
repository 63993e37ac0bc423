"""All open spans, from means to hours, and the frames that wait for them."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from aggregator.influx.cells import Cells
from aggregator.influx.config import EXACT_SECONDS, InfluxConfig
from aggregator.influx.panes import Panes, Places, closed
from aggregator.model import Frames
from telemetry.metric import Lane
from telemetry.schema import SCHEMA, SCHEMA_ID

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Over:
    """A span that is over."""

    rollup: int
    """Seconds of the roll-up; 0 for the means."""
    blocks: list[tuple[int, Cells]]
    frames: list[Frames]
    """What counts as stored once this is in the spool."""


class Spans:
    """Steps one above another; used by one thread at a time."""

    def __init__(self, config: InfluxConfig) -> None:
        places: dict[int, Places] = {}
        every = int(config.every_seconds)
        self.means = Panes(every, places) if every else None
        self._rollups = [Panes(step, places) for step in config.rollup_seconds]
        self._chain = ([self.means] if self.means else []) + self._rollups
        exact = [each for each in self._chain if each.step <= EXACT_SECONDS]
        self._holding = exact[-1] if exact else None
        self.stored: list[Frames] = []
        """Frames that wait for no mean, or for none any more; who takes them, empties it."""

    def add(self, block: int, cells: Cells, at: int) -> None:
        """Take frames that came at `at`."""
        if self.means is not None and SCHEMA.blocks[block].lane is Lane.FAST:
            self.means.add(block, cells, at)
        elif self._rollups:
            self._rollups[0].add(block, cells, at)

    def hold(self, frames: Frames, at: int) -> None:
        """Let frames wait for their means; there may be none to wait for."""
        if not len(frames):
            return
        if self._holding is None:
            self.stored.append(frames)
        else:
            self._holding.hold(frames, at)

    def due(self, at: int, *, every: bool) -> Iterator[Over]:
        """Yield what is over, the short before the long; with `every` all but the long."""
        finer: Panes | None = None
        for number, panes in enumerate(self._chain):
            coarser = self._chain[number + 1] if number + 1 < len(self._chain) else None
            all_of = every and panes.step <= EXACT_SECONDS
            for pane in panes.due(at, finer, every=all_of):
                found = list(closed(pane))
                if coarser is not None:
                    for block, cells in found:
                        coarser.add(block, cells, at)
                rollup = 0 if panes is self.means else panes.step
                yield Over(rollup, found, pane.frames)
            finer = panes

    # -- What takes longer than a frame may wait -------------------------------------------------

    def save(self, path: Path) -> None:
        """Write down the long spans that are open; what they hold is in no other place."""
        arrays: dict[str, npt.NDArray[Any]] = {"schema": np.array([SCHEMA_ID])}
        for panes in self._rollups:
            if panes.step > EXACT_SECONDS:
                for pane in panes.open.values():
                    for part, (block, cells) in enumerate(closed(pane)):
                        for name, values in cells.arrays().items():
                            arrays[f"{panes.step}/{part}/{pane.number}/{block}/{name}"] = values
        packed = io.BytesIO()
        np.savez(packed, allow_pickle=False, **arrays)
        new = path.with_suffix(".new")
        try:
            new.write_bytes(packed.getbuffer())
            new.replace(path)
        except OSError as error:
            log.warning("%s: open hours are not saved: %s", path, error)

    def restore(self, path: Path) -> None:
        """Go on with the long spans of before; of another release they are left alone."""
        try:
            with np.load(path) as found:
                arrays = {name: found[name] for name in found.files}
        except FileNotFoundError:
            return
        except (OSError, ValueError, EOFError) as error:
            log.warning("%s: open hours begin anew: %s", path, error)
            return
        if arrays.pop("schema", np.zeros(1)).tolist() != [SCHEMA_ID]:
            return
        self._put(arrays)

    def _put(self, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        spans: dict[tuple[int, ...], dict[str, npt.NDArray[Any]]] = {}
        for name, values in arrays.items():
            *numbers, field = name.split("/")
            spans.setdefault(tuple(map(int, numbers)), {})[field] = values
        for (step, _, _, block), found in sorted(spans.items()):
            for panes in self._rollups:
                if panes.step == step and panes.step > EXACT_SECONDS:
                    panes.add(block, Cells(**found), 0)
