"""Conditions on GPUs by the job that has them: on what its GPUs do together, and on processes of nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import numpy as np

from alerts.rules.condition import (
    BAD,
    GOOD,
    UNKNOWN,
    ConditionKind,
    Evaluation,
    evaluate_slowly,
    three,
)
from alerts.rules.counters import growth_since
from alerts.rules.gpu_jobs import GpuHolding
from alerts.rules.input import RuleInput
from alerts.rules.names import WORDS, format_value
from alerts.rules.peers import medians
from alerts.rules.row_memory import Flags, Floats, Index, RowMemory
from telemetry.devices import Event
from telemetry.metric import Kind

_FLOOR = 0.005
"""Share of the median that is added to the spread: GPUs that all read the same have none."""
_SPREAD = 1.4826
"""Standard deviations in a median absolute deviation of normal values."""
_CROWD = 0.25
"""Share of a job's GPUs from which on those that differ are a group of their own, not outliers: stages of
a pipeline and layers of experts differ by design."""
_PEERS = 4
"""Least number of other GPUs of a job that are under load: one of four is a quarter."""
_BUSY = 0.8
"""Mean utilisation of a window from which on a GPU is under load; it saves checkpoints meanwhile."""
_BASELINE = 10
"""Windows that make the first baseline of a GPU in its job."""
_SLOW_CHANGE = 1 / 120
"""Weight of a window in the baseline afterwards: an hour of windows of 30 s."""
_USUAL_SECONDS = 3600.0
"""Time over which the usual rate of a counter is a mean."""


def job_rows(inputs: RuleInput, *, allocated: bool = True, batch: bool = True) -> Index:
    """Return the number of the job of each row that is judged by its job; 0 for all others."""
    held = inputs.snapshot.gpu_jobs
    found = held.alone
    if allocated:
        found = np.where(held.allocated, found, 0)
    if batch:
        found = np.where(held.batch, found, 0)
    return found


def changed_hands(numbers: Index, memory: RowMemory) -> Flags:
    """Return the rows whose job is another one than at the evaluation before; none at the first one."""
    before = memory.array("job", np.intp, -1)
    changed: Flags = (before != numbers) & (before >= 0)
    before[:] = numbers
    return changed


class ProcessOutside(ConditionKind, frozen=True, tag="process_outside"):
    """Bad on a GPU with a process that belongs to no allocation of it, on a node whose scheduler can be
    asked: one that outlived its job, or one that was started beside the scheduler."""

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Return what the lists of the nodes say."""
        held = inputs.snapshot.gpu_jobs
        bad = held.outside == 1
        causes: dict[int, Event] = {}
        for row, event in held.outsiders.items():
            if memory.notes.get(row) != event.id or not inputs.active[row]:
                memory.notes[row] = event.id
                causes[row] = event
        return Evaluation(three(bad, held.outside == -1), causes=causes)


