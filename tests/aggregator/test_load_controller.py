"""Shedding under load: what, in which order, and how it ends: every decision with its time given."""

from __future__ import annotations

import gc
import platform
from pathlib import Path

import numpy as np
import pytest

from aggregator.impairments import Impairments
from aggregator.load import heap
from aggregator.load.controller import CALM_SECONDS, LEAST_REFILL, SIGNALS, LoadController, ShedStep
from aggregator.load.heap import HeapFreezer, fill_heap, keep_heap, release_heap
from aggregator.load.meter import (
    HIGH_WATER,
    LOW_WATER,
    REMEMBERED_SECONDS,
    ArrivalClock,
    BacklogClock,
    memory_limit,
    resident_bytes,
)
from aggregator.load.shedder import LoadShedder
from aggregator.load.shedding import Shedding
from telemetry.fleet import Fleet
from tests.aggregator.node import inventory

LETTERS = {"c": 0.0, "b": 4.0, "h": 6.0, "S": 13.0}
"""Readings of `store`: calm, between the limits, high, severe."""


def play(timeline: str, controller: LoadController | None = None, begin: float = 0.0) -> str:
    """Return the step after each second of a timeline of readings, one letter a second."""
    controller = controller or LoadController()
    return "".join(
        str(int(controller.update(begin + second, {"store": LETTERS[letter]})))
        for second, letter in enumerate(timeline)
    )


@pytest.mark.parametrize(
    ("readings", "steps"),
    [
        ("cccccccc", "00000000"),
        ("hhc", "000"),
        ("hhhcc", "00111"),
        ("h" * 33, "0011" + "2" * 6 + "3" * 6 + "4" * 6 + "5" * 6 + "6" * 5),
        ("hhbhhbhhb", "000000000"),
        ("hhhbbbbbbbbbbbbbbbbbbbbb", "001111111111111111111111"),
        ("SSSSSSSSS", "012233445"),
    ],
    ids=[
        "calm sheds nothing",
        "a spike sheds nothing",
        "a lag of two seconds sheds the first part",
        "while it lags there is a step every two seconds, then every six, up to the last",
        "a lag must last without a break",
        "between the limits nothing changes",
        "a severe lag takes a step a second, then every two",
    ],
)
def test_steps_of_a_timeline(readings: str, steps: str) -> None:
    assert play(readings) == steps


def test_it_comes_down_one_step_after_each_calm_time() -> None:
    calm = int(CALM_SECONDS)
    found = play("hhhhh" + "c" * (2 * calm + 5))
    assert found == "00112" + "2" * calm + "1" * calm + "0" * 5


def test_spikes_between_the_limits_delay_the_way_down_and_do_not_bar_it() -> None:
    found = play("hhh" + "cccbcccb" * 6)
    assert found.endswith("0")
    assert found.index("0", 3) > 3 + CALM_SECONDS
    assert play("hhh" + "cb" * 30).endswith("1"), "half calm is not calm"


def test_a_step_down_that_was_too_early_makes_the_next_calm_time_longer() -> None:
    controller = LoadController()
    play("hhh" + "c" * 11, controller)
    assert controller.step is ShedStep.NOTHING
    play("h" * 7, controller, 20.0)
    assert controller.step is ShedStep.HALF_HISTORY
    play("c" * 15, controller, 27.0)
    assert controller.step is ShedStep.HALF_HISTORY, "ten calm seconds were too few before"
    play("c" * 6, controller, 42.0)
    assert controller.step is ShedStep.NOTHING


@pytest.mark.parametrize("signal", SIGNALS, ids=lambda signal: signal.name)
def test_every_measurement_alone_makes_it_shed_and_says_why(signal: object) -> None:
    from aggregator.load.controller import LoadSignal

    assert isinstance(signal, LoadSignal)
    assert signal.calm <= signal.high < signal.severe
    controller = LoadController()
    for second in range(3):
        controller.update(float(second), {signal.name: (signal.high + signal.severe) / 2})
    assert controller.step is ShedStep.HALF_HISTORY
    assert controller.reason.startswith(signal.text)


def test_missing_frames_are_requested_again_little_by_little() -> None:
    """Nothing while history is shed; then more and more, and less as soon as it is not calm."""
    controller = LoadController()
    assert controller.refill == 1.0
    play("hhh", controller)
    assert controller.refill == 0.0
    play("c" * 11, controller, 3.0)
    assert (controller.step, controller.refill) == (ShedStep.NOTHING, LEAST_REFILL)
    play("c" * 6, controller, 14.0)
    assert controller.refill == 2 * LEAST_REFILL
    play("b" * 5, controller, 20.0)
    assert controller.refill == LEAST_REFILL
    play("c" * 40, controller, 25.0)
    assert controller.refill == 1.0


