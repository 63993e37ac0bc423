"""The last minutes: small, bounded, and the same when they are read again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from api.power import CircuitsReply
from tests.tui.test_lines import HOT, incidents, state
from tui.frame.lines import bar_line
from tui.past.frame_cache import pack_table, unpack_table
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CIRCUITS
from tui.state.gpus import GpuRows, Gpus
from tui.state.readings import POWER
from tui.time.recent_frames import MOST_BYTES, RecentFrames, pack, unpack
from tui.time.timebar import TimeControls

SECOND = 10**9


def frame(at: int, gpus: int = 4, watts: float = 100.0) -> DashboardState:
    """A state of one instant."""
    who = GpuRows(["n"] * gpus, list(range(gpus)), [f"G{n}" for n in range(gpus)], ["H100"] * gpus, [True] * gpus)
    column = np.full(gpus, watts)
    column[0] = np.nan
    return replace(
        state(incidents(1), [HOT]), gpus=Gpus(1, who, {POWER: column}, {POWER: {"*": "stale"}}), at=at * SECOND
    )


def test_a_frame_is_read_as_it_was() -> None:
    before = frame(100, watts=412.25)
    after = unpack(pack(before))
    assert np.array_equal(after.gpus.columns[POWER], before.gpus.columns[POWER], equal_nan=True)
    assert (after.gpus.gaps, after.at, after.status) == (before.gpus.gaps, before.at, before.status)
    assert [i.key for i in after.incidents] == [i.key for i in before.incidents]
    assert after.circuits == before.circuits


def test_ten_thousand_gpus_fit_for_ten_minutes() -> None:
    recent = RecentFrames()
    noise = np.random.default_rng(1)
    for second in range(0, 600, 5):
        shown = frame(second + 1, gpus=10_000)
        columns = {POWER: noise.normal(500, 90, 10_000).round(1)}
        recent.add(replace(shown, gpus=replace(shown.gpus, columns=columns)))
    assert len(recent) == 120
    assert sum(packed.size for packed in recent.frames) < MOST_BYTES


def test_a_frame_of_before_circuits_were_known_does_not_say_that_there_are_none() -> None:
    assert DashboardState().circuits_unknown == "loading …"
    recent = RecentFrames()
    recent.add(replace(frame(1), docs={}))
    assert "nothing was known of circuits yet" in recent.state(0).circuits_unknown
    none = CircuitsReply(at=5, circuits=[])
    recent.add(frame(2).with_doc(CIRCUITS, none, 2.0))
    assert recent.state(1).circuits_unknown == ""
    failed = frame(3).with_doc(CIRCUITS, CircuitsReply(at=6, failure="a fault"), 3.0)
    assert failed.circuits_unknown == "no circuit is monitored: a fault"


def test_frames_that_come_too_fast_and_states_without_data_are_not_held() -> None:
    recent = RecentFrames()
    recent.add(DashboardState())
    for second in (1, 1, 2, 3):
        recent.add(frame(second))
    assert [packed.at // SECOND for packed in recent.frames] == [1, 2, 3]
    assert [recent.nearest(at * SECOND) for at in (0, 1, 2, 9)] == [0, 0, 1, 2]


def test_the_clock_steps_jumps_and_comes_back_to_now() -> None:
    clock = TimeControls()
    for second in range(100, 300, 2):
        clock.recent.add(frame(second, watts=float(second)))
    newest = frame(300, watts=300.0)
    assert clock.state(newest) is newest
    clock.step(-1, newest)
    assert clock.state(newest).at == 298 * SECOND
    clock.jump(-60, newest)
    assert clock.state(newest).at == 238 * SECOND
    assert clock.words(newest.at, utc=True) == "00:03:58Z (-62s)"
    clock.jump(-6000, newest)
    assert clock.state(newest).at == 100 * SECOND
    clock.jump(6000, newest)
    assert clock.state(newest) is newest
    clock.step(-1, newest)
    clock.close()
    assert not clock.replaying


def test_jumping_from_alert_to_alert() -> None:
    clock = TimeControls()
    for second in range(50, 80):
        clock.recent.add(frame(second))
    newest = frame(80)
    clock.to_alert(newest, -1)  # the incident began at 66
    assert clock.state(newest).at == 67 * SECOND
    clock.to_alert(newest, 1)
    assert not clock.replaying


def test_a_pause_holds_the_state_and_the_bar_shows_the_time() -> None:
    clock = TimeControls()
    first, second = frame(1), frame(2)
    clock.pause(first, 10.0)
    assert clock.state(second) is first
    clock.pause(second, 11.0)
    assert clock.state(second) is second
    assert "no recent frames" in bar_line(clock, first, 80, utc=True)[0][0]
    clock.recent.add(first)
    clock.recent.add(second)
    clock.step(-1, second)
    assert clock.state(second).at == first.at
    drawn = "".join(text for text, _ in bar_line(clock, second, 80, utc=True))
    assert "●" in drawn
    assert len(drawn) <= 80


@pytest.mark.parametrize("width", [20, 80, 160])
def test_the_bar_fits(width: int) -> None:
    clock = TimeControls()
    for second in range(60, 70):
        clock.recent.add(frame(second))
    assert sum(len(text) for text, _ in bar_line(clock, frame(70), width, utc=True)) <= max(width, 26)


def test_kept_readings_are_near_and_gaps_stay_gaps() -> None:
    """Small flags and whole watts are exact, all else is off by 1 in 4,000 at most."""
    noise = np.random.default_rng(3)
    table = np.concatenate([
        noise.normal(500, 90, (3, 2000)), 10.0 ** noise.uniform(-12, 12, (2, 2000)),
        np.arange(2000)[None], noise.integers(0, 2, (1, 2000)).astype(float),
    ])  # fmt: skip
    table[1, 5], table[2, 7], table[3, 9] = np.nan, -0.0, -41.5
    again = unpack_table(pack_table(table), len(table))
    assert np.array_equal(np.isnan(again), np.isnan(table))
    assert np.array_equal(again[5:], table[5:])
    assert np.allclose(again, table, rtol=1 / 4000, atol=0, equal_nan=True)
    assert unpack_table(pack_table(np.empty((0, 9))), 0).size == 0
    assert len(pack_table(table[:3])) < 2 * 6000