class HeldByJob(ConditionKind, frozen=True, tag="held_by_job"):
    """Bad on a GPU that a job has, or several that share it; unknown where the node does not say."""

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Return what the lists of the nodes say."""
        holding = inputs.snapshot.gpu_jobs.holding
        return Evaluation(three(holding >= GpuHolding.ONE_JOB, holding == GpuHolding.UNKNOWN))


class SinceBegin(ConditionKind, frozen=True, tag="since_begin"):
    """Bad on a GPU on which its job has once been above a level since it began; unknown before, for what was
    before the aggregator's start is not known."""

    REMEMBERS: ClassVar[bool] = True

    metric: str
    level: float | str
    """A number, or another metric of the GPU, of which it is `share`."""
    share: float = 1.0

    def metrics(self) -> Iterator[str]:
        """Yield the metric, and its level when that is a metric too."""
        yield self.metric
        if isinstance(self.level, str):
            yield self.level

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Remember the rows that have been above."""
        numbers = inputs.snapshot.gpu_jobs.alone
        above = memory.array("above", np.bool_, 0)
        above[changed_hands(numbers, memory)] = False
        level = inputs.values(self.level) if isinstance(self.level, str) else self.level
        above |= (inputs.values(self.metric) >= self.share * level) & (numbers > 0)
        return Evaluation(three(above.copy(), ~above))


class Quiet(ConditionKind, frozen=True, tag="quiet"):
    """Bad on a GPU whose counters grow by no more than a share of what is usual in its job. A GPU without these
    counters contradicts nothing: it is bad."""

    REMEMBERS: ClassVar[bool] = True

    of: tuple[str, ...]
    """Counters, whose growth is added."""
    share: float = 0.05
    window: float = 60.0
    """Seconds over which the rate is a mean."""

    def metrics(self) -> Iterator[str]:
        """Yield the counters."""
        yield from self.of

    def counters(self) -> Iterator[str]:
        """Yield the counters."""
        yield from self.of

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report no counters, and no share."""
        if not self.of:
            yield "no counter can be quiet", "Name counters in `of`."
        if not 0 < self.share < 1:
            yield f"share = {self.share:g} is no share of the usual", "Write a number from 0 to 1."

    def abstains(self, inputs: RuleInput) -> Flags:
        """Return no rows."""
        return np.zeros(inputs.size, np.bool_)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare the rate of the last window with the usual one."""
        now = inputs.snapshot.now
        return evaluate_slowly(memory, now, lambda: self._compare(inputs, memory), self.window / 2)

    def _compare(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        now = inputs.snapshot.now
        growth, seconds = np.zeros(inputs.size), np.full(inputs.size, np.inf)
        unsupported, read = np.ones(inputs.size, np.bool_), np.zeros(inputs.size, np.bool_)
        for number, name in enumerate(self.of):
            grown, known, passed, _ = growth_since(inputs.values(name), memory.part(number), now)
            absent = inputs.unsupported(name)
            growth += np.where(known, grown, 0.0)
            seconds = np.where(known, np.minimum(seconds, passed), seconds)
            read |= known
            unsupported &= absent
        rate = memory.array("rate", np.float32, np.nan)
        usual = memory.array("usual", np.float32, np.nan)
        anew = changed_hands(inputs.snapshot.gpu_jobs.alone, memory)
        rate[anew] = usual[anew] = np.nan
        read &= (seconds > 0) & np.isfinite(seconds)
        with np.errstate(invalid="ignore", divide="ignore"):
            present = growth / seconds
            weight = np.minimum(1.0, seconds / self.window)
            slow = np.minimum(1.0, seconds / _USUAL_SECONDS)
            rate[read] = np.where(
                np.isnan(rate), present, rate + weight * (present - rate)
            )[read]  # fmt: skip
            quiet = rate <= self.share * usual
            usual[read] = np.where(
                np.isnan(usual), present, usual + slow * (present - usual)
            )[read]  # fmt: skip
        bad = (quiet & (usual > 0)) | unsupported
        return Evaluation(three(bad, ~unsupported & (np.isnan(rate) | ~(usual > 0))), rate)


class SlowInJob(ConditionKind, frozen=True, tag="slow_in_job"):
    """Bad on a GPU that has become slower than the other GPUs of its job, steadily.

    The mean of a metric over each window is taken as a share of what is usual for the GPU among the GPUs of
    its job and model, and that share compared with theirs. A window is out when the GPU is `deviations` robust
    standard deviations and a share off the median. Bad when `share` of the last `windows` were out; good when
    at most half as many were. A job's first ten windows make the first baseline, which follows over an
    hour. Counters are compared by their growth a second, without a baseline. A GPU that is not under load,
    that has fewer than four peers, or that a quarter of them are like has no verdict.

    Independent normal noise alone exceeds four deviations in 3 of 100,000 windows, and six of eight in none;
    `bench.stragglers` counts the false alarms of jobs that change.
    """

    REMEMBERS: ClassVar[bool] = True

    metric: str
    below: float | None = None
    """0.95: at least 5 % under the median."""
    above: float | None = None
    least: float = 0.0
    """With `above`, the least difference from the median."""
    deviations: float = 4.0
    window: float = 30.0
    windows: int = 8
    share: float = 0.75

    def metrics(self) -> Iterator[str]:
        """Yield the metric, and the utilisation."""
        yield self.metric
        yield "gpu_utilization_ratio"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report shares that compare nothing, or the wrong way round."""
        if (self.below is None) == (self.above is None):
            yield (
                "it needs one of `below` and `above`",
                "Write below = 0.95 for 5 % under the median.",
            )
        if self.below is not None and not 0 < self.below < 1:
            yield f"below = {self.below:g} is no share of the median", "Write a number from 0 to 1."
        if self.above is not None and self.above <= 1:
            yield f"above = {self.above:g} is no multiple of the median", "Write a number above 1."
        if not 1 <= self.windows <= 30:
            yield f"{self.windows} windows can't be remembered", "Write 1 to 30."

    def describe(self, value: float) -> str:
        """Return the mean of a window."""
        if WORDS[self.metric].kind is Kind.COUNTER:
            return f"{value:.3g} a second"
        return format_value(self.metric, value)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Add the present reading to the window, and compare it when it is full."""
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: self._step(inputs, memory))

    def _step(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        now = inputs.snapshot.now
        numbers = job_rows(inputs)
        verdicts = memory.array("judged", np.int8, UNKNOWN)
        values = memory.array("mean", np.float32, np.nan)
        limits = memory.array("limit", np.float32, np.nan)
        anew = changed_hands(numbers, memory)
        total = memory.array("total", np.float64, 0.0)
        load = memory.array("load", np.float32, 0.0)
        count = memory.array("count", np.int16, 0)
        if anew.any():
            self._forget(memory, anew)
            verdicts[anew] = GOOD  # the job that was slow is gone
        reading, used = inputs.values(self.metric), inputs.values("gpu_utilization_ratio")
        if WORDS[self.metric].kind is Kind.COUNTER:
            growth, read, seconds, _ = growth_since(reading, memory.part(0), now)
            reading = np.where(read & (seconds > 0), growth / np.maximum(seconds, 1e-3), np.nan)
        known = ~np.isnan(reading) & ~np.isnan(used) & (numbers > 0)
        total[known] += reading[known]
        load[known] += used[known]
        count[known] += 1
        began = memory.state.setdefault("window_began", now)
        if now - began >= self.window * 0.99:
            memory.state["window_began"] = now
            self._evaluate_window(inputs, memory, numbers)
            total[:], load[:], count[:] = 0.0, 0.0, 0
        none, holding = numbers == 0, inputs.snapshot.gpu_jobs.holding
        verdicts[none] = UNKNOWN
        verdicts[none & ((holding == GpuHolding.FREE) | (holding == GpuHolding.ONE_JOB))] = GOOD
        return Evaluation(verdicts.copy(), values.copy(), limits.copy())

    def _forget(self, memory: RowMemory, rows: Flags) -> None:
        for name in ("total", "load", "count"):
            memory.array(name, np.float64, 0.0)[rows] = 0
        memory.array("out", np.uint32, 0)[rows] = 0
        memory.array("known", np.uint32, 0)[rows] = 0
        memory.array("seen", np.int16, 0)[rows] = 0
        memory.array("place", np.float32, np.nan)[rows] = np.nan

    def _evaluate_window(self, inputs: RuleInput, memory: RowMemory, numbers: Index) -> None:
        """Compare the GPUs over the window that is full, and evaluate the last ones."""
        count = memory.array("count", np.int16, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = memory.array("total", np.float64, 0.0) / count
            used = memory.array("load", np.float32, 0.0) / count
        groups, size = inputs.snapshot.peer_groups("job")
        there = (count > 0) & (numbers > 0) & (used >= _BUSY)
        place = memory.array("place", np.float32, np.nan)
        seen = memory.array("seen", np.int16, 0)
        known = (self.below is not None) & ~np.isnan(place) & (place > 0)
        usual = np.where(known, place, 1.0)
        own = mean / usual  # what differs by design, by silicon or by the slot is left out
        middle, spread, members = robust(own, groups, size, there)
        compared = there & (members[groups] > _PEERS)
        median = middle[groups]
        width = self.deviations * (spread[groups] * _SPREAD + _FLOOR * np.abs(median))
        if self.below is not None:
            limit = np.minimum(median * self.below, median - width)
            out = compared & (own <= limit)
        else:
            limit = np.maximum(median * (self.above or 1.0), median + np.maximum(width, self.least))
            out = compared & (own >= limit)
        crowd = np.bincount(groups[out], minlength=size) >= _CROWD * np.maximum(members, 1)
        unsure = crowd[groups] & compared
        if self.below is not None:
            raw, _ = medians(mean, groups, size, there)
            ratio = mean / np.where(raw[groups] > 0, raw[groups], np.nan)
            ripe = seen >= _BASELINE
            out &= ripe
            steady = compared & ~out & ~np.isnan(ratio)
            weight = np.where(ripe, _SLOW_CHANGE, 1.0 / (seen + 1.0))
            moved = np.where(np.isnan(place), ratio, place + weight * (ratio - place))
            place[steady] = moved[steady]
            seen[steady] = np.minimum(seen[steady] + 1, 30_000)
        self._verdict(memory, out & ~unsure, compared & ~unsure)
        memory.array("mean", np.float32, np.nan)[:] = mean
        memory.array("limit", np.float32, np.nan)[:] = limit * usual

    def _verdict(self, memory: RowMemory, out: Flags, known: Flags) -> None:
        mask = np.uint32((1 << self.windows) - 1)
        were_out = memory.array("out", np.uint32, 0)
        were_known = memory.array("known", np.uint32, 0)
        were_out[:] = ((were_out << np.uint32(1)) | out) & mask
        were_known[:] = ((were_known << np.uint32(1)) | known) & mask
        number, whole = np.bitwise_count(were_out), np.bitwise_count(were_known)
        need = np.ceil(self.share * self.windows)
        verdicts = memory.array("judged", np.int8, UNKNOWN)
        verdicts[:] = UNKNOWN
        verdicts[(whole >= need) & (number <= need / 2)] = GOOD
        verdicts[number >= need] = BAD


def robust(values: Floats, groups: Index, count: int, there: Flags) -> tuple[Floats, Floats, Index]:
    """Return median, median absolute deviation and size of each group."""
    middle, size = medians(values, groups, count, there)
    with np.errstate(invalid="ignore"):
        spread, _ = medians(np.abs(values - middle[groups]), groups, count, there)
    return middle, spread, size


class JobShare(ConditionKind, frozen=True):
    """Base of the condition on how many GPUs of a job a condition is bad on."""

    share: float = 1.0
    """Share of the job's GPUs from which on the job is bad."""
    least: int = 1
    """Least number of GPUs of a job that is judged."""
    after: float = 0.0
    """Seconds since its begin before which a job is not judged: it starts, compiles and loads data."""
    each: bool = False
    """Whether each GPU of a bad job is bad; else one, so that a job has one alert."""
    anybody: bool = False
    """Whether services, notebooks and shells count too, and GPUs that no scheduler gave away."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a share that is none."""
        if not 0 < self.share <= 1:
            yield f"share = {self.share:g} is no share of a job's GPUs", "Write a number up to 1."
        if self.least < 1:
            yield f"a job of {self.least} GPUs is none", "Write 1 or more."

    def by_job(self, inner: Evaluation, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Return the verdict on each job at one of its GPUs, or at each."""
        held = inputs.snapshot.gpu_jobs
        numbers = job_rows(inputs, allocated=not self.anybody, batch=not self.anybody)
        anew = changed_hands(numbers, memory)
        bad_rows, unknown_rows = inner.verdicts == BAD, inner.verdicts == UNKNOWN
        size = np.bincount(numbers, minlength=held.count)
        asked = np.zeros(held.count, np.intp)
        asked[numbers] = held.asked
        all_of = np.maximum(size, asked)  # GPUs of nodes that say nothing are unknown ones
        bad = np.bincount(numbers[bad_rows], minlength=held.count)
        unknown = np.bincount(numbers[unknown_rows], minlength=held.count) + all_of - size
        need = np.ceil(self.share * all_of - 1e-9)
        is_bad = (bad >= need) & (size >= self.least)
        is_unknown = ~is_bad & ((bad + unknown >= need) | (all_of < self.least))
        if self.after:
            age = inputs.snapshot.wall / 1e9 - held.begin
            young = ~(age >= self.after) & (numbers > 0)
            is_unknown[numbers[young]] = True
            is_bad[numbers[young]] = False
        is_bad[0] = is_unknown[0] = False
        shared = (held.holding == GpuHolding.SHARED) | (held.holding == GpuHolding.UNKNOWN)
        verdict_bad, verdict_unknown = is_bad[numbers], is_unknown[numbers] | shared
        verdict_unknown |= (numbers == 0) & (held.alone > 0)
        if not self.each and verdict_bad.any():
            lead = self._leads(inputs, numbers, verdict_bad, bad_rows, held.count)
            verdict_unknown |= verdict_bad & ~lead
            verdict_bad &= lead
        verdict_unknown[anew] = verdict_bad[anew] = (
            False  # another job: the one that was bad is gone
        )
        return Evaluation(three(verdict_bad, verdict_unknown))

    def _leads(
        self, inputs: RuleInput, numbers: Index, bad: Flags, bad_rows: Flags, count: int
    ) -> Flags:
        """Return for each bad job the row that stands for it: the one that has the alert, else the first."""
        rows = np.flatnonzero(bad)
        rank = np.where(inputs.active[rows], 0, np.where(bad_rows[rows], 1, 2))
        order = rows[np.lexsort((rows, rank))[::-1]]  # the best last, so that it remains
        first = np.zeros(count, np.intp)
        first[numbers[order]] = order
        lead = np.zeros(inputs.size, np.bool_)
        lead[first[np.unique(numbers[rows])]] = True
        return lead
