"""The dashboard stays lean: what noise of a machine can't break is bounded here, the rest is measured
by `python -m bench.dashboard`."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections import Counter

from textual.widget import Widget

from bench.dashboard import measure
from tests.tui.cluster import text_of, until
from tests.tui.test_app import staged
from tui.app import Top
from tui.feed.connection import ConnectionState


def test_ten_thousand_gpus_cost_little_in_a_real_terminal() -> None:
    """In a process and a terminal of its own, on a stage with faults. The goals are 80 ms, 200 kB and
    60 MB: a machine that is busy with other things may need more, but not three times as much."""
    seconds = 4.0
    found = measure(1250, seconds, 160, 50, settling=3.0)
    assert found.gpus == 10_000
    ticks = seconds + 1  # as many as fall into the time, at most
    assert 20 < found.kilobytes_per_second * seconds < 200 * ticks
    assert 0 < found.cpu_ms_per_second < 3 * 80
    assert 0 < found.first_paint_cpu_seconds < 3
    assert 30 < found.rss_megabytes < 90


def _intervals(app: Top) -> Counter[str]:
    """What repeats, by whose it is and how often."""
    pumps = [app, *app.screen_stack, *app.screen.query(Widget)]
    return Counter(
        f"{type(pump).__name__} {timer._interval:g}"
        for pump in pumps
        for timer in pump._timers
        if timer._repeat is None
    )


def _tasks() -> Counter[str]:
    """What runs for the feed for as long as it does, by name; not its single requests."""
    names = [task.get_name() for task in asyncio.all_tasks() if not task.done()]
    return Counter(name for name in names if name.startswith("dashboard") and "/" not in name)


async def test_nothing_is_doubled_by_going_around_nor_by_coming_back() -> None:
    """A timer, task or widget more for each view or each connection would be an hour's slow death."""
    async with staged((160, 50)) as (pilot, app, stage):
        before = (_intervals(app), len(app.screen.query(Widget)), _tasks())
        assert all(count == 1 for count in before[2].values())
        assert len(before[2]) >= 4
        for _ in range(3):
            await pilot.press("2", "enter", "escape", "3", "enter", "bracketright", "escape", "4")
            await pilot.press("5", "enter", "escape", "6", "7", "question_mark", "escape", "1")
            await pilot.press("t", "t", "slash", "escape", "colon", "escape", "R")
            await until(pilot, lambda text: "● LIVE" in text)
            await pilot.resize_terminal(80, 24)
            await pilot.resize_terminal(160, 50)
        for _ in range(240):
            after = (_intervals(app), len(app.screen.query(Widget)), _tasks())
            if after == before and app.feed.connection.state is ConnectionState.LIVE:
                break
            await stage.beat()
            await pilot.pause(0.05)
        assert after == before
        assert "● LIVE" in text_of(app)


def test_the_way_to_the_first_picture_loads_no_server() -> None:
    """aiohttp and DuckDB are a third of the memory and of the start, and nothing here needs them."""
    code = """
import sys
from tui.top import prepare
prepare()
import tui.app
print(sorted({"aiohttp", "duckdb", "resvg_py", "aggregator"} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
