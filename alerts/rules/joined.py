"""How verdicts of several conditions become one, in three-valued logic."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from alerts.engine.row_memory import RowMemory
from alerts.rules.condition import (
    BAD,
    GOOD,
    UNKNOWN,
    ConditionInput,
    ConditionKind,
    Flags,
    Judgement,
    Verdicts,
    three,
)
from telemetry.inventory import Event


def any_of(parts: Sequence[ConditionKind], sight: ConditionInput, rows: RowMemory) -> Judgement:
    """Bad when one part is bad, good when all are good that can say anything."""
    judged = [part.judge(sight, rows.part(number)) for number, part in enumerate(parts)]
    bad = np.zeros(sight.size, np.bool_)
    unknown = np.zeros(sight.size, np.bool_)
    for judgement in judged:
        bad |= judgement.verdicts == BAD
        unknown |= judgement.verdicts == UNKNOWN
    if unknown.any() and sight.active.any():  # else nobody asks whether it is good
        unknown = _unknown(parts, judged, sight)
    return _told(judged, three(bad, unknown & ~bad))


def _unknown(
    parts: Sequence[ConditionKind], judged: Sequence[Judgement], sight: ConditionInput
) -> Flags:
    """Rows of which a part can't say anything now, or of which none ever can."""
    unknown = np.zeros(sight.size, np.bool_)
    silent = np.ones(sight.size, np.bool_)
    for part, judgement in zip(parts, judged, strict=True):
        abstains = part.abstains(sight)
        unknown |= (judgement.verdicts == UNKNOWN) & ~abstains
        silent &= abstains
    return unknown | silent


def all_of(parts: Sequence[ConditionKind], sight: ConditionInput, rows: RowMemory) -> Judgement:
    """Bad when all parts are bad, good when one is good."""
    judged = [part.judge(sight, rows.part(number)) for number, part in enumerate(parts)]
    good = np.zeros(sight.size, np.bool_)
    unknown = np.zeros(sight.size, np.bool_)
    for judgement in judged:
        good |= judgement.verdicts == GOOD
        unknown |= judgement.verdicts == UNKNOWN
    return _told(judged, three(~good, unknown & ~good))


def _told(judged: Sequence[Judgement], verdicts: Verdicts) -> Judgement:
    """Give each bad row the value of the first part that is bad and has one."""
    if not (verdicts == BAD).any():
        return Judgement(verdicts)
    values = np.full(len(verdicts), np.nan)
    limits = np.full(len(verdicts), np.nan)
    parts = np.zeros(len(verdicts), np.int8)
    causes: dict[int, Event] = {}
    for number, judgement in reversed(list(enumerate(judged))):
        here = judgement.verdicts == BAD
        if judgement.values is not None:
            here &= ~np.isnan(judgement.values)
            np.copyto(values, judgement.values, where=here)
        if judgement.values is not None or not causes:
            parts[here] = number
        limits[here] = np.nan
        if judgement.limits is not None:
            np.copyto(limits, judgement.limits, where=here)
        causes |= judgement.causes
    return Judgement(verdicts, values, limits, parts, causes)


def recall_parts(
    parts: Sequence[ConditionKind], event: Event, row: int, rows: RowMemory, at: float
) -> None:
    """Let each part remember an event of before the start."""
    for number, part in enumerate(parts):
        part.recall(event, row, rows.part(number), at)
