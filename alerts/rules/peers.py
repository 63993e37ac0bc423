"""A condition on how a GPU differs from those that do the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import ConditionInput, ConditionKind, Floats, Index, Judgement, three
from alerts.rules.evaluation_interval import paced
from alerts.rules.gate import Gate, is_open, under


class Outlier(ConditionKind, frozen=True, tag="outlier"):
    """Bad when a reading is a share of its peers' median or less (`below`), or more (`above`).

    Peers are GPUs of the same model and the same job; where no job is known, of the same node.
    What is not under load, or has too few peers that are, is unknown.
    """

    metric: str
    below: float | None = None
    """0.9 is 10 % less than the median."""
    above: float | None = None
    least: float = 0.0
    """And above the median by so much at least, in the metric's unit, or below it."""
    peers: int = 3
    """So many others must be there to compare with."""
    among: Literal["job", "model"] = "job"
    """`model`: all GPUs of the model in the fleet are peers."""
    load: Gate | None = None
    """Only GPUs that are under load are compared."""

    def metrics(self) -> Iterator[str]:
        """The reading, and what the load is told by."""
        return under(self.load, self.metric)

    @property
    def remembers(self) -> bool:
        """The last verdict, between two judgements."""
        return True

    def problems(self) -> Iterator[tuple[str, str]]:
        """Nothing to compare with, or the wrong way round."""
        if self.below is None and self.above is None:
            yield (
                "an outlier needs `below` or `above`",
                "Write below = 0.9 for 10 % under the median.",
            )
        if self.below is not None and not 0 < self.below < 1:
            yield f"below = {self.below:g} is no share of the median", "Write a number from 0 to 1."
        if self.above is not None and self.above <= 1:
            yield f"above = {self.above:g} is no multiple of the median", "Write a number above 1."
        if self.peers < 2:
            yield f"{self.peers} peers have no median", "Write 2 or more."

    def judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        """Compare each row with the median of its group."""
        return paced(rows, sight.now, lambda: self._judge(sight, rows))

    def _judge(self, sight: ConditionInput, rows: RowMemory) -> Judgement:
        values = sight.values(self.metric)
        groups, count = sight.kinds(self.among)
        there = ~np.isnan(values) & (groups > 0)
        gate = is_open(self.load, sight, rows.part(0))
        if gate is not None:
            there &= gate
        median, size = _medians(values, groups, count, there)
        enough = there & (size[groups] > self.peers)
        middle = median[groups]
        bad = np.zeros(len(values), np.bool_)
        limits = np.full(len(values), np.nan)
        if self.below is not None:
            low = middle * self.below
            bad |= (values <= low) & (middle - values >= self.least) & (middle > 0)
            limits = low
        if self.above is not None:
            high = middle * self.above
            over = (values >= high) & (values - middle >= self.least)
            limits = np.where(over | (self.below is None), high, limits)
            bad |= over
        return Judgement(three(bad, ~enough), values, limits)


def _medians(values: Floats, groups: Index, count: int, there: np.ndarray) -> tuple[Floats, Index]:
    """Return the median of each group, and how many it is of."""
    rows = np.flatnonzero(there)
    order = np.lexsort((values[rows], groups[rows]))
    ranked = values[rows][order]
    size = np.bincount(groups[rows], minlength=count)
    first = np.cumsum(size) - size
    median = np.full(count, np.nan, values.dtype)  # compared in the reading's own precision
    some = size > 0
    low = (first + (size - 1) // 2)[some]
    high = (first + size // 2)[some]
    median[some] = (ranked[low].astype(np.float64) + ranked[high]) / 2
    return median, size
