"""Sums over a window: what is older than it is in them no longer, however often it is looked at."""

from __future__ import annotations

import numpy as np
import pytest

from alerts.rules.row_memory import RowMemory
from alerts.rules.window import RollingWindow


@pytest.mark.parametrize("step", [1.0, 5.0, 29.7, 30.0, 31.0, 100.0])
def test_what_is_older_than_a_window_is_forgotten(step: float) -> None:
    """It grows for two minutes out of twenty; the sum is of five minutes, and a tenth at most."""
    rows = RowMemory(1)
    times = np.arange(1000.0, 2200.0, step)
    growths = np.where((times >= 1100) & (times < 1220), step, 0.0)
    for now, growth in zip(times.tolist(), growths.tolist(), strict=True):
        (total,), elapsed = RollingWindow(rows, 300.0, ["x"]).add([np.array([growth])], now)
        assert elapsed <= max(330.0 + step, 300.0 + 2 * step)
        past = times <= now
        least = growths[past & (times > now - 297.0 + step)].sum()  # a step may be early
        most = growths[past & (times >= now - 330.0 - 2 * step)].sum()
        assert least - 1e-3 <= float(total[0]) <= most + 1e-3, now
    assert float(total[0]) == 0.0