def test_a_share_at_which_something_lagged_is_not_tried_again_at_once() -> None:
    """Else it would overshoot, shed and begin again, for as long as frames are missing."""
    controller = LoadController()
    play("hhh" + "c" * 60, controller)
    assert controller.refill == 1.0
    assert play("hhhhh", controller, 63.0) == "00000", "as while it was refilling less"
    play("c" * 25, controller, 68.0)
    assert controller.refill == 0.5
    play("hh" + "c" * 25, controller, 93.0)
    assert controller.refill == 0.25
    play("c" * 45, controller, 120.0)
    assert controller.refill == 0.5, "a minute later"
    play("c" * 60, controller, 165.0)
    assert controller.refill == 1.0


def test_refilling_is_given_up_before_any_live_frame() -> None:
    controller = LoadController()
    play("hhh" + "c" * 20, controller)
    assert (controller.step, controller.refill) == (ShedStep.NOTHING, 2 * LEAST_REFILL)
    assert play("hhhhh", controller, 23.0) == "00000"
    assert controller.refill == 0.0
    play("c", controller, 28.0)
    assert (controller.step, controller.refill) == (ShedStep.NOTHING, LEAST_REFILL)
    assert play("hhhhhhh", controller, 29.0) == "0000001", "and if that is not enough, the next step"


def test_the_order_is_history_then_viewers_then_metrics_of_devices() -> None:
    shedding = Shedding()
    found = []
    for step in ShedStep:
        shedding.step = step
        found.append(
            (
                all(shedding.history_of(f"node{number}") for number in range(100)),
                shedding.coalesces,
                shedding.viewer_seconds > 0,
                shedding.refuses_viewers,
                shedding.sheds("device_metrics"),
            )
        )
    assert [sum(row) for row in found] == [0, 0, 1, 2, 3, 4, 5]
    assert all(list(row) == sorted(row, reverse=True) for row in found)


def test_half_of_the_nodes_keep_their_history_at_first() -> None:
    shedding = Shedding(step=ShedStep.HALF_HISTORY)
    shed = sum(shedding.history_of(f"node{number}") for number in range(1000))
    assert 400 < shed < 600


def test_what_is_shed_is_an_impairment_until_it_is_not() -> None:
    impairments, shedding = Impairments(), Shedding()
    shedder = LoadShedder(shedding, impairments)
    for second in range(18):
        shedder.decide(float(second), {"ingest": 5.0})
    assert shedding.step is ShedStep.SLOW_VIEWERS
    found = {(one.rule, one.part, one.whole) for one in impairments.current()}
    assert found == {("overloaded", "load/history", False), ("overloaded", "load/viewers", False)}
    assert "messages of the broker wait unread for 5 s" in impairments.current()[0].reason
    for second in range(18, 100):
        shedder.decide(float(second), {})
    assert shedding.step is ShedStep.NOTHING
    assert impairments.current() == []
    assert shedding.seconds["history"] > shedding.seconds["viewers"] > 0
    assert shedding.seconds["device_metrics"] == 0


def test_a_loop_that_is_held_up_counts_for_a_second() -> None:
    shedding = Shedding()
    shedder = LoadShedder(shedding, Impairments())
    shedder.note_delay(10.0, 0.8)
    shedder.decide(10.0, {})
    assert shedding.readings["loop"] == 0.8
    shedder.note_delay(11.1, 0.01)
    shedder.decide(11.1, {})
    assert shedding.readings["loop"] == 0.01


def test_memory_is_measured_against_the_setting() -> None:
    shedding = Shedding()
    shedder = LoadShedder(shedding, Impairments(), memory_bytes=resident_bytes())
    readings = []
    for second in range(3):
        shedder.decide(float(second), {})
        readings.append(shedding.readings["memory"])  # the step up gives memory back
    assert max(readings) > 0.9
    assert shedding.step is not ShedStep.NOTHING
    assert "memory is at this share of its limit" in shedding.reason


