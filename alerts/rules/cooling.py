"""A condition on how much warmer a GPU runs than the others of its chassis at equal power, over months.

The others are the reference, so that a season, a warm aisle and a colder night, which all GPUs of a chassis share, change nothing.
What is left is the GPU's own: its place in the air stream and its sensor, which stay, and dust, paste, a fan or a
cold plate, which do not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from alerts.rules.condition import Evaluation, MetricCondition, evaluate_slowly, three
from alerts.rules.input import RuleInput
from alerts.rules.medians import medians
from alerts.rules.names import format_value
from alerts.rules.row_memory import Flags, Floats, Index, RowMemory
from telemetry.devices import Event
from telemetry.metric import Table
from telemetry.text import timestamp

_POWER, _POWER_LIMIT = "gpu_power_watts", "gpu_power_limit_watts"
_EVERY = 15.0
"""Seconds between two readings that count."""
_MEAN = 60.0
"""Time constant of the means of power and temperature: the draw of a training step goes up and down by the second."""
_SAMPLE = 59.0
"""Least seconds between two samples of a GPU beside its peers."""
_STEADY, _WARM = 0.06, 170.0
"""Change of the power, as a share, within which it is steady, and for how long it must have been so: a heat sink follows within a minute."""
_EDGES = np.array([0.4, 0.55, 0.7, 0.85])
"""Shares of the power limit at which the buckets of power begin: what a place in the air stream adds grows with the power."""
BUCKETS = len(_EDGES)
_HIGH = 0.925
_SCALES = (_HIGH / np.array([0.475, 0.625, 0.775, _HIGH])).astype(np.float32)
"""Factors from the excess in a bucket to that at high power: a drift is one of the thermal resistance."""
_ALIKE = 0.1
"""Share by which the power of a peer may differ from the median; the rest is computed."""
_AIR = 30.0
"""Assumed temperature of the air, °C: of the few watts between peers it gives the slope."""
_GROUP = 3
"""Least number of GPUs of a chassis, model and bucket that have a median."""
_LEAST = 5
"""Least samples of a day."""
_FAR = 40.0
"""Differences from the peers, °C, from which on a sensor is not believed."""
DAYS = 7
"""Days with work of which the present level is the median."""
_DAY = 86_400 * 1_000_000_000
_NONE = np.float32(np.nan)

KEPT: dict[str, tuple[str, float, int | None]] = {
    "usual": ("<f2", np.nan, BUCKETS),
    "learnt": ("|u1", 0, BUCKETS),
    "sums": ("<f4", 0.0, BUCKETS),
    "samples": ("<u2", 0, BUCKETS),
    "days": ("<f2", np.nan, DAYS),
    "level": ("<f4", np.nan, None),
    "shown": ("<f2", np.nan, None),
    "risen": ("<f4", np.nan, None),
    "place": ("<f4", np.nan, None),
}
"""Arrays that outlast a restart, with type, fill value and depth: 64 bytes a GPU, however long it is watched."""


class CoolingDrift(MetricCondition, frozen=True, kw_only=True, tag="cooling_drift"):
    """Bad when the excess of a GPU over its chassis' others at equal power has grown by `by` since its first weeks.

    Compared are GPUs of one model and node whose power has been steady for three minutes and is about the same. Of each
    day one mean is kept, in each of four buckets of power; the median of the last seven days with work is compared with the
    mean of the first `after`. A GPU that has become cooler, as by a new fan, begins from there; one that is in another slot or node, anew.
    Unknown in the first weeks, and without two others at work.
    """

    REMEMBERS: ClassVar[bool] = True

    by: float
    """°C at high power."""
    clear: float
    """°C below which it is good again."""
    after: int = 14
    """Days with work, in one bucket of power, that make what is usual."""
    cooler: float = 1.5
    """°C below what is usual at which that is usual from then on."""

    def metrics(self) -> Iterator[str]:
        """Yield the temperature, the power and its limit."""
        yield from (self.metric, _POWER, _POWER_LIMIT)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report levels the wrong way round, and more days than are counted."""
        if not 0 < self.clear < self.by:
            yield f"`clear` = {self.clear:g} is not between 0 and `by`", "Write a smaller one."
        if not 1 <= self.after <= 200:
            yield f"after = {self.after} is no number of days", "Write 14 for two weeks of work."

    def describe(self, value: float) -> str:
        """Return a difference of temperatures, to a tenth."""
        return format_value(self.metric, round(value, 1))

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Take a sample, close the day where it is over, and compare."""
        step = inputs.snapshot.now
        return evaluate_slowly(memory, step, lambda: self._evaluate(inputs, memory), _EVERY)

    def _evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        state = _State.of(memory)
        today = inputs.snapshot.wall // _DAY
        if memory.state.setdefault("day", today) != today:
            memory.state["day"] = today
            self._close(inputs, state, today)
        self._sample(inputs, memory, state)
        level = state.level
        bad = level >= np.where(inputs.firing, self.clear, self.by)
        unknown = np.isnan(level)
        usual = state.shown.astype(np.float32)
        found = three(bad & ~unknown, unknown)
        causes = {int(row): self._cause(inputs, state, int(row)) for row in np.flatnonzero(found == 1)}
        return Evaluation(found, usual + level, usual + self.by, causes=causes)

    def _cause(self, inputs: RuleInput, state: _State, row: int) -> Event:
        """Return what has changed, in words, as the cause of an alert."""
        usual, level = float(state.shown[row]), float(state.level[row])
        risen = float(state.risen[row])
        since = "" if np.isnan(risen) else f" since {timestamp(int(risen) * _DAY)[:10]}"
        text = f"runs {self._beside(usual + level)} its chassis' others at equal power{since}; it was {self._beside(usual)}"
        entry = inputs.snapshot.fleet.gpus[row]
        node, gpu = ("", "") if entry is None else (entry[0], entry[1].uuid)
        return Event(
            id=f"cooling-{gpu}-{inputs.snapshot.wall // _DAY}",
            node=node,
            at=inputs.snapshot.wall,
            kind="cooling_drift",
            gpu=gpu,
            message=text,
        )

    def _beside(self, degrees: float) -> str:
        return f"{self.describe(abs(degrees))} {'below' if degrees < 0 else 'above'}"

    def _sample(self, inputs: RuleInput, memory: RowMemory, state: _State) -> None:
        """Add the difference of each GPU from its peers to its day, once a minute, where its power is steady."""
        now = inputs.snapshot.now
        power, heat = inputs.values(_POWER), inputs.values(self.metric)
        passed = now - memory.state.get("read", -np.inf)
        memory.state["read"] = now
        share = np.float32(min(1.0, passed / _MEAN))
        mean, warm = (memory.array(name, np.float32, np.nan) for name in ("power", "heat"))
        for kept, values in ((mean, power), (warm, heat)):
            step = np.where(np.isnan(kept), values, kept + share * (values - kept))
            kept[:] = step  # a gap makes it unknown, and it begins anew behind it
        anchor = memory.array("anchor", np.float32, np.nan)
        moved = ~(np.abs(mean - anchor) <= _STEADY * anchor)
        held = memory.array("held", np.float32, 0.0)
        held += np.float32(min(passed, 3600.0))
        anchor[moved], held[moved] = mean[moved], 0.0
        if now - memory.state.get("sampled", -np.inf) < _SAMPLE:
            return
        memory.state["sampled"] = now
        limit = inputs.values(_POWER_LIMIT)
        of_limit = mean / np.where(limit > 0, limit, np.nan)
        bucket = np.searchsorted(_EDGES, of_limit, "right") - 1
        there = (held >= _WARM) & (bucket >= 0) & ~np.isnan(of_limit + warm)
        usual = np.take_along_axis(state.usual, np.maximum(bucket, 0)[None], axis=0)[0]
        rows, excess = _beside_peers(inputs, mean, warm, bucket, there, usual.astype(np.float32))
        state.sums[bucket[rows], rows] += excess
        state.samples[bucket[rows], rows] += np.uint16(1)

    def _close(self, inputs: RuleInput, state: _State, today: int) -> None:
        """Condense the day that is over to one number of each GPU and bucket, and compute its level."""
        state.begin_anew(_moved(state.place, _places(inputs)))
        known = state.samples >= _LEAST
        with np.errstate(invalid="ignore", divide="ignore"):
            found = np.where(known, state.sums / state.samples, _NONE)
        usual = state.usual.astype(np.float32)
        settled = state.learnt >= self.after
        excess = (found - usual) * _SCALES[:, None]
        weights = np.where(known & settled, state.samples, 0).astype(np.float32)
        total = weights.sum(axis=0)
        fresh = total > 0
        if fresh.any():
            of_day = np.nansum(np.where(weights > 0, excess * weights, 0.0), axis=0)[fresh]
            state.days[:-1, fresh] = state.days[1:, fresh]
            state.days[-1, fresh] = of_day / total[fresh]
            state.level[fresh] = _median(state.days[:, fresh])
            most = weights[:, fresh].argmax(axis=0)
            state.shown[fresh] = usual[most, np.flatnonzero(fresh)]
        whole = ~np.isnan(state.days[0])
        cooler = whole & (state.level <= -self.cooler)
        if cooler.any():  # what is usual from now on
            state.usual[:, cooler] += state.level[cooler] / _SCALES[:, None]
            state.days[:, cooler] -= state.level[cooler].astype(np.float16)
            state.shown[cooler] += state.level[cooler].astype(np.float16)
            state.level[cooler] = 0.0
        learning = known & ~settled
        already = np.nan_to_num(state.level) / _SCALES[:, None]  # of a bucket that begins late
        count = state.learnt + 1.0
        before = np.where(np.isnan(usual), found - already, usual)
        learnt = before + (found - already - before) / count
        state.usual[learning] = learnt[learning]
        state.learnt[learning] += np.uint8(1)
        high = state.level >= self.by / 2
        state.risen[:] = np.where(high, np.where(np.isnan(state.risen), today, state.risen), np.nan)
        state.sums[:], state.samples[:] = 0.0, 0


@dataclass(frozen=True, slots=True)
class _State:
    """State of each GPU that outlasts a restart; see `KEPT`."""

    usual: npt.NDArray[np.float16]
    """°C above its peers in the first weeks, by bucket of power."""
    learnt: npt.NDArray[np.uint8]
    """Days of which that is the mean, by bucket."""
    sums: Floats
    """Sums of the samples of today, °C, by bucket."""
    samples: npt.NDArray[np.uint16]
    days: npt.NDArray[np.float16]
    """Excess over what is usual, °C at high power, of the last days with work, the newest last."""
    level: Floats
    """Their median."""
    shown: npt.NDArray[np.float16]
    """Usual excess, °C, in the bucket in which it worked most."""
    risen: Floats
    """Day since 1970 on which its level reached half of what is bad."""
    place: Floats
    """Checksum of its slot."""

    @classmethod
    def of(cls, memory: RowMemory) -> _State:
        """Return the arrays of a memory."""
        return cls(
            **{name: memory.array(name, np.dtype(kind), fill, depth) for name, (kind, fill, depth) in KEPT.items()}
        )

    def begin_anew(self, rows: Flags) -> None:
        """Forget some rows, but for their place."""
        if rows.any():
            for name, (_, fill, _) in KEPT.items():
                if name != "place":
                    getattr(self, name)[..., rows] = fill


def _beside_peers(
    inputs: RuleInput, power: Floats, heat: Floats, bucket: Index, there: Flags, usual: Floats
) -> tuple[Index, Floats]:
    """Return the rows that have peers, and by how much each is warmer than they are, at their power, °C.

    Peers count with what they are usually warmer themselves: else four GPUs in the rear would be another reference than
    all eight."""
    models, count = inputs.snapshot.peer_groups("model")
    nodes = inputs.snapshot.owner[Table.GPU]
    rows = np.flatnonzero(there & (models > 0) & (nodes >= 0))
    keys = (nodes[rows] * count + models[rows]) * BUCKETS + bucket[rows]
    _, groups = np.unique(keys, return_inverse=True)
    size = int(groups.max(initial=-1)) + 1
    usual_power = medians(power[rows], groups, size, np.ones(len(rows), np.bool_))[0][groups]
    at_power = _AIR + (heat[rows] - _AIR) * usual_power / power[rows]
    alike = np.abs(power[rows] - usual_power) <= _ALIKE * usual_power
    own = usual[rows]
    plain, members = medians(at_power, groups, size, alike)
    median, known = medians(at_power - own, groups, size, alike & ~np.isnan(own))
    reference = np.where(known >= _GROUP, median, plain)
    excess = at_power - reference[groups]
    fine = alike & (members[groups] >= _GROUP) & (np.abs(excess) < _FAR)
    return rows[fine], excess[fine].astype(np.float32)


def _median(days: npt.NDArray[np.float16]) -> Floats:
    """Return the median of each column, NaN of one with less than half of the days."""
    known = np.count_nonzero(~np.isnan(days), axis=0)
    ranked = np.sort(days.astype(np.float32), axis=0)  # NaN last
    columns = np.arange(days.shape[1])
    low, high = np.maximum(known - 1, 0) // 2, known // 2
    middle = (ranked[low, columns] + ranked[np.minimum(high, len(days) - 1), columns]) / 2
    return np.where(known > len(days) // 2, middle, _NONE).astype(np.float32)


def _places(inputs: RuleInput) -> Floats:
    """Return a checksum of the slot of each GPU, NaN where none is known."""
    found = np.full(inputs.size, np.nan, np.float32)
    for node in inputs.snapshot.fleet.nodes.values():
        words = [gpu.slot or gpu.pci or "" for gpu in node.inventory.gpus]
        first = node.rows[Table.GPU].start
        for row, word in enumerate(words, first):
            if word:
                found[row] = int.from_bytes(
                    hashlib.blake2s(word.encode(), digest_size=3).digest()
                )  # exact as a float32
    return found


def _moved(before: Floats, places: Floats) -> Flags:
    """Return the rows whose board is in another slot than before, and note where it is."""
    known = ~np.isnan(places)
    moved: Flags = known & ~np.isnan(before) & (places != before)
    before[known] = places[known]
    return moved
