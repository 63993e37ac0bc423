"""The time bar over what the aggregator has stored, driven by keys on a real store and API."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from textual.pilot import Pilot

from aggregator.http.operations import OPERATIONS
from api.alerts import Incident
from power.snapshot.snapshot import PowerSnapshot
from telemetry.errors import StoreError
from telemetry.text import time_of_day
from tests.aggregator.feed import HOUR
from tests.aggregator.node import START, sampled_at
from tests.kit.waiting import within
from tests.tui.cluster import text_of, until
from tests.tui.past_store import LAST, LATE, SECOND, SILENT, PastStore, dashboard, watts


@pytest.fixture
def view(tmp_path: Path) -> PastStore:
    """Ten minutes that no dashboard has seen."""
    return PastStore(tmp_path)


def at(second: int) -> str:
    """A second as the header has it."""
    return time_of_day(sampled_at(second))


async def press(pilot: Pilot[None], *keys: str, holds: Callable[[str], bool]) -> str:
    """Press keys, then wait until the screen says something."""
    await pilot.press(*keys)
    return await until(pilot, holds)


async def go(pilot: Pilot[None], when: str, second: int) -> str:
    """To a time, and wait until that is shown."""
    await pilot.press("T", *when, "enter")
    return await until(pilot, lambda text: f"REPLAY {at(second)}" in text)


async def test_the_bar_reaches_to_where_the_store_begins(view: PastStore) -> None:
    async with dashboard(view) as (pilot, app):
        text = await press(pilot, "t", holds=lambda text: f"◀ {time_of_day(START)}" in text)
        assert f"{at(LAST - 1)} ▶" in text
        await press(pilot, *"}}}", holds=lambda text: "● LIVE" in text)
        text = await go(pilot, "-1h", 0)
        assert f" {watts(0):.0f}/700" in text
        assert app.context.time.replaying


async def test_a_time_before_the_store_begins_is_its_begin_and_the_screen_says_so(view: PastStore) -> None:
    """Whether it is known by then where it begins, or not."""
    line_text = f"nothing is stored before {time_of_day(START)}: that is shown"
    async with dashboard(view) as (pilot, app):
        assert app.context.time.past is not None
        assert not app.context.time.past.known.probed
        for _ in range(2):
            await pilot.press("T", *"-1h", "enter")
            await until(pilot, lambda _: line_text in [each.message for each in app._notifications])
            await until(pilot, lambda text: f"REPLAY {at(0)}" in text)
            text = await until(pilot, lambda text: f" {watts(0):.0f}/700" in text)
            assert "no node" not in text
            app.clear_notifications()
            await press(pilot, "L", holds=lambda text: "● LIVE" in text)


async def test_a_time_whose_stored_files_were_removed_is_incomplete(view: PastStore) -> None:
    """As the header says, for exactly that time."""
    feed = view.feed
    feed.wall += HOUR
    feed.seal()
    feed.wall -= HOUR
    for path in (feed.config.data_dir / "sealed" / "gpu_fast").glob("*.parquet"):
        path.unlink()
    async with dashboard(view) as (pilot, _):
        await pilot.press("T", *"-5m", "enter")
        await until(pilot, lambda text: "REPLAY" in text and ", incomplete" in text)
        await press(pilot, "L", holds=lambda text: "LIVE" in text and "incomplete" not in text)


async def test_alerts_of_the_past_are_loading_until_they_have_come(view: PastStore) -> None:
    view.happened_at(250, 350, "the rack was warm")
    gate, history = asyncio.Event(), view.delivery.history

    async def gated(since: int, limit: int) -> list[Incident]:
        await gate.wait()
        return await history(since, limit)

    view.delivery.history = gated  # type: ignore[method-assign]
    async with dashboard(view) as (pilot, _):
        text = await go(pilot, at(300)[:8], 300)
        assert "alerts …" in text
        assert "no alerts" not in text
        gate.set()
        await until(pilot, lambda text: "the rack was warm" in text)


async def test_going_to_a_time_that_is_not_loaded(view: PastStore) -> None:
    """Every screen shows that second: its readings, its nodes, its sums."""
    async with dashboard(view) as (pilot, _):
        text = await go(pilot, at(300)[:8], 300)
        assert f" {watts(300):.0f}/700" in text
        assert f" {watts(300, 1):.0f}/700" in text
        assert "GPU 2/2" in text  # node late joined at 400
        text = await press(pilot, "2", holds=lambda text: "early" in text)
        assert "late" not in text
        await press(pilot, "3", holds=lambda text: f"{watts(300):.0f}/700" in text)
        text = await go(pilot, "-1m", LAST - 61)
        assert "GPU 4/4" in text
        await press(pilot, "L", holds=lambda text: "● LIVE" in text and "GPU 4/4" in text)


async def test_steps_and_jumps_go_on_through_what_is_stored(view: PastStore) -> None:
    async with dashboard(view) as (pilot, _):
        await go(pilot, at(300)[:8], 300)
        for keys, second in (("[", 299), ("[[", 297), ("]", 298), ("{", 238), ("}", 298)):
            names = {"[": "left_square_bracket", "]": "right_square_bracket",
                     "{": "left_curly_bracket", "}": "right_curly_bracket"}  # fmt: skip
            text = await press(
                pilot,
                *(names[key] for key in keys),
                holds=lambda text, second=second: f"REPLAY {at(second)}" in text,  # type: ignore[misc]
            )
            assert f" {watts(second):.0f}/700" in text
        await press(pilot, "escape", holds=lambda text: "● LIVE" in text and "◀" not in text)


async def test_a_time_of_which_nothing_is_stored_shows_nothing(view: PastStore) -> None:
    """No older reading in its place."""
    second = SILENT.start + 10
    async with dashboard(view) as (pilot, app):
        text = await go(pilot, at(second)[:8], second)
        assert "GPU 0/2" in text
        assert "—/700" in text  # limits are read every 15 s, and stand for three of them
        assert f"{watts(SILENT.start - 1):.0f}/" not in text
        assert [line.state for line in app.context.shown.nodes] == ["stale"]
        assert app.context.shown.gpus.gap("gpu_power_watts", 0) == "stale"


async def test_while_it_loads_the_screen_says_so_and_the_newest_wish_wins(view: PastStore) -> None:
    """What was shown stays, under its own time; of many wishes the last one alone is answered."""
    async with dashboard(view) as (pilot, app):
        await go(pilot, at(500)[:8], 500)
        await until(pilot, lambda _: "gpu" in view.asked)
        view.gate.clear()
        asked = len(view.asked)
        text = await press(pilot, *["left_curly_bracket"] * 6, holds=lambda text: f"LOADING {at(140)}" in text)
        still = next(second for second in (500, 440) if f"still {at(second)}" in text)
        assert f" {watts(still):.0f}/700" in text
        assert app.view.faded
        view.gate.set()
        text = await until(pilot, lambda text: f"REPLAY {at(140)}" in text)
        assert f" {watts(140):.0f}/700" in text
        assert not app.view.faded
        await until(pilot, lambda _: len(view.asked) > asked)
        assert len(view.asked) - asked <= 2 * 7  # two tables a wish at most, and what comes next


async def test_frames_ahead_are_fetched_before_they_are_wanted(view: PastStore) -> None:
    async with dashboard(view) as (pilot, app):
        await go(pilot, at(500)[:8], 500)
        past = app.context.time.past
        assert past is not None
        async with within():
            while past.cache.find(sampled_at(440)) is None:
                await pilot.pause(0.05)
        view.gate.clear()
        text = await press(pilot, "left_curly_bracket", holds=lambda text: f"REPLAY {at(440)}" in text)
        assert f" {watts(440):.0f}/700" in text


async def test_jumping_to_alerts_from_before_this_dashboard(view: PastStore) -> None:
    """And sees them as they stood: firing, or over, or not yet begun."""
    view.happened_at(100, 150, "a fan failed")
    view.happened_at(320, None, "it is hot")
    async with dashboard(view) as (pilot, app):
        text = await press(pilot, "t", holds=lambda text: text.count("▲") >= 2)
        text = await press(pilot, "less_than_sign", holds=lambda text: f"REPLAY {at(321)}" in text)
        assert "it is hot" in text
        assert "a fan failed" not in text
        text = await press(pilot, "less_than_sign", holds=lambda text: f"REPLAY {at(101)}" in text)
        assert "a fan failed" in text
        assert "it is hot" not in text
        assert [alert.state for alert in app.context.shown.alerts] == ["firing"]
        text = await go(pilot, at(170)[:8], 170)
        assert "a fan failed" not in text
        await press(pilot, "greater_than_sign", holds=lambda text: f"REPLAY {at(321)}" in text)
        await press(pilot, "5", holds=lambda text: "it is hot" in text and "early" in text)


async def test_a_gpus_page_and_its_charts_are_of_that_time(view: PastStore) -> None:
    """The chart holds the instant, marked, and what came after it."""
    async with dashboard(view, (120, 40)) as (pilot, app):
        app.open("gpu", "GPU-early-0")
        await until(pilot, lambda text: "GPU-early-0" in text and "Power W" in text)
        await pilot.press("minus")  # five minutes
        await go(pilot, at(300)[:8], 300)
        text = await until(pilot, lambda text: f"{watts(300):.0f}" in text and "▲" in text and "loading" not in text)
        page = app.view.record()
        assert page.at == sampled_at(300)
        assert page.readings["gpu_power_watts"] == watts(300)
        assert at(LAST - 1)[:5] not in text.splitlines()[0]
        history = next(doc.value for path, doc in app.context.shown.docs.items() if "gpu_power_watts" in path)
        assert history.start < sampled_at(300) < history.end  # type: ignore[attr-defined]
        assert history.end - history.start == 300 * SECOND  # type: ignore[attr-defined]


def tape(view: PastStore, seconds: range) -> None:
    """Let the aggregator have kept what the circuit carried: as many watts as it was o'clock."""
    electrical = view.electrical
    for second in seconds:
        snapshots = electrical.snapshots(view.fleet, view.now() + second, sampled_at(second))
        assert snapshots is not None
        circuit = snapshots.circuit
        loads = {
            name: np.full(len(values), float(second) if name == "circuit_watts" else 0.5)
            for name, values in circuit.columns.items()
        }
        kept = PowerSnapshot(circuit.kind, circuit.version, circuit.names, loads)
        electrical.snapshot_log.add(sampled_at(second), 1, [kept])


