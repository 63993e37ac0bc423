"""A condition on how often a board, or the boards in a slot, had incidents before."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar, Literal

import numpy as np

from alerts.rules.condition import ConditionKind, Evaluation, evaluate_slowly
from alerts.rules.input import RuleInput
from alerts.rules.row_memory import RowMemory
from api.alerts import Remediation


class Recurs(ConditionKind, frozen=True, kw_only=True, tag="recurs"):
    """Bad while a GPU's board, or its slot, had `count` incidents or more in the last `window` seconds.

    Boards move: a board is its serial number, wherever it is now. A slot counts only when its incidents
    were of two boards or more, for with one of them it is the board that is to blame. The alerts of this
    rule itself do not count.
    """

    REMEMBERS: ClassVar[bool] = True

    of: Literal["board", "slot"]
    count: int
    window: float
    remediations: tuple[Remediation, ...] = (
        Remediation.RESET,
        Remediation.REBOOT,
        Remediation.COLD_START,
        Remediation.REPLACE,
    )
    """Owners of the remedies of the incidents that count: the site's heat is no fault of a board."""

    def problems(self) -> Iterator[tuple[str, str]]:
        """Report a count of one, or a window that is longer than what is remembered."""
        if self.count < 2 or not 0 < self.window <= 30 * 86_400:
            yield "a repetition is twice or more within 30 days", "Correct `count` or `window`."

    def describe(self, value: float) -> str:
        """Return the number of incidents."""
        return f"{value:g} incidents"

    def evaluate(self, inputs: RuleInput, memory: RowMemory) -> Evaluation:
        """Find the rows of the boards or slots that had so many."""
        return evaluate_slowly(memory, inputs.snapshot.now, lambda: self._evaluate(inputs))

    def _evaluate(self, inputs: RuleInput) -> Evaluation:
        found = inputs.snapshot.repeated_faults(self.of, self.count, self.window, self.remediations)
        bad = np.zeros(inputs.size, np.int8)
        values = np.full(inputs.size, np.nan)
        for row, count in found.items():
            bad[row], values[row] = True, count
        return Evaluation(bad, values, float(self.count))
