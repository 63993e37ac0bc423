"""Every screen at 80x24 as a picture, and maps of 10,000 GPUs as text: seeded, with a clock that only
the test moves."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from textual.pilot import Pilot
from textual.widgets import Input

from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from bench.live_fleet import LiveFleet
from tests.aggregator.fake_view import give_jobs
from tests.tui.cluster import text_of as plain
from tests.tui.cluster import until
from tests.tui.picture import FOLDER, differs, svg_of, text_of
from tui.app import Top
from tui.feed.connection import ConnectionState
from tui.state.documents import BUDGETS, CHAIN, CIRCUITS, INCIDENTS, POWER_PAGE, TODAY

SCREENS: dict[str, tuple[tuple[str, ...], str]] = {
    "overview": (("1",), "Alerts by cause"),
    "nodes": (("2",), "worst alert"),
    "gpus": (("3",), "clock limit"),
    "circuits": (("4",), "what next"),
    "alerts": (("5", "space"), "1 marked"),
    "pools": (("6",), "islands"),
    "energy": (("7",), "Energy and cost"),
    "jobs": (("8",), "8801 pretrain"),
    "fleet": (("9",), "Drift: who"),
    "node": (("2", "down", "enter"), "mem°C"),
    "gpu": (("2", "down", "enter", "down", "enter"), "Power W"),
    "circuit": (("4", "s", "enter"), "of what trips it"),
    "incident": (("5", "enter"), "what happened"),
    "compare": (("3", "down", "c", "down", "c", "C"), "utilisation"),
    "help": (("5", "question_mark"), "Help: Alerts"),
    "palette": (("1", "colon", *"node-0005"), "▶ node"),
    "filter": (("3", "slash", *"powr>3"), "^"),
    "ack": (("5", "a"), "Acknowledge"),
    "silence": (("5", "S"), "will hide"),
    "then": (("3", "v"), "Now against then"),
}
"""Keys that lead to each screen, and a word by which it is known."""
MAPS = {"map_160x50": (160, 50), "map_80x24": (80, 24)}
SELDOM = (POWER_PAGE, BUDGETS, TODAY, CHAIN)
"""What the dashboard asks for now and then."""
REMEMBERED = ("gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio", "gpu_memory_used_bytes")


async def beat(stage: LiveFleet) -> None:
    """One second, of which the store keeps the GPUs' readings."""
    await stage.beat()
    for metric in REMEMBERED:
        for (_, gpu), value in zip(
            [entry for entry in stage.fleet.gpus if entry], stage.fleet.column(metric, stage.now()), strict=False
        ):
            kept = stage.memory.values.setdefault((gpu.uuid, metric), [])
            kept.append((stage.wall(), float(value)))


@asynccontextmanager
async def still(stage: LiveFleet, size: tuple[int, int]) -> AsyncIterator[tuple[Pilot[None], Top]]:
    """A dashboard on a stage, with the stage's clock."""
    async with listening(stage, HttpConfig(listen="127.0.0.1:0")) as (host, port):
        app = Top(f"http://{host}:{port}", every=0.2, clock=stage.now, who="ops", write=True)
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda text: "CRIT" in text and "site-a" in text)
            yield pilot, app


async def follow(app: Top, pilot: Pilot[None], stage: LiveFleet) -> None:
    """Wait until the dashboard shows the last beat, all of it."""
    app.feed.hurry(CIRCUITS, INCIDENTS, *SELDOM)
    at, now = stage.wall(), stage.now()
    wall = float(stage.fleet.column("node_wall_power_watts", now)[2])

    def there(_: str) -> bool:
        state = app.feed.state
        return (
            app.context.shown.at == at
            and at in app.context.circuit_load("PDU-002A")[0]
            and state.status_came == now
            and abs(state.wall.get("node-0002", 0.0) - wall) < 0.5
            and all(state.came(path) == now for path in SELDOM)
        )

    await until(pilot, there, 1000)


async def settled(pilot: Pilot[None], app: Top, word: str) -> None:
    """Wait until a screen is there, with all its documents, and moves no more."""
    for entry in app.screen.query(Input):
        entry.cursor_blink = False
    await until(
        pilot,
        lambda text: word in text and "loading …" not in text and app.feed.connection.state is ConnectionState.LIVE,
        2000,
    )
    before = ""
    for _ in range(100):
        app.redraw()  # with a clock that stands still, nothing else does
        await pilot.pause()
        # Without a beat the stream says nothing, and after ten seconds the line counts as dead.
        live = app.feed.connection.state is ConnectionState.LIVE
        found = svg_of(app) if live else ""
        if live and found == before:
            return
        before = found
        await pilot.pause(0.15)
    raise AssertionError(f"it never came to rest:\n{plain(app)}")


async def home(pilot: Pilot[None], app: Top) -> None:
    """Close what is open, and undo what was done."""
    while len(app.screen_stack) > 1:
        app.pop_screen()
        await pilot.pause()
    app.clear_notifications()
    app.view.marked = frozenset()  # type: ignore[attr-defined]  # of the alerts; no harm elsewhere
    app.context.tray.clear()
    await pilot.press("escape", "escape", "escape", "escape")
    view = app.root.query_one("#view-circuits")
    view.sort = ""  # type: ignore[attr-defined]
    app.go("overview")
    await pilot.pause()


async def test_every_screen_looks_as_it_did() -> None:
    stage = LiveFleet(8, still=True)
    for _ in range(30):
        await beat(stage)
    changed = []
    async with still(stage, (80, 24)) as (pilot, app):
        await follow(app, pilot, stage)
        for _ in range(12):
            await beat(stage)
            await follow(app, pilot, stage)
        give_jobs(
            stage, ("node-0002", "8800", "ada", tuple(range(8))), ("node-0003", "8800", "ada", (0, 1)),
            ("node-0003", "8801", "bob", (4, 5, 6)), ("node-0005", "8802", "carol", (0,)),
        )  # fmt: skip
        for name, (keys, word) in SCREENS.items():
            await pilot.press(*keys)
            await settled(pilot, app, word)
            changed.append(differs(f"{name}.svg", svg_of(app)))
            await home(pilot, app)
    assert not any(changed), "\n".join(filter(None, changed))


async def test_maps_of_ten_thousand_look_as_they_did() -> None:
    stage = LiveFleet(1250, still=True)
    for _ in range(6):
        await stage.beat()
    changed = []
    async with still(stage, MAPS["map_160x50"]) as (pilot, app):
        await follow(app, pilot, stage)
        for name, size in MAPS.items():
            await pilot.resize_terminal(*size)
            await settled(pilot, app, "site-a")
            changed.append(differs(f"{name}.txt", text_of(app)))
        ill = int(np.count_nonzero(app.context.shown.gpu_status))
    assert 8 < ill < 100, "the map has something to show"
    assert not any(changed), "\n".join(filter(None, changed))


def test_every_picture_that_is_kept_is_compared_and_small() -> None:
    names = {path.name for path in FOLDER.iterdir()}
    assert names == {*(f"{name}.svg" for name in SCREENS), *(f"{name}.txt" for name in MAPS)}
    assert all(path.stat().st_size < 40_000 for path in FOLDER.iterdir())
