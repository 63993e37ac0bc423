"""Conditions that look at minutes or days need not be worked out every second."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import UNKNOWN, Judgement

PACE = 5.0
"""Seconds between two judgements; a hold of a minute is off by a tick at most."""


def paced(rows: RowMemory, now: float, judge: Callable[[], Judgement]) -> Judgement:
    """Return a judgement that is new every few seconds, and the last verdicts in between."""
    verdicts = rows.array("verdicts", np.int8, UNKNOWN)
    if now < rows.state.get("judge_at", -np.inf):
        return Judgement(verdicts.copy())
    rows.state["judge_at"] = now + PACE * 0.99
    judgement = judge()
    verdicts[:] = judgement.verdicts
    return judgement
