"""Frames of one flush become arrays: the newest rows into the fleet, all of them into a batch.

The work on values is done here, once a flush, for all frames together: one pass over the frames,
none over the values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.ingest.joined_frames import JoinedFrames
from aggregator.ingest.layout import DEVICE, PLACE, TABLES, BlockLayout, numbers_of, translate
from aggregator.ingest.means import ProvisionalMeans
from aggregator.ingest.sequence import ArrivedFrame, NodeTracker
from aggregator.ingest.template import Bytes, Span
from aggregator.store.protocol import Batch, BlockRows, Frames
from api.stats import Stats
from telemetry.fleet import Fleet
from telemetry.metric import Lane, Table
from telemetry.runtime.isolation import Isolation, PartKind
from telemetry.wire.frame import PackedBlock
from telemetry.wire.schema import SCHEMA

ONE_FLUSH = "(one flush)"
"""Part of an exception that was gone at the second try, and cost nothing."""
MOST_FAULTS = 16
"""Nodes that fail one by one, before any succeeds, from which the fault is no node's."""
Arrival = ArrivedFrame | JoinedFrames
SampleTimes = npt.NDArray[np.int64]
"""When frames were sampled, ns since 1970, the nodes' clocks."""


class Batcher:
    """Frames since the last flush, and the batch since the last commit."""

    def __init__(self, fleet: Fleet, stats: Stats, *, means: bool = True) -> None:
        """`means`: whether the store has a place for the means of frames that are not stored."""
        self._fleet = fleet
        self._stats = stats
        self._means = ProvisionalMeans() if means else None
        self._arrivals: list[Arrival] = []
        self._unevaluated: list[SampleTimes] = []
        self._batch = Batch()
        self._parts: list[Frames] = []
        self._frames = 0
        self._bytes = 0
        """Bytes of frames in memory that no drained batch holds."""
        self._storing_bytes = 0
        """Bytes of frames in the batch that is being written."""
        self.aside = Isolation(PartKind.INGEST)
        """Nodes on whose frames a flush raised."""
        self.leave: Callable[[NodeTracker], None] = lambda _: None
        """Called with a node before its account changes: it is not steady any more."""
        self._oldest = self._storing_oldest = math.inf
        """When the first frame came that no drained batch holds, and the first of the batch that is
        being written: monotonic seconds; infinite without any."""

    def waits(self, now: float) -> float:
        """Return for how many seconds the oldest frame that is not stored has been waiting."""
        return max(0.0, now - min(self._oldest, self._storing_oldest))

    def share(self, bound: float) -> float:
        """Return the share of `bound` bytes that wait to be stored."""
        return (self._bytes + self._storing_bytes) / bound

    def full(self, bound: float) -> bool:
        """Return whether more than `bound` bytes wait to be stored."""
        return self._bytes + self._storing_bytes > bound

    def add(self, arrival: Arrival) -> None:
        """Add a frame, or several, to the next flush."""
        self._arrivals.append(arrival)
        if arrival.stored:
            self._bytes += arrival.size

    def take_apart(self) -> None:
        """Have all frames wait one by one: the devices of a node are about to change, or it to leave."""
        if not all(isinstance(each, ArrivedFrame) for each in self._arrivals):
            self._arrivals = [*_apart(self._arrivals)]

    @property
    def waiting(self) -> int:
        """Frames that wait for the next flush."""
        return sum(each.count for each in self._arrivals)

    def flush(self, now: float, wall: int, most: int | None = None) -> SampleTimes:
        """Bring the newest frames into the fleet, and all into the batch, those that came first
        and `most` at most; return when the newest were sampled.

        A node on whose frames this raises is set aside: its frames are missing again, and are requested
        later. Raises where no node can be flushed; all frames are then kept for the next flush.
        """
        arrivals = self._next(most)
        if len(self.aside):
            arrivals = [each for each in _apart(arrivals) if not self._withheld(each, now)]
        before = len(self._unevaluated)
        try:
            self._flush(arrivals, now, wall)
        except Exception as error:  # noqa: BLE001 - costs the node that it comes from
            self._flush_apart(_apart(arrivals), now, wall, error)
        if len(self.aside):
            if self.aside.due(ONE_FLUSH, now):
                self.aside.works(ONE_FLUSH)
            for name in {one.node.name for one in _apart(arrivals) if self.aside.due(one.node.name, now)}:
                self.aside.works(name)
        return np.concatenate([Frames.none().sampled_at, *self._unevaluated[before:]])

    def _next(self, most: int | None) -> list[Arrival]:
        """Take the arrivals of the next flush: of about `most` frames, or all."""
        taken, count = 0, 0
        for each in self._arrivals:
            if most is not None and count >= most:
                break
            taken, count = taken + 1, count + each.count
        arrivals, self._arrivals = self._arrivals[:taken], self._arrivals[taken:]
        return arrivals

    def _flush_apart(self, arrivals: Sequence[ArrivedFrame], now: float, wall: int, error: Exception) -> None:
        """Flush the frames of the nodes that can be flushed, found by halves; set the others aside."""
        by_node: dict[str, list[ArrivedFrame]] = {}
        for each in arrivals:
            by_node.setdefault(each.node.name, []).append(each)
        parts = [list(by_node)]
        faults: dict[str, Exception] = {}
        flushed = not arrivals
        while parts:
            names = parts.pop()
            part = [each for name in names for each in by_node[name]]
            try:
                self._flush(part, now, wall)
            except Exception as found:  # noqa: BLE001 - kept by the node's name
                if len(names) > 1:
                    parts += [names[len(names) // 2 :], names[: len(names) // 2]]
                    continue
                faults[names[0]] = found
                if not flushed and len(faults) > MOST_FAULTS:
                    break  # no node's fault
            else:
                flushed = True
        if not flushed and len(by_node) > 1:
            self._arrivals = [*(each for each in arrivals if each.stored), *self._arrivals]
            raise error
        if not faults and arrivals:
            self.aside.fail(ONE_FLUSH, error, now)
        for name, fault in faults.items():
            self.aside.fail(name, fault, now)
            for each in by_node[name]:
                self._give_back(each)

    def _withheld(self, arrival: ArrivedFrame, now: float) -> bool:
        """Return whether the node of a frame is set aside now; its frame is then missing again."""
        if self.aside.due(arrival.node.name, now):
            return False
        self._give_back(arrival)
        return True

    def _give_back(self, arrival: ArrivedFrame) -> None:
        """Make a frame missing again: it is not in memory any more."""
        arrival.node.withheld_until = self.aside.next_try(arrival.node.name)
        self.leave(arrival.node)
        if arrival.stored:
            self._bytes -= arrival.size
            account = arrival.node.accounts.get(arrival.frame.session)
            if account is not None:
                account.forget(arrival.frame.seq)

    def _flush(self, arrivals: Sequence[Arrival], now: float, wall: int) -> None:
        """Flush some frames; where it raises, the batch is as it was before."""
        before = len(self._parts), len(self._batch.blocks), len(self._unevaluated), self._frames
        try:
            single: list[ArrivedFrame] = []
            for each in arrivals:  # in their order: the newest of a node comes last
                if isinstance(each, ArrivedFrame):
                    single.append(each)
                else:
                    self._bring(single, now, wall)
                    single = []
                    self._bring_joined(each, now, wall)
            self._bring(single, now, wall)
        except Exception:
            parts, blocks, times, self._frames = before
            del self._parts[parts:], self._batch.blocks[blocks:], self._unevaluated[times:]
            raise

    def _bring_joined(self, joined: JoinedFrames, now: float, wall: int) -> None:
        frames, blocks = joined.frames, joined.blocks
        assembled = _assembled_joined(joined, self._frames)
        self._parts.append(frames)
        self._frames += joined.count
        self._batch.blocks += [each.rows for each in assembled]
        self._show(assembled, now)
        if math.isinf(self._oldest):
            self._oldest = now
        if any(_is_slow(blocks[each.number]) for each in joined.template.blocks):
            for node, seq in zip(joined.nodes, frames.seq.tolist(), strict=True):
                node.slow_seq = max(node.slow_seq, seq)
        columns, rows = self._fleet.columns, joined.numbers[:, TABLES[Table.NODE], PLACE]
        columns.seen[rows], columns.sampled_at[rows] = now, frames.sampled_at
        columns.session[rows], columns.seq[rows] = joined.session, frames.seq
        self._stats.lag.add_all(((wall - frames.sampled_at) / 1e9).tolist())
        self._unevaluated.append(frames.sampled_at)

    def _bring(self, arrivals: Sequence[ArrivedFrame], now: float, wall: int) -> None:
        if not arrivals:
            return
        fresh: list[ArrivedFrame] = []
        late: list[ArrivedFrame] = []
        shown: list[ArrivedFrame] = []
        for each in arrivals:
            if each.rows is not None and each.rows is not each.node.rows:
                each.rows = None  # the node's devices changed after it came: it is history already
            if each.rows is None:
                late.append(each)
            else:
                (fresh if each.stored else shown).append(each)
        if fresh and shown:
            self._move_older(fresh, shown)
        late = [each for each in late if each.stored]
        self._show(self._store(fresh), now)
        self._show(self._average(shown), now)
        self._store(late)
        if (fresh or late) and math.isinf(self._oldest):
            self._oldest = now
        current = [*fresh, *shown]
        for each in current:
            self._note(each, now, wall)
        self._show_late(late, now)
        self._unevaluated.append(np.array([each.frame.sampled_at for each in current], np.int64))

    def drain(self, wall: int) -> Batch:
        """Return the frames that came since the last batch, with their rows."""
        batch = self._batch
        batch.frames = Frames.join(self._parts)
        batch.at = wall
        if self._means is not None:
            batch.means = self._means.drain(wall)
        self._batch, self._parts, self._frames = Batch(), [], 0
        self._storing_bytes, self._bytes = self._bytes, 0
        self._storing_oldest, self._oldest = self._oldest, math.inf
        return batch

    def stored(self) -> None:
        """Note that the batch drained last is no longer in memory."""
        self._storing_bytes = 0
        self._storing_oldest = math.inf

    def drain_sample_times(self) -> SampleTimes:
        """Return when the frames were sampled that the rules have not evaluated yet."""
        times, self._unevaluated = self._unevaluated, []
        return np.concatenate([Frames.none().sampled_at, *times])

    # -- Into the batch --------------------------------------------------------------------------

    def _store(self, arrivals: Sequence[ArrivedFrame]) -> list[_AssembledBlock]:
        if not arrivals:
            return []
        assembled = _assembled(arrivals, self._frames)
        self._parts.append(_frames_of(arrivals))
        self._frames += len(arrivals)
        self._batch.blocks += [each.rows for each in assembled]
        return assembled

    def _move_older(self, fresh: list[ArrivedFrame], shown: list[ArrivedFrame]) -> None:
        """Move frames out of `shown` that a newer one in `fresh` follows: shedding has just ended,
        and they must not be shown over it."""
        newer = {each.node.name: each for each in fresh}
        kept = []
        for each in shown:
            other = newer.get(each.node.name)
            if other is not None and other.frame.seq > each.frame.seq:
                self._average([each])
            else:
                kept.append(each)
        shown[:] = kept

    def _average(self, shown: Sequence[ArrivedFrame]) -> list[_AssembledBlock]:
        """Add frames that are not stored to the means; return their rows."""
        assembled = _assembled(shown, 0)
        if self._means is not None and shown:
            frames = _frames_of(shown)
            for each in assembled:
                self._means.add(frames, each.rows)
        return assembled

    # -- Into the fleet --------------------------------------------------------------------------

    def _show(self, assembled: Sequence[_AssembledBlock], now: float) -> None:
        for each in assembled:
            if each.places is not None:
                rows = each.rows
                self._fleet.store(rows.block, each.places, rows.gauges, rows.counters, now)

    def _note(self, arrival: ArrivedFrame, now: float, wall: int) -> None:
        """Remember that a node's newest frame is in the fleet."""
        node, frame = arrival.node, arrival.frame
        if _slow_blocks(arrival):
            node.slow_seq = max(node.slow_seq, frame.seq)
        placed = node.fleet_node
        if placed is not None:
            placed.seen, placed.sampled_at = now, frame.sampled_at
            placed.session, placed.seq = frame.session, frame.seq
            self._stats.lag.add((wall - frame.sampled_at) / 1e9)

    def _show_late(self, arrivals: Sequence[ArrivedFrame], now: float) -> None:
        """Show the slow lane of late frames where no newer frame has brought it, with its true age.

        A late frame never overwrites newer readings. But the slow lane is read every 15 s only: when
        the frame that carried it comes late, its readings are still the newest there are.
        """
        for arrival in arrivals:
            node, frame = arrival.node, arrival.frame
            if (
                frame.session != node.session
                or frame.seq <= node.slow_seq
                or node.fleet_node is None
                or node.rows is None
                or arrival.layout is not node.layouts[0]
            ):
                continue
            slow = _slow_blocks(arrival)
            if not slow:
                continue
            node.slow_seq = frame.seq
            part = replace(arrival, frame=msgspec.structs.replace(frame, blocks=slow), rows=node.rows)
            age = max(0.0, (node.fleet_node.sampled_at - frame.sampled_at) / 1e9)
            self._show(_assembled([part], 0), now - age)


def _is_slow(block: BlockLayout) -> bool:
    return block.target >= 0 and block.source.lane is Lane.SLOW


def _apart(arrivals: Sequence[Arrival]) -> list[ArrivedFrame]:
    """Return all frames one by one."""
    single: list[ArrivedFrame] = []
    for each in arrivals:
        single += [each] if isinstance(each, ArrivedFrame) else each.apart()
    return single


def _slow_blocks(arrival: ArrivedFrame) -> tuple[PackedBlock, ...]:
    blocks = arrival.layout.blocks
    return tuple(packed for packed in arrival.frame.blocks if _is_slow(blocks[packed.block]))


def _frames_of(arrivals: Sequence[ArrivedFrame]) -> Frames:
    return Frames(
        np.array([each.run for each in arrivals], np.int32),
        np.array([each.frame.seq for each in arrivals], np.int64),
        np.array([each.frame.sampled_at for each in arrivals], np.int64),
        np.array([each.received_at for each in arrivals], np.int64),
        np.array([each.backfilled for each in arrivals], np.bool_),
    )


# -- From frames to arrays -----------------------------------------------------------------------


@dataclass(slots=True)
class _BlockParts:
    """The rows of one block of one schema, in the frames' own bytes."""

    block: BlockLayout
    gauges: list[bytes] = field(default_factory=list)
    counters: list[bytes] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    devices: list[npt.NDArray[np.int32]] = field(default_factory=list)
    places: list[npt.NDArray[np.intp]] = field(default_factory=list)


@dataclass(slots=True)
class _AssembledBlock:
    """The rows of one block, and where they go in the fleet."""

    rows: BlockRows
    places: npt.NDArray[np.intp] | None


def _assembled(arrivals: Sequence[ArrivedFrame], offset: int) -> list[_AssembledBlock]:
    """Return the rows of all blocks; `offset` is the position of the first frame in its batch.

    Either all arrivals have rows in the fleet or none has. Rows are in arrival order, so that
    when a node comes twice the later frame is the one that stays in the fleet.
    """
    groups: dict[tuple[int, int], _BlockParts] = {}
    for position, arrival in enumerate(arrivals, offset):
        layout = arrival.layout
        for packed in arrival.frame.blocks:
            number = packed.block
            block = layout.blocks[number]
            if block.target < 0 or not block.rows:
                continue
            group = groups.get((layout.schema_id, number))
            if group is None:
                group = groups[layout.schema_id, number] = _BlockParts(block)
            group.gauges.append(packed.gauges)
            group.counters.append(packed.counters)
            group.positions.append(position)
            group.counts.append(block.rows)
            group.devices.append(block.devices)
            if arrival.rows is not None:
                group.places.append(arrival.rows[block.source.table])
    return [_arrays(group) for group in groups.values()]


def _assembled_joined(joined: JoinedFrames, offset: int) -> list[_AssembledBlock]:
    """Return the rows of all blocks of joined frames, as `_assembled` does of single ones."""
    found = []
    positions = np.arange(offset, offset + joined.count, dtype=np.int32)
    for each in joined.template.blocks:
        block = joined.blocks[each.number]
        if block.target < 0 or not block.rows:
            continue
        source, rows = block.source, block.rows * joined.count
        gauges = _cut(joined.content, each.gauges).view("<f4").reshape(rows, len(source.gauges))
        counters = _cut(joined.content, each.counters).view("<f8").reshape(rows, len(source.counters))
        first = joined.numbers[:, TABLES[source.table]]
        devices, places = (numbers_of(first[:, at], block.rows) for at in (DEVICE, PLACE))
        rows_of = np.repeat(positions, block.rows)
        found.append(_block(block, rows_of, devices, gauges, counters, places.astype(np.intp)))
    return found


def _cut(content: Bytes, span: Span) -> Bytes:
    return np.ascontiguousarray(content[:, slice(*span)])


def _arrays(group: _BlockParts) -> _AssembledBlock:
    source, rows = group.block.source, sum(group.counts)
    gauges = np.frombuffer(b"".join(group.gauges), "<f4").reshape(rows, len(source.gauges))
    counters = np.frombuffer(b"".join(group.counters), "<f8").reshape(rows, len(source.counters))
    positions = np.repeat(np.array(group.positions, np.int32), group.counts)
    places = np.concatenate(group.places) if group.places else None
    return _block(group.block, positions, np.concatenate(group.devices), gauges, counters, places)


def _block(
    block: BlockLayout,
    positions: npt.NDArray[np.int32],
    devices: npt.NDArray[np.int32],
    gauges: npt.NDArray[np.float32],
    counters: npt.NDArray[np.float64],
    places: npt.NDArray[np.intp] | None,
) -> _AssembledBlock:
    if not block.same:
        gauges, counters = translate(block.source, SCHEMA.blocks[block.target], gauges, counters)
    return _AssembledBlock(BlockRows(block.target, positions, devices, gauges, counters), places)