def test_memory_that_does_not_fall_further_sheds_nothing_for_ever() -> None:
    controller = LoadController()
    for second in range(3):
        controller.update(float(second), {"memory": 0.87})
    assert (controller.step, controller.cause) == (ShedStep.HALF_HISTORY, "memory")
    for second in range(3, 20):
        controller.update(float(second), {"memory": 0.84})
    assert controller.step is ShedStep.NOTHING


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="the C library gives nothing back")
def test_a_step_for_memory_gives_back_what_is_free() -> None:
    blocks = [bytearray(2000) for _ in range(50_000)]
    kept = blocks[::50]
    del blocks
    before = resident_bytes()
    shedder = LoadShedder(Shedding(), Impairments(), memory_bytes=before)
    for second in range(3):
        shedder.decide(float(second), {})
    assert before - resident_bytes() > 25_000_000
    assert len(kept) == 1000


@pytest.mark.parametrize(
    ("lines", "files", "limit"),
    [
        ("0::/system.slice/kilowatch.service\n", {"system.slice/kilowatch.service/memory.max": "2147483648"}, 2147483648),
        ("0::/system.slice/kilowatch.service\n", {"system.slice/kilowatch.service/memory.max": "max", "system.slice/memory.max": "1073741824"}, 1073741824),
        ("0::/a\n", {"a/memory.max": "max"}, 0),
        ("5:memory:/box\n1:cpu:/box\n", {"memory/box/memory.limit_in_bytes": "536870912"}, 536870912),
        ("5:memory:/box\n", {"memory/box/memory.limit_in_bytes": "9223372036854771712"}, 0),
        ("", {}, 0),
    ],
    ids=["unit", "slice around it", "none", "version 1", "version 1 without", "no cgroup"],
)  # fmt: skip
def test_the_memory_limit_is_that_of_the_unit(tmp_path: Path, lines: str, files: dict[str, str], limit: int) -> None:
    proc = tmp_path / "cgroup"
    proc.write_text(lines)
    for name, text in files.items():
        (tmp_path / "fs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "fs" / name).write_text(text + "\n")
    assert memory_limit(proc, tmp_path / "fs") == limit


@pytest.mark.usefixtures("thawed_heap")
def test_what_a_grown_fleet_has_in_memory_is_no_work_for_the_collector() -> None:
    freezer = HeapFreezer()
    assert not freezer.update(50)
    assert gc.get_freeze_count() == 0
    assert freezer.update(1000)
    frozen = gc.get_freeze_count()
    assert frozen > 10_000
    assert not freezer.update(1050), "a few more nodes are no reason"
    assert freezer.update(1300)
    assert gc.get_freeze_count() >= frozen


def test_a_backlog_is_as_long_as_it_takes_to_read() -> None:
    """64 kB are none; a second's worth is a second; while none are read, it is as long as they wait."""
    clock = BacklogClock()
    for second in range(10):
        assert clock.update(float(second), LOW_WATER, second * 1_000_000) == 0.0
    assert clock.update(10.0, 1_500_000, 10_000_000) == pytest.approx(1.5)
    assert clock.update(11.0, 1_500_000, 10_000_000) == 2.0, "nothing was read since second 9"
    assert clock.update(17.0, 1_500_000, 10_000_000) == 8.0
    assert BacklogClock().update(5000.0, 1_500_000, 0) == 0.0, "nobody knows since when"


def test_we_are_behind_by_what_waits_longest() -> None:
    shedding = Shedding()
    assert shedding.behind() == 0.0
    shedding.readings = {"ingest": 3.0, "arrival": 40.0, "store": 90.0}
    assert shedding.behind() == 40.0


def test_nothing_waits_unread_for_longer_than_it_is_looked_at() -> None:
    """Seconds after a start next to nothing was read, and a division by it says an hour."""
    clock = BacklogClock()
    clock.update(5000.0, 70_000, 0)
    assert clock.update(5001.0, 1_500_000, 40) == 1.0
    assert clock.update(5020.0, 1_500_000, 900) == 20.0


def test_while_the_buffer_is_full_the_broker_waits_too() -> None:
    """At a high rate it holds a few hundredths of a second; that it stays full is the sign."""
    clock = BacklogClock()
    clock.update(0.0, 0, 0)
    found = [clock.update(float(s), HIGH_WATER + 1, s * 100_000_000) for s in range(1, 11)]
    assert found[0] == pytest.approx(1.0)
    assert found[-1] == pytest.approx(10.0)
    assert clock.update(11.0, HIGH_WATER, 1_100_000_000) < 0.1


class Arrivals:
    """A cluster whose clocks differ by seconds, each node with a frame a second."""

    def __init__(self, nodes: int = 200) -> None:
        self.clock, self.fleet = ArrivalClock(), Fleet()
        for number in range(nodes):
            self.fleet.place(inventory(f"n{number}", 1))
        self.clocks = np.random.default_rng(1).normal(40.0, 3.0, nodes)
        """Seconds by which each is ahead of ours."""
        self.now = 1000.0

    def play(self, seconds: int, queued: float = 0.0, silent: int = 0) -> float | None:
        """Return by how much frames come late, after so many seconds of frames that wait `queued`, and of
        which those of the first nodes are missing."""
        late = None
        for _ in range(seconds):
            self.now += 1.0
            for number, node in enumerate(self.fleet.nodes.values()):
                if number >= silent:
                    sampled = 1.7e9 + self.now - queued + self.clocks[number]
                    node.seen, node.sampled_at = self.now, round(sampled * 1e9)
            late = self.clock.update(self.now, self.fleet)
        return late


def test_what_a_broker_holds_shows_in_the_time_at_which_frames_come() -> None:
    arrivals = Arrivals()
    assert arrivals.play(60) == pytest.approx(0.0, abs=1e-3)
    for queued in range(1, 10):  # it grows by a second in two at most
        arrivals.play(2, queued=queued)
    assert arrivals.play(4, queued=9.0) == pytest.approx(9.0, abs=0.1)
    assert arrivals.play(10) == pytest.approx(0.0, abs=1e-3)


def test_a_rack_that_dies_is_no_queue_though_the_clocks_of_the_others_are_behind() -> None:
    arrivals = Arrivals()
    arrivals.clocks[:] = [0.0] * 105 + [-8.0] * 95
    arrivals.play(60)
    assert arrivals.play(10, silent=12) == pytest.approx(0.0, abs=1e-3)


def test_clocks_that_are_set_are_no_queue() -> None:
    arrivals = Arrivals()
    arrivals.play(60)
    arrivals.clocks -= 30.0
    assert arrivals.play(4) == pytest.approx(0.0, abs=1e-3)
    arrivals.clocks += 3600.0
    assert arrivals.play(4) == pytest.approx(0.0, abs=1e-3)


def test_what_lasts_becomes_usual() -> None:
    arrivals = Arrivals()
    arrivals.play(60)
    for queued in np.arange(0.0, 20.0, 0.5):
        arrivals.play(1, queued=queued)
    assert arrivals.play(4, queued=20.0) == pytest.approx(20.0, abs=0.1)
    assert arrivals.play(int(REMEMBERED_SECONDS), queued=20.0) == pytest.approx(0.0, abs=1e-3)


def test_a_node_that_comes_or_goes_changes_nothing_for_the_others() -> None:
    arrivals = Arrivals()
    arrivals.play(60)
    for queued in range(1, 6):
        arrivals.play(2, queued=queued)
    arrivals.fleet.remove("n0")
    arrivals.clocks = arrivals.clocks[1:]
    arrivals.fleet.place(inventory("new", 1))
    arrivals.clocks = np.append(arrivals.clocks, 0.0)
    assert arrivals.play(4, queued=5.0) == pytest.approx(5.0, abs=0.1)


def test_few_frames_leave_the_last_value_for_a_while_and_then_tell_nothing() -> None:
    arrivals = Arrivals()
    arrivals.play(60)
    for queued in range(1, 6):
        arrivals.play(2, queued=queued)
    assert arrivals.play(6, silent=180) == pytest.approx(5.0, abs=0.1)
    assert arrivals.play(12, silent=180) is None
    assert Arrivals(20).play(20) is None


@pytest.mark.usefixtures("thawed_heap")
def test_a_full_collection_is_rare_while_an_aggregator_runs() -> None:
    before = gc.get_threshold()
    keep_heap()
    try:
        assert gc.get_freeze_count() > 10_000
        assert gc.get_threshold() == heap.THRESHOLDS
    finally:
        release_heap()
    assert (gc.get_freeze_count(), gc.get_threshold()) == (0, before)


@pytest.mark.usefixtures("thawed_heap")
def test_nothing_is_collected_while_an_aggregator_starts() -> None:
    """Also where the start fails, which `release_heap` follows."""
    fill_heap()
    assert not gc.isenabled()
    keep_heap()
    assert gc.isenabled()
    fill_heap()
    release_heap()
    assert gc.isenabled()


def test_an_aggregator_that_ends_among_tests_leaves_them_out_of_collections() -> None:
    """Each that starts in this process would walk else all tests that were collected: `tests/conftest.py`."""
    before = gc.get_freeze_count()
    assert before > 10_000
    keep_heap()
    release_heap()
    assert gc.get_freeze_count() > before / 2, "what ended since is no longer counted"
