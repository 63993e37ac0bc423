"""Conditions on GPUs by the job that has them: on what its GPUs do together, and on processes of nobody."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple

import numpy as np

from alerts.rules.condition import BAD, GOOD, UNKNOWN, ConditionKind, Evaluation, evaluate_slowly, three
from alerts.rules.counters import growth_since
from alerts.rules.gpu_jobs import GpuHolding
from alerts.rules.input import RuleInput
from alerts.rules.medians import Others, medians, robust
from alerts.rules.names import WORDS, format_value
from alerts.rules.row_memory import Flags, Floats, Index, RowMemory
from api.power import SnapshotKind
from present.circuit.outlook import CONTINUOUS
from present.units import exact_watts, percent
from telemetry.devices import Event
from telemetry.metric import Kind, Table

if TYPE_CHECKING:
    from alerts.rules.peers_elsewhere import PeersElsewhere

_FLOOR = 0.005
"""Share of the median that is added to the spread: GPUs that all read the same have none."""
_SPREAD = 1.4826
"""Standard deviations in a median absolute deviation of normal values."""
_CROWD = 0.25
"""Share of a job's GPUs from which on those that differ are a group of their own, not outliers: stages of
a pipeline and layers of experts differ by design."""
_PEERS = 4
"""Least number of other GPUs of a job that are under load: one of four is a quarter."""
_BLIND = 0.1
"""Share of the GPUs on a circuit that may be unread, or in unknown hands, while the others are judged."""
_BUSY = 0.8
"""Mean utilisation of a window from which on a GPU is under load; it saves checkpoints meanwhile."""
_BASELINE = 10
"""Windows that make the first baseline of a GPU in its job."""
_SLOW_CHANGE = 1 / 120
"""Weight of a window in the baseline afterwards: an hour of windows of 30 s."""
_SUMS = {"total": np.float64, "load": np.float32, "count": np.int16}
"""Sums of the readings, of the utilisation and of how many they are, in the window of `SlowInJob` that is not full yet."""
_USUAL_SECONDS = 3600.0
"""Time over which the usual rate of a counter is a mean."""
_RISE_SECONDS, _FALL_SECONDS = 300.0, 8 * 3600.0
"""Time in which the working level of a job follows a rise and a fall: standing still for an hour is not its work."""


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
    asked: one that outlived its job, or one that was started beside the scheduler. A diagnosis between two jobs has
    a quarter of an hour."""

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Return what the lists of the nodes say."""
        held = inputs.snapshot.gpu_jobs
        bad = (held.outside == 1) & (inputs.snapshot.wall / 1e9 >= held.outside_from)
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


class LoadsCircuit(ConditionKind, frozen=True, tag="loads_circuit"):
    """Bad on a GPU of the job that draws most on a circuit near its continuous limit, where that is a share of what all
    GPUs there draw. Unknown where the circuit's load is not known, or more than a tenth of the GPUs is unread or in
    unknown hands."""

    REMEMBERS: ClassVar[bool] = True

    level: float = 0.9
    """Share of the continuous limit from which on a circuit is near it."""
    clear: float = 0.85
    """Share below which it no longer is."""
    share: float = 0.5
    """Share of what the GPUs on the circuit draw."""

    def metrics(self) -> Iterator[str]:
        """Yield the power of GPUs."""
        yield "gpu_power_watts"

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a level below the one that clears, and a share that is none."""
        if not 0 < self.clear <= self.level:
            yield (f"clear = {self.clear:g} is not below level = {self.level:g}", "Write a lower one.")
        if not 0 < self.share <= 1:
            yield f"share = {self.share:g} is no share of the power", "Write a number up to 1."

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Look at the GPUs on circuits that are near their limits."""
        bad, unknown = np.zeros(inputs.size, np.bool_), np.zeros(inputs.size, np.bool_)
        causes: dict[int, Event] = {}
        held = inputs.snapshot.gpu_jobs
        anew = changed_hands(held.alone, memory)
        circuits = inputs.snapshot.snapshots.get(SnapshotKind.CIRCUIT)
        if circuits is None:
            return Evaluation(three(bad, ~unknown))
        ratios = circuits.column("circuit_continuous_ratio")
        for number in np.flatnonzero(~(ratios < self.clear)).tolist():
            rows = _gpus_on(inputs, circuits.facts[number].get("nodes", ""))
            ratio = float(ratios[number])
            if ratio < self.level and not inputs.active[rows].any():
                continue
            drawn = inputs.values("gpu_power_watts")[rows]
            blind = np.isnan(drawn) | (held.holding[rows] == GpuHolding.UNKNOWN)
            if not len(rows) or np.isnan(ratio) or blind.mean() > _BLIND:
                unknown[rows] = True
                continue
            jobs = held.alone[rows]
            watts = np.bincount(jobs, weights=np.nan_to_num(drawn), minlength=held.count)
            total = float(watts.sum())
            watts[0] = 0.0
            most = int(watts.argmax())
            if not watts[most] > 0 or watts[most] < self.share * total:
                continue
            its = rows[jobs == most]
            lead = int(its[np.argmax(inputs.active[its])])  # the one that has the alert, else the first
            if anew[lead]:  # another job: the one that was bad is gone
                continue
            bad[lead] = True
            name = circuits.names[number]
            line = (
                f"{name} carries {percent(ratio)} of its {CONTINUOUS}, and of {exact_watts(total)} that the GPUs on it draw "
                f"{exact_watts(watts[most])} are those of {len(its)} GPUs of this job"
            )
            if memory.notes.get(lead) != name or not inputs.active[lead]:
                memory.notes[lead] = name
                causes[lead] = _of_circuit(inputs, lead, name, line)
        return Evaluation(three(bad, unknown), causes=causes)


def _gpus_on(inputs: RuleInput, nodes: str) -> Index:
    """Return the GPU rows of some nodes."""
    known = (inputs.snapshot.fleet.nodes.get(name) for name in nodes.split(", "))
    spans = [node.rows[Table.GPU] for node in known if node is not None]
    return np.concatenate([np.arange(0), *(np.arange(span.start, span.stop) for span in spans)])


def _of_circuit(inputs: RuleInput, row: int, circuit: str, line: str) -> Event:
    """Return the load of a circuit as the cause of an alert on a GPU."""
    entry = inputs.snapshot.fleet.gpus[row]
    node, gpu = ("", "") if entry is None else (entry[0], entry[1].uuid)
    return Event(
        id=f"circuit-{circuit}-{inputs.snapshot.wall}",
        node=node,
        at=inputs.snapshot.wall,
        kind="circuit_near",
        gpu=gpu,
        message=line,
        data={"circuit": circuit},
    )


class BelowOwn(ConditionKind, frozen=True, tag="below_own"):
    """Bad on a GPU whose metric is at most a share of its own working level in its job: what the job reaches again and
    again, whatever the card could. It follows a rise in minutes and a fall over hours. Unknown until the job was
    seen; what was before the aggregator's start is not known."""

    REMEMBERS: ClassVar[bool] = True

    metric: str
    share: float = 0.8
    window: float = 60.0
    """Seconds over which the value is a mean."""

    def metrics(self) -> Iterator[str]:
        """Yield the metric."""
        yield self.metric

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a share that is none."""
        if not 0 < self.share < 1:
            yield f"share = {self.share:g} is no share of a level", "Write a number from 0 to 1."

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare the mean of the last window with the level, and let the level follow."""
        now, numbers = inputs.snapshot.now, inputs.snapshot.gpu_jobs.alone
        seconds = now - memory.state.get("at", now)
        memory.state["at"] = now
        mean = memory.array("mean", np.float32, np.nan)
        level = memory.array("level", np.float32, np.nan)
        anew = changed_hands(numbers, memory)
        mean[anew] = level[anew] = np.nan
        values = inputs.values(self.metric)
        read = ~np.isnan(values) & (numbers > 0)
        mean[read] = np.where(np.isnan(mean), values, mean + min(1.0, seconds / self.window) * (values - mean))[read]
        weight = np.where(mean > level, min(1.0, seconds / _RISE_SECONDS), min(1.0, seconds / _FALL_SECONDS))
        level[read] = np.where(np.isnan(level), mean, level + weight * (mean - level))[read]
        unknown = ~read | np.isnan(level)
        limits = self.share * level
        return Evaluation(three(~unknown & (mean <= limits), unknown), mean.copy(), limits)


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
            rate[read] = np.where(np.isnan(rate), present, rate + weight * (present - rate))[read]
            quiet = rate <= self.share * usual
            usual[read] = np.where(np.isnan(usual), present, usual + slow * (present - usual))[read]
        bad = (quiet & (usual > 0)) | unsupported
        return Evaluation(three(bad, ~unsupported & (np.isnan(rate) | ~(usual > 0))), rate)


