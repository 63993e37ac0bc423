"""The life of an alert: examples by rows, then what holds for every history."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts.engine.state_machine import AlertStateMachine, step
from alerts.rules.condition import BAD, GOOD, UNKNOWN, Evaluation
from alerts.rules.input import AlertPhase
from alerts.rules.row_memory import RowMemory

HOLD, KEEP = 3.0, 2.0
SECOND = 1_000_000_000


def lives(histories: list[list[int]]) -> list[list[int]]:
    """Play histories of verdicts, one a row and second; return each row's phases."""
    life = AlertStateMachine(RowMemory(len(histories)))
    phases: list[list[int]] = [[] for _ in histories]
    for tick in range(len(histories[0])):
        verdicts = np.array([history[tick] for history in histories], np.int8)
        before = life.phase.copy()
        fires, resolves = step(life, Evaluation(verdicts), now=float(tick), wall=tick * SECOND, hold=HOLD, keep=KEEP)
        assert set(fires) == set(np.flatnonzero((life.phase == AlertPhase.FIRING) & (before != AlertPhase.FIRING)))
        assert set(resolves["row"]) == set(
            np.flatnonzero((life.phase == AlertPhase.INACTIVE) & (before == AlertPhase.FIRING))
        )
        assert sorted(life.entries["row"]) == np.flatnonzero(life.phase).tolist()
        for row, phase in enumerate(life.phase):
            phases[row].append(int(phase))
    return phases


@pytest.mark.parametrize(
    ("given", "then"),
    [
        ("GGBBBBGGGG", "--PPPFFF--"),
        ("BBGBBBBGBG", "PP-PPPFFFF"),
        ("BUUBUUUU", "PPPFFFFF"),
        ("BBBBUUGUGG", "PPPFFFFF--"),
        ("UUUU", "----"),
    ],
)
def test_a_history_gives_a_life(given: str, then: str) -> None:
    verdicts = {"G": GOOD, "B": BAD, "U": UNKNOWN}
    letters = {AlertPhase.INACTIVE: "-", AlertPhase.PENDING: "P", AlertPhase.FIRING: "F"}
    [phases] = lives([[verdicts[letter] for letter in given]])
    assert "".join(letters[AlertPhase(phase)] for phase in phases) == then


HISTORIES = st.integers(1, 5).flatmap(
    lambda rows: st.integers(1, 40).flatmap(
        lambda ticks: st.lists(
            st.lists(st.sampled_from([GOOD, BAD, UNKNOWN]), min_size=ticks, max_size=ticks),
            min_size=rows,
            max_size=rows,
        )
    )
)


@given(HISTORIES)
def test_never_fires_early_never_moves_on_unknown_and_rows_mind_their_own(histories: list[list[int]]) -> None:
    for history, phases in zip(histories, lives(histories), strict=True):
        assert [phases] == lives([history])
        previous = int(AlertPhase.INACTIVE)
        for tick, (verdict, phase) in enumerate(zip(history, phases, strict=True)):
            if verdict == UNKNOWN:
                assert phase == previous
            if phase == AlertPhase.FIRING and previous != AlertPhase.FIRING:
                held = history[: tick + 1]
                since = max((at for at, v in enumerate(held) if v == GOOD), default=-1) + 1
                first = next(at for at in range(since, tick + 1) if held[at] == BAD)
                assert verdict == BAD
                assert tick - first >= HOLD
            if previous == AlertPhase.FIRING and phase == AlertPhase.INACTIVE:
                last_bad = max(at for at in range(tick) if history[at] == BAD)
                first_good = next(at for at in range(last_bad, tick + 1) if history[at] == GOOD)
                assert verdict == GOOD
                assert tick - first_good >= KEEP
            previous = phase


@given(HISTORIES)
def test_what_is_bad_for_long_enough_does_fire(histories: list[list[int]]) -> None:
    for history, phases in zip(histories, lives(histories), strict=True):
        run = 0
        for verdict, phase in zip(history, phases, strict=True):
            run = run + 1 if verdict == BAD else 0
            if run > HOLD:
                assert phase == AlertPhase.FIRING
