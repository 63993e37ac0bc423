"""Throughput of GPU models by power, as measured: SM clocks of busy GPUs that their power limit holds.

Work is taken to follow the SM clock while a GPU is busy. That is what a power cap takes away, and the most
that it can cost: work that waits for memory or for the network loses less. Nothing is extrapolated: at a
power at which no GPU of the model was held, the clock is not known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from api.power import ModelThroughput, ThroughputPoint
from power.wiring import Flags, Floats, Index

STEP_WATTS = 25.0
"""Width of the steps of power that samples are gathered in."""
BUSY = 0.9
"""Utilisation from which a GPU is busy."""
_LEAST_SAMPLES = 30
"""Samples of a step before its mean counts."""
MOST_WATTS, MOST_HERTZ = 1e4, 1e10
"""Power and clock that no GPU has."""
_STEPS = 80


class ThroughputLedger:
    """Means of power and clock by model and step of power; kept over restarts."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}
        self._count: Floats = np.zeros((0, _STEPS))
        self._watts: Floats = np.zeros((0, _STEPS))
        self._hertz: Floats = np.zeros((0, _STEPS))

    def add(self, models: Sequence[str], model: Index, watts: Floats, hertz: Floats, busy: Floats, held: Flags) -> None:
        """Add one sample of GPUs: the place of its model in `models`, power, SM clock, utilisation, and
        whether the power limit holds the clock."""
        with np.errstate(invalid="ignore"):
            credible = (watts > 0) & (watts < MOST_WATTS) & (hertz > 0) & (hertz < MOST_HERTZ)
            use = np.flatnonzero(held & (busy >= BUSY) & credible)
        if not len(use):
            return
        rows = np.zeros(len(models), np.intp)
        for place in np.unique(model[use]).tolist():
            rows[place] = self._rows.setdefault(models[place], len(self._rows))
        if len(self._rows) > len(self._count):
            more = np.zeros((len(self._rows) - len(self._count), _STEPS))
            self._count, self._watts, self._hertz = (
                np.concatenate([one, more]) for one in (self._count, self._watts, self._hertz)
            )
        step = np.minimum((watts[use] / STEP_WATTS).astype(np.int64), _STEPS - 1)
        cell = rows[model[use]] * _STEPS + step
        size, shape = self._count.size, self._count.shape
        self._count += np.bincount(cell, minlength=size).reshape(shape)
        self._watts += np.bincount(cell, watts[use], size).reshape(shape)
        self._hertz += np.bincount(cell, hertz[use], size).reshape(shape)

    def checkpoint(self) -> dict[str, list[list[float]]]:
        """Return the sums as JSON can hold them: of each model its steps with samples, as number of the
        step, samples, sum of watts, sum of hertz."""
        return {
            model: [
                [float(n), float(self._count[row, n]), float(self._watts[row, n]), float(self._hertz[row, n])]
                for n in np.flatnonzero(self._count[row]).tolist()
            ]
            for model, row in self._rows.items()
        }

    @classmethod
    def restored(cls, memory: Mapping[str, Sequence[Sequence[float]]]) -> ThroughputLedger:
        """Return a ledger that goes on from `checkpoint`. Raises `TypeError` or `ValueError` for anything
        else."""
        found = cls()
        shape = (len(memory), _STEPS)
        found._count, found._watts, found._hertz = np.zeros(shape), np.zeros(shape), np.zeros(shape)
        for model, steps in memory.items():
            row = found._rows[str(model)] = len(found._rows)
            for step, samples, watts, hertz in steps:
                numbers = np.array([samples, watts, hertz], dtype=float)
                if not 0 <= step < _STEPS or not np.isfinite(numbers).all() or (numbers <= 0).any():
                    raise ValueError(f"{model}: no samples of a step")
                found._count[row, int(step)], found._watts[row, int(step)], found._hertz[row, int(step)] = numbers
        return found

    def measured(self) -> list[ModelThroughput]:
        """Return the means of each model, by rising power."""
        found = []
        for model, row in self._rows.items():
            steps = np.flatnonzero(self._count[row] >= _LEAST_SAMPLES)
            points = [
                ThroughputPoint(
                    watts=round(float(self._watts[row, n] / self._count[row, n]), 1),
                    sm_clock_hertz=round(float(self._hertz[row, n] / self._count[row, n])),
                    hertz_per_watt=round(float(self._hertz[row, n] / self._watts[row, n])),
                    samples=int(self._count[row, n]),
                )
                for n in steps.tolist()
            ]
            if points:
                found.append(ModelThroughput(model=model, points=points))
        return found


def clock_at(points: Sequence[ThroughputPoint], watts: float) -> float | None:
    """Return the SM clock of a busy GPU at a power limit; None outside what was measured."""
    known = [point.watts for point in points]
    if not known or not known[0] - STEP_WATTS / 2 <= watts <= known[-1] + STEP_WATTS / 2:
        return None
    return float(np.interp(watts, known, [point.sm_clock_hertz for point in points]))
