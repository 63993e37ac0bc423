"""A condition on how a GPU or a link differs from its peers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import numpy as np

from alerts.rules.condition import Evaluation, evaluate_slowly, three
from alerts.rules.counters import growth_since, rate_text
from alerts.rules.input import RuleInput
from alerts.rules.levels import GatedCondition, is_open
from alerts.rules.medians import Others, medians
from alerts.rules.names import WORDS, format_value
from alerts.rules.row_memory import Flags, Floats, Index, RowMemory, of_holders
from api.alerts import Subject
from telemetry.metric import Kind, Table, Unit

if TYPE_CHECKING:
    from alerts.rules.peers_elsewhere import Compared, PeersElsewhere

_MOST_GROWTH = 1e30
"""A counter may be 1e308, which is more than a float32 holds."""


class Outlier(GatedCondition, frozen=True, tag="outlier"):
    """Bad when a reading is a share of its peers' median or less (`below`), or more (`above`).

    Peers are GPUs of the same model and the same job; where no job is known, of the same node. The
    peers of a link are the links of these GPUs. A device that is not under load, or that has too few
    peers that are, is unknown.

    With `window`, the growth of a counter for each second under load is compared. Idle time neither
    adds to it nor dilutes it: the rate of before stays known. A counter that is not read, that was
    reset while it was not read, or that has not been known for a window, has no rate: it is no peer,
    and can be bad by what it has counted, but not good.
    """

    REMEMBERS: ClassVar[bool] = True

    below: float | None = None
    """0.9 is 10 % less than the median."""
    above: float | None = None
    least: float = 0.0
    """The least difference from the median, in the metric's unit; with `window`, a second."""
    peers: int = 3
    """Least number of peers to compare with."""
    among: Literal["job", "model", "either", "both"] = "job"
    """`model`: all GPUs of the model in the fleet are peers. `either`: it is compared with both, and
    bad when it is an outlier among one of them; `both`: among each of them of which enough are known."""
    plus: tuple[str, ...] = ()
    """Further counters, whose growth is added; those that a device does not support count nothing."""
    window: float = 0.0
    """Seconds under load over which the growth of a counter counts; 0 compares the reading itself."""

    def metrics(self) -> Iterator[str]:
        """Yield the metric and those that are added to it, and those of the gate."""
        yield self.metric
        yield from self.plus
        if self.load is not None:
            yield from self.load.metrics()

    def abstains(self, inputs: RuleInput) -> Flags:
        """Return the rows whose device supports none of its counters, or lacks the gate's metric."""
        abstains = np.ones(inputs.size, np.bool_)
        for name in (self.metric, *self.plus):
            abstains &= inputs.unsupported(name)
        if self.load is not None and not self.window:
            abstains |= self.load.abstains(inputs)
        return abstains

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report shares that compare nothing, or the wrong way round."""
        if self.below is None and self.above is None:
            yield ("an outlier needs `below` or `above`", "Write below = 0.9 for 10 % under the median.")
        if self.below is not None and not 0 < self.below < 1:
            yield f"below = {self.below:g} is no share of the median", "Write a number from 0 to 1."
        if self.above is not None and self.above <= 1:
            yield f"above = {self.above:g} is no multiple of the median", "Write a number above 1."
        if self.peers < 2:
            yield f"{self.peers} peers have no median", "Write 2 or more."
        if self.plus and not self.window:
            yield "only counters are added up", "Write `window`, or remove `plus`."
        if self.window < 0:
            yield f"window = {self.window:g} is no time", "Write seconds."
        if self.window:
            for name in (self.metric, *self.plus):
                word = WORDS.get(name)
                if word is not None and word.kind is not Kind.COUNTER and word.unit is not Unit.COUNT:
                    yield f"{name} counts nothing", "Remove `window`."
            if self.among == "both":
                yield "a rate is not compared with both", 'Write among = "either".'
            if self.below is not None or not self.least > 0:
                yield (
                    "a rate among peers that are mostly 0 needs `above` and `least`",
                    "Write least = 0.01 for 36 an hour.",
                )

    def describe(self, value: float) -> str:
        """Return the reading, or the growth a second, an hour or a week."""
        if not self.window:
            return format_value(self.metric, value)
        return rate_text(value)

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each row with the median of its group."""
        step = self._rates if self.window else self._readings
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: step(inputs, memory))

    @property
    def _ways(self) -> tuple[str, ...]:
        return ("job", "model") if self.among in {"either", "both"} else (self.among,)

    def _groups(self, inputs: RuleInput, way: str) -> tuple[Index, int]:
        """Return the number of each row's group for a way of comparing, and how many there are."""
        groups, count = inputs.snapshot.peer_groups(way)
        if inputs.subject is Subject.LINK:
            groups = of_holders(groups, inputs.snapshot.owner[Table.LINK], 0)
        return groups, count

    def _readings(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        values = inputs.values(self.metric)
        there = ~np.isnan(values)
        gate = is_open(self.load, inputs, memory.part(0))
        if gate is not None:
            there &= gate
        bad = np.zeros(len(values), np.bool_)
        fine = np.zeros(len(values), np.bool_)
        blind = np.zeros(len(values), np.bool_)
        limits = np.full(len(values), np.nan)
        elsewhere = inputs.snapshot.elsewhere
        for way in self._ways:
            groups, count = self._groups(inputs, way)
            own, compared, others = values, there & (groups > 0), None
            if elsewhere is not None and way == "job":
                own, compared, others, blind, _ = self._joint(
                    elsewhere, inputs, values, compared, groups, memory.part(1)
                )
            median, size = medians(own, groups, count, compared, others)
            some = compared & (size[groups] > self.peers)
            middle = np.where(some, median[groups], np.nan)
            out = np.zeros(len(values), np.bool_)
            if self.below is not None:
                low = middle * self.below
                under = (own <= low) & (middle - own >= self.least) & (middle > 0)
                limits = np.where(under | np.isnan(limits), low, limits)
                out |= under
            if self.above is not None:
                high = middle * self.above
                over = (own >= high) & (own - middle >= self.least)
                limits = np.where(over | np.isnan(limits), high, limits)
                out |= over
            bad |= out
            fine |= some & ~out
        if self.among == "both":
            bad &= ~fine
            bad &= ~blind  # else its model alone would decide
        return Evaluation(three(bad, ~bad & (~fine | blind)), values, limits)

    def _joint(
        self,
        elsewhere: PeersElsewhere,
        inputs: RuleInput,
        values: Floats,
        there: Flags,
        groups: Index,
        memory: RowMemory,
    ) -> Compared:
        """Return what is compared where others have GPUs of the same jobs, and state our own readings."""
        key, moment = self.digest, elsewhere.moment(inputs.snapshot.wall)
        found = elsewhere.compared(key, moment, values, there, groups, memory, inputs.snapshot.now)
        elsewhere.state(key, moment, values, there, groups, memory)
        return found

    def _rates_elsewhere(self, inputs: RuleInput, rates: Floats, whole: Flags) -> tuple[Others | None, Flags]:
        """State our own rates where others may have GPUs of the same jobs, and return theirs, and the rows of jobs
        of which a part is out of sight."""
        elsewhere, snapshot = inputs.snapshot.elsewhere, inputs.snapshot
        if elsewhere is None or self.among == "model":
            return None, np.zeros(len(rates), np.bool_)
        groups, _ = self._groups(inputs, "job")
        moment = elsewhere.moment(snapshot.wall)
        return elsewhere.present(self.digest, moment, rates, whole, groups, snapshot.now)

    def _growth(self, inputs: RuleInput, memory: RowMemory) -> tuple[Floats, Flags, Floats, Flags]:
        """Return what `growth_since` does, of all its counters together."""
        now = inputs.snapshot.now
        found = growth_since(inputs.values(self.metric), memory, now)
        for number, name in enumerate(self.plus, 1):
            more = growth_since(inputs.values(name), memory.part(number), now)
            found = (found[0] + more[0], found[1] | more[1], np.minimum(found[2], more[2]), found[3] | more[3])
        return found

    def _rates(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        growth, read, passed, in_gap = self._growth(inputs, memory)
        current = memory.array("current", np.float32, 0.0)
        """Growth in the window that is being filled."""
        filled = memory.array("filled", np.float32, 0.0)
        """Seconds under load of it in which the counter was known."""
        previous = memory.array("previous", np.float32, np.nan)
        """Growth in the window before; NaN of a counter that has not been known for a window."""
        restarted = read & ((passed > self.window) | in_gap)
        if restarted.any():
            current[restarted] = filled[restarted] = growth[restarted] = 0.0
            previous[restarted] = np.nan
        loaded = np.where(read & ~restarted, passed, 0.0)
        gate = is_open(self.load, inputs, memory.part(0))
        if gate is not None and self.load is not None:
            loaded[~gate & ~self.load.abstains(inputs)] = 0.0
        current += np.minimum(growth, _MOST_GROWTH)
        filled += loaded
        full = filled >= self.window * 0.999
        if full.any():
            previous[full], current[full] = current[full], 0.0
            filled[full] = np.maximum(filled[full] - self.window, 0.0)

        whole = read & ~np.isnan(previous)
        rates = (np.nan_to_num(previous) * (1.0 - filled / self.window) + current) / self.window
        suspects = read & (rates >= self.least)
        others, blind = self._rates_elsewhere(inputs, rates, whole)
        if not suspects.any():  # below `least`, whatever the peers have
            return Evaluation(three(suspects, ~whole))
        limits = np.full(len(rates), np.inf)
        for way in self._ways:
            groups, count = self._groups(inputs, way)
            asked = np.zeros(count, np.bool_)
            asked[groups[suspects]] = True
            asked[0] = False
            median, size = medians(rates, groups, count, whole & asked[groups], others if way == "job" else None)
            enough = suspects & asked[groups] & (size[groups] - whole >= self.peers)
            if way == "job":
                enough &= ~blind
            middle = np.where(enough, median[groups], np.inf)
            limits = np.minimum(limits, np.maximum(middle * (self.above or 1.0), middle + self.least))
        bad = suspects & (rates >= limits)
        unknown = (~whole & ~bad) | (suspects & np.isinf(limits)) | (suspects & blind & ~bad)
        return Evaluation(three(bad, unknown), rates, limits)
