"""Load of a job: one hour, second by second, repeated forever.

The load of a job is a table, so all values derived from it have a closed form. The energy of a
GPU up to any second needs the sum of the table up to there (kept as prefix sums) and the number of
whole hours before; the temperature needs the exponential response to the table, which repeats by
the hour as the table does, and so is a table too. Nothing has to be stepped through from 1970, and
no value depends on what was sampled before.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from functools import cache, lru_cache
from itertools import accumulate

from collector.simulated.random import draw, unit

HOUR = 3600
FULL_LEVEL = 0.9
"""Load from which on the GPU is at its power limit."""
_CORE_SECONDS = 28.0  # time constant of a GPU under its cooler
_DEEP_SECONDS = 120.0  # of its memory, and of the air around it
_CHECKPOINT_EVERY, _CHECKPOINT = 300, 8
_EVALUATION_EVERY, _EVALUATION_AT, _EVALUATION = 600, 440, 20
_STEPS = (10, 12, 15, 20)  # seconds; all divide 600, so any 10 minutes of training have one mean
_SLOT = 300


class LoadPhase(IntEnum):
    """Activity of a job in a second."""

    IDLE = 0
    TRAINING = 1
    INFERENCE = 2
    EVALUATION = 3


@dataclass(frozen=True, slots=True)
class LoadProgramme:
    """An hour of load. Each tuple has `HOUR` members, one a second."""

    level: tuple[float, ...]
    """Load from 0 (idle) to 1 (at the power limit)."""
    phase: tuple[LoadPhase, ...]
    core: tuple[float, ...]
    """Load with the thermal inertia of the GPU's core."""
    deep: tuple[float, ...]
    """Load with the slower thermal inertia of memory and air."""
    levels: tuple[float, ...]
    """Sum of `level` up to and with each second."""
    capped: tuple[int, ...]
    """Seconds at the power limit up to and with each second."""
    saving: tuple[int, ...]
    """Seconds in which a checkpoint was written, likewise."""

    @property
    def mean(self) -> float:
        """Mean load of the hour."""
        return self.levels[-1] / HOUR

    def levels_until(self, second: int) -> float:
        """Return the sum of the load from second 0 to `second`, both included; may be negative."""
        hours, index = divmod(second, HOUR)
        return hours * self.levels[-1] + self.levels[index]

    def capped_until(self, second: int) -> int:
        """Return the seconds at the power limit from 0 to `second`."""
        hours, index = divmod(second, HOUR)
        return hours * self.capped[-1] + self.capped[index]

    def saving_until(self, second: int) -> int:
        """Return the seconds of checkpoint writing from 0 to `second`."""
        hours, index = divmod(second, HOUR)
        return hours * self.saving[-1] + self.saving[index]


Moment = tuple[LoadPhase, float, bool]
"""Phase, load, and whether a checkpoint is being written."""


def _training(step: int, dip: int, low: float) -> Iterator[Moment]:
    """Yield steps that end in a dip while gradients are exchanged, with checkpoints in between."""
    for second in range(HOUR):
        if second % _CHECKPOINT_EVERY >= _CHECKPOINT_EVERY - _CHECKPOINT:
            yield LoadPhase.TRAINING, 0.22, True
        elif 0 <= second % _EVALUATION_EVERY - _EVALUATION_AT < _EVALUATION:
            yield LoadPhase.EVALUATION, 0.72, False
        else:
            yield LoadPhase.TRAINING, 1.0 if second % step < step - dip else low, False


def _inference(seed: int, variant: int) -> Iterator[Moment]:
    """Yield the load of requests: a level for each minute, with a ripple."""
    for second in range(HOUR):
        minute = 0.25 + 0.5 * unit(seed, "minute", variant, second // 60)
        ripple = 0.16 * (unit(seed, "ripple", variant, second) - 0.5)
        yield LoadPhase.INFERENCE, minute + ripple, False


def _evaluation(seed: int, variant: int) -> Iterator[Moment]:
    """Yield bursts of work, with pauses to load the next part."""
    pause = 10 + draw(seed, "pause", variant) % 10
    for second in range(HOUR):
        yield LoadPhase.EVALUATION, 0.08 if second % 60 < pause else 0.7, False


def _idle() -> Iterator[Moment]:
    return ((LoadPhase.IDLE, 0.0, False) for _ in range(HOUR))


def _mixed(seed: int, variant: int) -> Iterator[Moment]:
    """Yield the load of changing jobs: every five minutes another phase."""
    plays = (
        list(_idle()),
        list(_training(_STEPS[draw(seed, "mixed", variant) % len(_STEPS)], 2, 0.5)),
        list(_inference(seed, variant)),
        list(_evaluation(seed, variant)),
    )
    for second in range(HOUR):
        yield plays[draw(seed, "slot", variant, second // _SLOT) % len(plays)][second]


def _response(level: tuple[float, ...], seconds: float) -> tuple[float, ...]:
    """Return the exponential response to a load that repeats by the hour.

    Two rounds: after the first, the initial value has faded (e^-30).
    """
    state = level[-1]
    out: list[float] = []
    for _ in range(2):
        out = []
        for value in level:
            state += (value - state) / seconds
            out.append(state)
    return tuple(out)


def _of(moments: Iterator[Moment]) -> LoadProgramme:
    phases, levels, saves = zip(*moments, strict=True)
    return LoadProgramme(
        level=levels,
        phase=phases,
        core=_response(levels, _CORE_SECONDS),
        deep=_response(levels, _DEEP_SECONDS),
        levels=tuple(accumulate(levels)),
        capped=tuple(accumulate(int(level >= FULL_LEVEL) for level in levels)),
        saving=tuple(accumulate(int(save) for save in saves)),
    )


@cache
def desktop_training() -> LoadProgramme:
    """Return a fine-tuning over PCIe: two seconds of ten wait for the exchange."""
    return _of(_training(10, 2, 0.5))


@lru_cache(maxsize=64)
def cluster_training(seed: int, variant: int) -> LoadProgramme:
    """Return a large synchronous job on NVLink: short dips at the end of each step."""
    step = _STEPS[draw(seed, "step", variant) % len(_STEPS)]
    return _of(_training(step, 1 + step // 15, 0.55))


@lru_cache(maxsize=64)
def programme(seed: int, kind: str, variant: int) -> LoadProgramme:
    """Return one of the programmes of a fleet: `training`, `inference`, `evaluation`, `idle` or
    `mixed`; a variant differs in steps, pauses and levels."""
    match kind:
        case "training":
            return cluster_training(seed, variant)
        case "inference":
            return _of(_inference(seed, variant))
        case "evaluation":
            return _of(_evaluation(seed, variant))
        case "mixed":
            return _of(_mixed(seed, variant))
        case _:
            return _of(_idle())