async def test_circuits_are_those_that_were_computed_then(view: PastStore) -> None:
    tape(view, range(290, 320, 10))
    async with dashboard(view) as (pilot, app):
        await go(pilot, at(304)[:8], 304)
        await press(pilot, "4", holds=lambda text: "300 W" in text and "wall" in text)
        assert app.context.shown.circuits_at == sampled_at(300)
        await go(pilot, at(100)[:8], 100)
        await until(pilot, lambda _: not app.context.shown.circuits)
        assert "300 W" not in text_of(app)


async def test_the_chart_of_a_circuit_begins_before_this_dashboard_did(view: PastStore) -> None:
    """And ends at the instant that is shown."""
    tape(view, range(0, LAST, 10))
    async with dashboard(view, (120, 40)) as (pilot, app):
        app.open("circuit", "wall")
        await until(pilot, lambda _: len(app.context.circuit_load("wall")[0]) >= 59)
        times, loads = app.context.circuit_load("wall")
        assert (loads[:59] == np.arange(0, 590, 10)).all()
        assert times[0] == sampled_at(0)
        await go(pilot, at(304)[:8], 304)
        await until(pilot, lambda _: app.context.circuit_load("wall")[0][-1:] == [sampled_at(300)])
        await until(pilot, lambda text: "load W" in text and "under five" not in text)


