"""The kinds of condition that a rule can have: each evaluates all rows of a table at once.

To add a kind, write one class in `alerts/rules` and name it in the union `Condition`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from alerts.rules.condition import BAD, GOOD, UNKNOWN, ConditionKind, Evaluation, Verdicts, evaluate_slowly, three
from alerts.rules.cooling import CoolingDrift
from alerts.rules.counters import Fraction, Rate, Rises
from alerts.rules.events import Happens, Repeats
from alerts.rules.input import RuleInput
from alerts.rules.levels import Above, Below, Formula, In
from alerts.rules.of_jobs import (
    BelowOwn,
    HeldByJob,
    JobShare,
    LoadsCircuit,
    ProcessOutside,
    Quiet,
    SlowInJob,
    changed_hands,
)
from alerts.rules.peers import Outlier
from alerts.rules.presence import Absent, DriverCondition, Silent, Skewed, Worked
from alerts.rules.recurs import Recurs
from alerts.rules.row_memory import Flags, RowMemory
from alerts.rules.trend import Drift, Forecast, Frozen, Worse
from telemetry.devices import Event
from telemetry.text import duration

_PAUSE_APART, _SHORTEST_PAUSE = 15.0, 30.0
"""Seconds of work that end a pause, and of a pause that is one."""


class _Joined(ConditionKind, frozen=True):
    of: tuple[Condition, ...]

    @property
    def parts(self) -> Sequence[ConditionKind]:
        """The conditions that it joins."""
        return self.of

    @property
    def edge(self) -> bool:
        """Whether each of them is an instant."""
        return all(condition.edge for condition in self.of)

    def metrics(self) -> Iterator[str]:
        """Yield the metrics of each of them."""
        for condition in self.of:
            yield from condition.metrics()

    @property
    def remembers(self) -> bool:
        """Whether one of them does."""
        return any(condition.remembers for condition in self.of)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a list of no conditions."""
        if not self.of:
            yield "`any` or `all` of nothing can't be bad", "Name conditions in `of`."

    def recall(self, event: Event, row: int, memory: RowMemory, at: float) -> None:
        """Make each part remember an event of before the start."""
        for number, part in enumerate(self.of):
            part.recall(event, row, memory.part(number), at)

    def _each(self, inputs: RuleInput, memory: RowMemory) -> list[Evaluation]:
        return [part.evaluate(inputs, memory.part(number)) for number, part in enumerate(self.of)]


class AnyOf(_Joined, frozen=True, tag="any"):
    """Bad when one of several is bad; good when all are good. A part that reads a metric which a
    device does not support is left out."""

    def abstains(self, inputs: RuleInput) -> Flags:
        """Return the rows on which every part stays unknown forever."""
        abstains = np.ones(inputs.size, np.bool_)
        for condition in self.of:
            abstains &= condition.abstains(inputs)
        return abstains

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Evaluate each part and join the verdicts."""
        evaluations = self._each(inputs, memory)
        bad = np.zeros(inputs.size, np.bool_)
        unknown = np.zeros(inputs.size, np.bool_)
        for evaluation in evaluations:
            bad |= evaluation.verdicts == BAD
            unknown |= evaluation.verdicts == UNKNOWN
        if np.count_nonzero(unknown) and np.count_nonzero(inputs.phase):  # else good and unknown make no difference
            unknown = self._unknown(evaluations, inputs)
        return _with_values(evaluations, three(bad, unknown & ~bad))

    def _unknown(self, evaluations: Sequence[Evaluation], inputs: RuleInput) -> Flags:
        """Return the rows on which a part is unknown now, or every part forever."""
        unknown = np.zeros(inputs.size, np.bool_)
        never = np.ones(inputs.size, np.bool_)
        for part, evaluation in zip(self.of, evaluations, strict=True):
            abstains = part.abstains(inputs)
            unknown |= (evaluation.verdicts == UNKNOWN) & ~abstains
            never &= abstains
        return unknown | never


class AllOf(_Joined, frozen=True, tag="all"):
    """Bad when each of several is bad; good when one is good."""

    def abstains(self, inputs: RuleInput) -> Flags:
        """Return the rows on which one part stays unknown forever."""
        abstains = np.zeros(inputs.size, np.bool_)
        for condition in self.of:
            abstains |= condition.abstains(inputs)
        return abstains

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Evaluate each part and join the verdicts."""
        evaluations = self._each(inputs, memory)
        good = np.zeros(inputs.size, np.bool_)
        unknown = np.zeros(inputs.size, np.bool_)
        for evaluation in evaluations:
            good |= evaluation.verdicts == GOOD
            unknown |= evaluation.verdicts == UNKNOWN
        return _with_values(evaluations, three(~good, unknown & ~good))


def _with_values(evaluations: Sequence[Evaluation], verdicts: Verdicts) -> Evaluation:
    """Give each bad row the value of the first part that is bad and has one."""
    if not np.count_nonzero(verdicts == BAD):
        return Evaluation(verdicts)
    values = np.full(len(verdicts), np.nan)
    limits = np.full(len(verdicts), np.nan)
    parts = np.zeros(len(verdicts), np.int8)
    causes: dict[int, Event] = {}
    for number, evaluation in reversed(list(enumerate(evaluations))):
        here = evaluation.verdicts == BAD
        if evaluation.values is not None:
            here &= ~np.isnan(evaluation.values)
            np.copyto(values, evaluation.values, where=here)
        if evaluation.values is not None or not causes:
            parts[here] = number
        limits[here] = np.nan
        if evaluation.limits is not None:
            np.copyto(limits, evaluation.limits, where=here)
        causes |= evaluation.causes
    return Evaluation(verdicts, values, limits, parts, causes)