class _Window(NamedTuple):
    """Values of a window that is full, as they are compared."""

    mean: Floats
    own: Floats
    """The mean as a share of what is usual for the row: what differs by design, by silicon or by the slot is left out."""
    there: Flags
    others: Others | None = None
    """`own` of GPUs that other aggregators have."""
    others_mean: Others | None = None


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
            yield ("it needs one of `below` and `above`", "Write below = 0.95 for 5 % under the median.")
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
        """Add the present reading to the window, and compare it when it is full.

        Each reading counts: a few of them, in time with the steps of a job, would show the GPUs of a node that is
        read a moment later at another part of each step.
        """
        if WORDS[self.metric].kind is not Kind.COUNTER and inputs.snapshot.gpu_jobs.count > 1:
            self._add(memory, inputs.values(self.metric), inputs.values("gpu_utilization_ratio"))
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: self._step(inputs, memory))

    @staticmethod
    def _add(memory: RowMemory, reading: Floats, used: Floats) -> None:
        known = ~np.isnan(reading) & ~np.isnan(used)
        for name, numbers in (("total", reading), ("load", used), ("count", known)):
            kept = memory.array(name, _SUMS[name], 0)
            np.add(kept, numbers, out=kept, where=known)

    @staticmethod
    def _empty(memory: RowMemory, rows: Flags | slice) -> None:
        for name, dtype in _SUMS.items():
            memory.array(name, dtype, 0)[rows] = 0

    def _step(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        now = inputs.snapshot.now
        numbers = job_rows(inputs)
        verdicts = memory.array("judged", np.int8, UNKNOWN)
        values = memory.array("mean", np.float32, np.nan)
        limits = memory.array("limit", np.float32, np.nan)
        anew = changed_hands(numbers, memory)
        if anew.any():
            self._forget(memory, anew)
            verdicts[anew] = GOOD  # the job that was slow is gone
        if WORDS[self.metric].kind is Kind.COUNTER:
            reading = inputs.values(self.metric)
            growth, read, seconds, _ = growth_since(reading, memory.part(0), now)
            rate = np.where(read & (seconds > 0), growth / np.maximum(seconds, 1e-3), np.nan)
            self._add(memory, rate, inputs.values("gpu_utilization_ratio"))
        if self._is_over(inputs, memory):
            self._evaluate_window(inputs, memory, numbers)
            self._empty(memory, slice(None))
        none, holding = numbers == 0, inputs.snapshot.gpu_jobs.holding
        verdicts[none] = UNKNOWN
        verdicts[none & ((holding == GpuHolding.FREE) | (holding == GpuHolding.ONE_JOB))] = GOOD
        return Evaluation(verdicts.copy(), values.copy(), limits.copy())

    def _is_over(self, inputs: RuleInput, memory: RowMemory) -> bool:
        """Return whether a window is full. Windows of several aggregators begin and end together."""
        snapshot, state = inputs.snapshot, memory.state
        if snapshot.elsewhere is None:
            over: bool = snapshot.now - state.setdefault("window_began", snapshot.now) >= self.window * 0.99
            if over:
                state["window_began"] = snapshot.now
            return over
        number = snapshot.elsewhere.moment(snapshot.wall, self.window)
        before = state.setdefault("window", number)
        state["window"] = number
        return bool(number != before)

    def _forget(self, memory: RowMemory, rows: Flags) -> None:
        self._empty(memory, rows)
        memory.array("out", np.uint32, 0)[rows] = 0
        memory.array("known", np.uint32, 0)[rows] = 0
        memory.array("seen", np.int16, 0)[rows] = 0
        memory.array("place", np.float32, np.nan)[rows] = np.nan

    def _usual(self, memory: RowMemory) -> Floats:
        """Return what is usual for each row among the GPUs of its job, as a share; 1 where that is not known."""
        place = memory.array("place", np.float32, np.nan)
        known = (self.below is not None) & ~np.isnan(place) & (place > 0)
        return np.where(known, place, np.float32(1.0))

    def _evaluate_window(self, inputs: RuleInput, memory: RowMemory, numbers: Index) -> None:
        """Compare the GPUs over the window that is full, and evaluate the last ones. A job over several aggregators
        is compared over the window before."""
        count = memory.array("count", np.int16, 0)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = memory.array("total", np.float64, 0.0) / count
            used = memory.array("load", np.float32, 0.0) / count
        groups, size = inputs.snapshot.peer_groups("job")
        there = (count > 0) & (numbers > 0) & (used >= _BUSY)
        elsewhere, snapshot = inputs.snapshot.elsewhere, inputs.snapshot
        if elsewhere is None:
            self._compare(memory, _Window(mean, mean / self._usual(memory), there), groups, size)
            return
        moment = elsewhere.moment(snapshot.wall, self.window) - 1
        window = self._joint(elsewhere, moment, mean, there, groups, size, memory, snapshot.now)
        self._compare(memory, window, groups, size)
        # To be compared with those of others at the end of the next window.
        own = mean / self._usual(memory)
        elsewhere.state(self.digest, moment, own, there, groups, memory.part(1))
        if self.below is not None:
            elsewhere.state(self._of_means, moment, mean, there, groups, memory.part(2))

    @property
    def _of_means(self) -> str:
        return f"{self.digest}/mean"

    def _joint(
        self,
        elsewhere: PeersElsewhere,
        moment: int,
        mean: Floats,
        there: Flags,
        groups: Index,
        count: int,
        memory: RowMemory,
        now: float,
    ) -> _Window:
        """Return what is compared where others have GPUs of the same jobs."""
        own = mean / self._usual(memory)
        found = elsewhere.compared(self.digest, moment, own, there, groups, memory.part(1), now)
        if self.below is None:
            return _Window(found.values, found.values, found.there, found.others)
        raw = elsewhere.compared(self._of_means, moment, mean, there, groups, memory.part(2), now)
        there = found.there & raw.there
        shared = memory.array("shared", np.bool_, 0)
        newly = found.late & ~shared
        if newly.any():  # what was usual among our GPUs alone is taken as usual among all
            alone, _ = medians(raw.values, groups, count, there)
            among_all, _ = medians(raw.values, groups, count, there, raw.others)
            factor = (alone / np.where(among_all > 0, among_all, np.nan))[groups]
            newly &= factor > 0
            memory.array("place", np.float32, np.nan)[newly] *= factor[newly]
            found.values[newly] /= factor[newly]
        shared[:] = found.late & (shared | newly)
        return _Window(raw.values, found.values, there, found.others, raw.others)

    def _compare(self, memory: RowMemory, window: _Window, groups: Index, size: int) -> None:
        mean, own, there, others, others_mean = window
        usual = self._usual(memory)
        middle, spread, members = robust(own, groups, size, there, others)
        compared = there & (members[groups] > _PEERS)
        width = self.deviations * (spread * _SPREAD + _FLOOR * np.abs(middle))
        if self.below is not None:
            limit = np.minimum(middle * self.below, middle - width)
            out = compared & (own <= limit[groups])
        else:
            limit = np.maximum(middle * (self.above or 1.0), middle + np.maximum(width, self.least))
            out = compared & (own >= limit[groups])
        outside = np.bincount(groups[out], minlength=size)
        if others is not None:
            theirs = limit[others.groups]
            is_out = others.values <= theirs if self.below is not None else others.values >= theirs
            np.add.at(outside, others.groups[is_out], others.weights[is_out])
        crowd = outside >= _CROWD * np.maximum(members, 1)
        unsure = crowd[groups] & compared
        if self.below is not None:
            place = memory.array("place", np.float32, np.nan)
            seen = memory.array("seen", np.int16, 0)
            raw, _ = medians(mean, groups, size, there, others_mean)
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
        memory.array("limit", np.float32, np.nan)[:] = limit[groups] * usual

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
    spare: bool = False
    """Whether a job is good while the condition is bad on as many GPUs as it declares to work with."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a share that is none."""
        if not 0 < self.share <= 1:
            yield f"share = {self.share:g} is no share of a job's GPUs", "Write a number up to 1."
        if self.least < 1:
            yield f"a job of {self.least} GPUs is none", "Write 1 or more."

    def by_job(
        self, inner: Evaluation, inputs: RuleInput, memory: RowMemory, left_out: Flags | None = None
    ) -> Evaluation:
        """Return the verdict on each job at one of its GPUs, or at each. GPUs that are left out are not counted; half
        of all must be bad then."""
        held = inputs.snapshot.gpu_jobs
        numbers = job_rows(inputs, allocated=not self.anybody, batch=not self.anybody)
        anew = changed_hands(numbers, memory)
        bad_rows, unknown_rows = inner.verdicts == BAD, inner.verdicts == UNKNOWN
        size = np.bincount(numbers, minlength=held.count)
        asked = np.zeros(held.count, np.intp)
        asked[numbers] = held.asked
        all_of = np.maximum(size, asked)  # GPUs of nodes that say nothing are unknown ones
        least = np.zeros(held.count)
        if left_out is not None:
            least, out = all_of / 2, np.bincount(numbers[left_out], minlength=held.count)
            all_of, size = all_of - out, size - out
            bad_rows, unknown_rows = bad_rows & ~left_out, unknown_rows & ~left_out
        bad = np.bincount(numbers[bad_rows], minlength=held.count)
        unknown = np.bincount(numbers[unknown_rows], minlength=held.count) + all_of - size
        need = np.maximum(np.ceil(self.share * all_of - 1e-9), least)
        is_bad = (bad >= need) & (size >= self.least)
        is_unknown = ~is_bad & ((bad + unknown >= need) | (all_of < self.least))
        for number, purpose in held.purposes.items() if self.spare else ():
            if purpose.gpus and bad[number] >= purpose.gpus:
                is_bad[number] = is_unknown[number] = False
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
        verdict_unknown[anew] = verdict_bad[anew] = False  # another job: the one that was bad is gone
        return Evaluation(three(verdict_bad, verdict_unknown))

    def _leads(self, inputs: RuleInput, numbers: Index, bad: Flags, bad_rows: Flags, count: int) -> Flags:
        """Return for each bad job the row that stands for it: the one that has the alert, else the first."""
        rows = np.flatnonzero(bad)
        rank = np.where(inputs.active[rows], 0, np.where(bad_rows[rows], 1, 2))
        order = rows[np.lexsort((rows, rank))[::-1]]  # the best last, so that it remains
        first = np.zeros(count, np.intp)
        first[numbers[order]] = order
        lead = np.zeros(inputs.size, np.bool_)
        lead[first[np.unique(numbers[rows])]] = True
        return lead
