"""Parts of a batch by node, for a batch whose content the store can't write as a whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence

import numpy as np
import numpy.typing as npt

from aggregator.store.protocol import Batch, BlockRows, CollectorRun, Frames, Hole, MeanRows

NodeOfRun = Callable[[int], CollectorRun | None]
"""Returns the session of a run's number."""


def nodes_of(batch: Batch, run_of: NodeOfRun) -> list[str]:
    """Return the nodes that a batch has anything of, in order."""
    names = {_node(number, run_of) for number in np.unique(batch.frames.run).tolist()}
    names |= {stored.event.node for stored in batch.events}
    names |= {hole.node for hole in batch.holes}
    names |= {inventory.node for inventory in batch.inventories}
    names |= {run.node for run in batch.runs} | {device.node for device in batch.devices}
    names |= set(batch.removed_nodes) | {node for node, _ in batch.ended_runs}
    return sorted(names)


def part_of(batch: Batch, nodes: Collection[str], run_of: NodeOfRun) -> Batch:
    """Return what a batch has of some nodes, but for its means, which are provisional."""
    wanted = set(nodes)
    frames = batch.frames
    numbers = np.unique(frames.run).tolist()
    runs = {number for number in numbers if _node(number, run_of) in wanted}
    kept = np.isin(frames.run, list(runs))
    position = np.cumsum(kept) - 1
    return Batch(
        frames=Frames(
            frames.run[kept],
            frames.seq[kept],
            frames.sampled_at[kept],
            frames.received_at[kept],
            frames.backfilled[kept],
        ),
        blocks=[_rows(rows, kept, position) for rows in batch.blocks],
        events=[stored for stored in batch.events if stored.event.node in wanted],
        holes=[hole for hole in batch.holes if hole.node in wanted],
        inventories=[one for one in batch.inventories if one.node in wanted],
        runs=[run for run in batch.runs if run.node in wanted],
        devices=[device for device in batch.devices if device.node in wanted],
        removed_nodes=[node for node in batch.removed_nodes if node in wanted],
        ended_runs=[key for key in batch.ended_runs if key[0] in wanted],
        at=batch.at,
    )


def means_of_others(means: Sequence[MeanRows], nodes: Collection[str], run_of: NodeOfRun) -> list[MeanRows]:
    """Return means without those of some nodes."""
    numbers = {number for rows in means for number in np.unique(rows.run).tolist()}
    gone = [number for number in numbers if _node(number, run_of) in nodes]
    found = [rows.only(~np.isin(rows.run, gone)) for rows in means]
    return [rows for rows in found if len(rows.run)]


def _node(number: int, run_of: NodeOfRun) -> str:
    """Return the node of a run; "" for a session that has ended and is no longer known."""
    run = run_of(number)
    return "" if run is None else run.node


def _rows(rows: BlockRows, kept: npt.NDArray[np.bool_], position: npt.NDArray[np.intp]) -> BlockRows:
    mine = kept[rows.frame]
    return BlockRows(
        rows.block,
        position[rows.frame[mine]].astype(np.int32),
        rows.device[mine],
        rows.gauges[mine],
        rows.counters[mine],
    )


def holes_of(batch: Batch, run_of: NodeOfRun, reason: str) -> list[Hole]:
    """Return the frames of a batch as holes."""
    found: list[Hole] = []
    for number in np.unique(batch.frames.run).tolist():
        run = run_of(number)
        if run is not None:
            seqs = np.unique(batch.frames.seq[batch.frames.run == number]).tolist()
            found += [Hole(run.node, run.session, a, b, reason) for a, b in _spans(seqs)]
    return found


def _spans(numbers: Iterable[int]) -> list[tuple[int, int]]:
    spans: list[tuple[int, int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1] = spans[-1][0], number
        else:
            spans.append((number, number))
    return spans