class Outlasts(ConditionKind, frozen=True, tag="outlasts"):
    """Bad on a GPU on which another condition has been bad for longer than it ever was before in the job: for `factor`
    times its longest pause that ended by itself, as saving a checkpoint does, once so many were seen; for `first`
    seconds at least before; never for less than the owner of the job declares. A pause of seconds teaches nothing.
    Its value is for how long it has lasted."""

    IS_AGE = True

    of: Condition
    first: float = 600.0
    """s"""
    least: float = 300.0
    """s; a job whose pauses are shorter has this."""
    most: float = 7200.0
    """s"""
    factor: float = 2.0
    seen: int = 3
    """Pauses after which the longest is taken as the job's own."""

    @property
    def parts(self) -> Sequence[ConditionKind]:
        """The condition."""
        return (self.of,)

    @property
    def remembers(self) -> bool:
        """True: it remembers the pauses."""
        return True

    def metrics(self) -> Iterator[str]:
        """Yield the metrics of the condition."""
        yield from self.of.metrics()

    def abstains(self, inputs: RuleInput) -> Flags:
        """Return the rows on which the condition stays unknown forever."""
        return self.of.abstains(inputs)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report an instant, and times that are in no order."""
        if self.of.edge:
            yield "`outlasts` can't measure an instant", "Use a condition that lasts."
        if not 0 < self.least <= self.first <= self.most:
            yield "its times are in no order", "Write least <= first <= most, in seconds."

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Count the seconds of the pause that lasts, and remember those that have ended."""
        held = inputs.snapshot.gpu_jobs
        now, numbers = inputs.snapshot.now, held.alone
        found = self.of.evaluate(inputs, memory.part(0))
        began = memory.array("began", np.float64, np.nan)
        last = memory.array("last", np.float64, np.nan)
        longest = memory.array("longest", np.float32, 0.0)
        pauses = memory.array("pauses", np.int32, 0)
        anew = changed_hands(numbers, memory)
        began[anew], longest[anew], pauses[anew] = np.nan, 0.0, 0
        bad = found.verdicts == BAD
        began[bad & np.isnan(began)] = now
        last[bad] = now
        over = (found.verdicts == GOOD) & (now - last >= _PAUSE_APART)
        long = over & (last - began >= _SHORTEST_PAUSE)
        longest[long] = np.maximum(longest, last - began)[long]
        pauses[long] += 1
        began[over] = np.nan
        own = self.factor * longest
        need = np.where(pauses >= self.seen, np.clip(own, self.least, self.most), np.clip(own, self.first, self.most))
        if held.purposes:
            declared = np.zeros(held.count)
            for number, purpose in held.purposes.items():
                declared[number] = purpose.checkpoint
            need = np.maximum(need, declared[numbers])
        lasts = now - began
        return Evaluation(three(bad & (lasts >= need), found.verdicts == UNKNOWN), lasts, need)

    def describe(self, value: float) -> str:
        """Return a duration."""
        return duration(value)


class OfJob(JobShare, frozen=True, kw_only=True, tag="of_job"):
    """Bad on a GPU of a job while another condition is bad on a share of all GPUs of that job.

    A GPU that is not known, on a node that says nothing too, makes the job unknown as long as it could
    change the verdict. Array tasks are jobs of their own. A GPU that several jobs share, or that is cut in
    instances, has no verdict.
    """

    of: Condition
    without: Condition | None = None
    """GPUs on which it is bad are not counted, as those whose process is gone while the others wait for it."""

    @property
    def parts(self) -> Sequence[ConditionKind]:
        """The conditions on each GPU."""
        return (self.of,) if self.without is None else (self.of, self.without)

    @property
    def remembers(self) -> bool:
        """True: another job on the same GPU begins anew."""
        return True

    def metrics(self) -> Iterator[str]:
        """Yield the metrics of the conditions."""
        for part in self.parts:
            yield from part.metrics()

    def abstains(self, inputs: RuleInput) -> Flags:
        """Return the rows on which the condition stays unknown forever."""
        return self.of.abstains(inputs)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report an instant, which no job's GPUs share, and a share that is none."""
        yield from super().problems()
        if any(part.edge for part in self.parts):
            yield "`of_job` can't count instants", "Use a condition that lasts."

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Count the GPUs of each job on which the condition is bad."""
        if inputs.snapshot.gpu_jobs.count == 1:  # no job was ever known
            return Evaluation(np.full(inputs.size, UNKNOWN, np.int8))
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: self._count(inputs, memory))

    def _count(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        inner = self.of.evaluate(inputs, memory.part(0))
        left_out = None
        if self.without is not None:
            left_out = self.without.evaluate(inputs, memory.part(2)).verdicts == BAD
        found = self.by_job(inner, inputs, memory.part(1), left_out)
        return found._replace(values=inner.values, limits=inner.limits) if self.of.IS_AGE else found


Condition = (
    Above
    | Below
    | In
    | Formula
    | Rises
    | Rate
    | Fraction
    | Absent
    | Silent
    | Skewed
    | Worked
    | Happens
    | Repeats
    | Outlier
    | Drift
    | CoolingDrift
    | Forecast
    | Frozen
    | Worse
    | Recurs
    | DriverCondition
    | HeldByJob
    | LoadsCircuit
    | ProcessOutside
    | BelowOwn
    | Quiet
    | SlowInJob
    | Outlasts
    | OfJob
    | AnyOf
    | AllOf
)
"""The registry: a union read by the loader of rules and by the type checker."""


def event_part(condition: Condition) -> Condition | None:
    """Return the part of a condition that is about events, or None when it has none."""
    match condition:
        case Happens() | Repeats():
            return condition
        case AnyOf():
            found = tuple(part for part in condition.of if isinstance(part, Happens | Repeats))
            return AnyOf(found) if found else None
        case _:
            return None
