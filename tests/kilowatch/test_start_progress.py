"""What a start says that it waits for, by its figures."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from collector.config import CollectorConfig
from kilowatch.stack.collectors import AT_ONCE, LocalCollectors, Sampled, StackPart
from kilowatch.stack.start import StartProgress
from telemetry.text.log_lines import ManyNodes


def told(progress: StartProgress, *steps: tuple[float, int, int, int]) -> list[str]:
    """What is said at each (second, nodes that report, collectors that were started, frames)."""
    return [
        progress.update(at, reporting=reporting, started=started, frames=frames).waits
        for at, reporting, started, frames in steps
    ]


def test_the_progress_is_told_until_all_report() -> None:
    progress = StartProgress(1250, 0.0)
    assert told(progress, (0, 0, 0, 0), (1, 312, 320, 400), (5, 1250, 1250, 3000)) == [
        "0 of 1,250 nodes report",
        "312 of 1,250 nodes report",
        "",
    ]


def test_a_start_without_progress_says_so_and_goes_on() -> None:
    """For as long as it takes: there is no limit at which it is given up."""
    progress = StartProgress(40, 0.0)
    assert told(progress, (1, 8, 8, 8), (20, 8, 8, 90), (600, 8, 8, 4000), (601, 16, 16, 4100)) == [
        "8 of 40 nodes report",
        "8 of 40 nodes report",
        "8 of 40 nodes report, no other for 9 min 59 s: the machine is busy",
        "16 of 40 nodes report",
    ]


def test_a_machine_that_is_too_small_says_how_many_nodes_it_carries() -> None:
    """By the frames that come once all collectors are started, twice in a row, as long as that is so."""
    progress = StartProgress(1000, 0.0)
    words = told(
        progress, (30, 900, 1000, 5000), (40, 1000, 1000, 11_000), (50, 1000, 1000, 17_500), (60, 990, 1000, 27_500)
    )
    assert words == [
        "900 of 1,000 nodes report",
        "",
        "1,000 of 1,000 nodes report: this machine carries about 650 at a reading a second, see --nodes",
        "",
    ]


def test_a_node_that_fails_says_nothing_of_the_machine() -> None:
    progress = StartProgress(100, 0.0)
    steps = [
        (10.0 * step, 100 - 60 * (step > 3), 100, 1000 * min(step, 3) + 400 * max(0, step - 3)) for step in range(9)
    ]
    assert set(told(progress, *steps)) == {""}


def test_a_machine_of_its_own_may_read_as_rarely_as_it_likes() -> None:
    progress = StartProgress(1, 0.0)
    assert set(told(progress, *((10.0 * step, 1, 1, 2 * step) for step in range(9)))) == {""}


def test_nodes_that_are_silent_by_the_scenario_are_not_waited_for() -> None:
    progress = StartProgress(10, 0.0)
    assert told(progress, (1, 9, 10, 9), (12, 9, 10, 108), (22, 9, 10, 198)) == [
        "9 of 10 nodes report",
        "9 of 10 nodes report",
        "",
    ]


async def test_collectors_that_are_stopped_before_their_start_do_not_start(tmp_path: Path) -> None:
    """Of more than are started at once, none waits for a place."""
    parts = [
        StackPart(
            CollectorConfig(node=f"n{number}", source="simulated:desktop-4x5090", state_dir=tmp_path / str(number))
        )
        for number in range(2 * AT_ONCE)
    ]
    collectors = LocalCollectors(parts)
    assert collectors.frames is None
    collectors.stop()
    assert await collectors.run() == Sampled()
    assert collectors.frames == 0


def test_what_many_nodes_log_alike_is_one_line() -> None:
    now = [0.0]
    lines = ManyNodes(lambda: now[0])

    def line(node: str, problem: str) -> str | None:
        record = logging.LogRecord("publisher", logging.WARNING, "", 0, "node=%s %s", (node, problem), None)
        return record.getMessage() if lines.filter(record) else None

    assert line("n1", "no broker") == "node=n1 no broker"
    assert [line(f"n{number}", "no broker") for number in range(2, 1250)] == [None] * 1248
    assert line("n2", "a full disk") == "node=n2 a full disk"
    now[0] = 61.0
    assert line("n7", "no broker") == "node=n7 no broker (and 1,248 lines like this one before)"
    assert line("n8", "no broker") is None


@pytest.mark.parametrize("arguments", [(), (7,), None], ids=["none", "another form", "no tuple"])
def test_other_lines_are_left_alone(arguments: tuple[object, ...] | None) -> None:
    lines = ManyNodes()
    for _ in range(2):
        record = logging.LogRecord("store", logging.WARNING, "", 0, "store: late", arguments, None)
        assert lines.filter(record)
