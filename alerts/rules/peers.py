"""A condition on how a GPU differs from its peers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from alerts.rules.condition import (
    Evaluation,
    evaluate_slowly,
    three,
)
from alerts.rules.input import RuleInput
from alerts.rules.levels import GatedCondition, is_open
from alerts.rules.row_memory import Floats, Index, RowMemory


class Outlier(GatedCondition, frozen=True, tag="outlier"):
    """Bad when a reading is a share of its peers' median or less (`below`), or more (`above`).

    Peers are GPUs of the same model and the same job; where no job is known, of the same node.
    A GPU that is not under load, or that has too few peers that are, is unknown.
    """

    REMEMBERS: ClassVar[bool] = True

    below: float | None = None
    """0.9 is 10 % less than the median."""
    above: float | None = None
    least: float = 0.0
    """The least difference from the median, in the metric's unit."""
    peers: int = 3
    """Least number of peers to compare with."""
    among: Literal["job", "model"] = "job"
    """`model`: all GPUs of the model in the fleet are peers."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report shares that compare nothing, or the wrong way round."""
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

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Compare each row with the median of its group."""
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: self._evaluate(inputs, memory))

    def _evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        values = inputs.values(self.metric)
        groups, count = inputs.snapshot.peer_groups(self.among)
        there = ~np.isnan(values) & (groups > 0)
        gate = is_open(self.load, inputs, memory.part(0))
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
        return Evaluation(three(bad, ~enough), values, limits)


def _medians(values: Floats, groups: Index, count: int, there: np.ndarray) -> tuple[Floats, Index]:
    """Return the median of each group, and its size."""
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