async def test_space_plays_four_times_as_fast_and_stops(view: PastStore) -> None:
    now = [1000.0]
    async with dashboard(view, clock=lambda: now[0]) as (pilot, app):
        await go(pilot, at(300)[:8], 300)
        await press(pilot, "space", holds=lambda text: "4x" in text)
        now[0] += 0.5
        await until(pilot, lambda text: f"REPLAY {at(302)}" in text and "4x" in text)
        text = await press(pilot, "space", holds=lambda text: "4x" not in text)
        now[0] += 10.0
        app.time_keys.play()  # as its timer does
        assert app.context.time.at == sampled_at(302)
        assert f"REPLAY {at(302)}" in text_of(app)
        assert f" {watts(302):.0f}/700" in text
        await go(pilot, "-2s", LAST - 4)  # what is younger is not all stored
        await press(pilot, "space", holds=lambda text: "4x" in text)
        now[0] += 1.0
        await until(pilot, lambda text: "● LIVE" in text)


async def test_a_failing_store_is_reported_on_the_bar_and_retried(
    view: PastStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with dashboard(view) as (pilot, app):
        await press(pilot, "t", holds=lambda text: f"◀ {time_of_day(START)}" in text)

        def broken(*_: object) -> object:
            raise StoreError("the disk is full of sand")

        with monkeypatch.context() as patch:
            patch.setattr("tui.past.reader.AGAIN", 0.2)
            patch.setattr(view.store, "past", broken)
            await pilot.press("T", *at(300)[:8], "enter")
            text = await until(pilot, lambda text: "full of sand" in text)
            assert f"{at(300)} can't be loaded" in text
            assert f"LOADING {at(300)}" in text
        text = await until(pilot, lambda text: f"REPLAY {at(300)}" in text)
        assert f" {watts(300):.0f}/700" in text
        assert app.is_running


async def test_an_aggregator_without_a_past_is_reported(view: PastStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of an older release: live it is as good as ever."""
    older = tuple(each for each in OPERATIONS if each.path != "/api/v1/fleet/frames")
    monkeypatch.setattr("aggregator.assembly.http_server.OPERATIONS", older)
    async with dashboard(view) as (pilot, app):
        await pilot.press("T", *at(300)[:8], "enter")
        text = await until(pilot, lambda text: "can't be loaded" in text)
        assert "there is nothing at /api/v1/fleet/frames" in text
        assert "REPLAY" not in text
        await press(pilot, "escape", holds=lambda text: "● LIVE" in text)
        assert app.is_running


async def test_a_wider_bar_and_a_time_that_is_none(view: PastStore) -> None:
    async with dashboard(view) as (pilot, app):
        await press(pilot, "t", "minus", holds=lambda _: app.context.time.length == 0)
        await press(pilot, "plus", "plus", holds=lambda _: app.context.time.length == 2)
        text = await press(pilot, "T", *"noon", "enter", holds=lambda text: "is not a past time" in text)
        assert "18:02" in text
        await press(pilot, "escape", holds=lambda text: "no time that" not in text)
        assert not app.context.time.replaying
        assert LATE > 0
