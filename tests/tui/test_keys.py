"""Every key on every screen: it does what its help says, or the screen says why not; what is no key of a
screen does nothing there; and afterwards nothing is left open."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len
from textual.pilot import Pilot
from textual.widgets import Input

from tests.kit.waiting import until
from tests.tui.cluster import text_of
from tests.tui.test_app import staged
from tui.app import Top
from tui.keys import KEYS, READ_ONLY, Key
from tui.map.fleetmap import FleetMap
from tui.screens import VIEWS
from tui.tables.filter import ALL

SCREENS: dict[str, tuple[str, ...]] = {
    "overview": ("1", "n"),
    "nodes": ("2", "down"),
    "gpus": ("3", "down"),
    "circuits": ("4",),
    "alerts": ("5", "down"),
    "pools": ("6",),
    "energy": ("7",),
    "jobs": ("8", "down"),
    "node": ("2", "down", "enter"),
    "gpu": ("3", "down", "enter"),
    "circuit": ("4", "down", "enter"),
    "incident": ("5", "down", "enter"),
    "compare": ("3", "c", "down", "c", "C"),
    "job": ("8", "enter"),
}
"""Keys that lead to each."""
_NAMES = tuple(SCREENS)
BY_START = tuple(_NAMES[first : first + 4] for first in range(0, len(_NAMES), 4))
"""Screens that are tried in one dashboard: it takes as long to start as to try half a screen's keys."""
TURNS = 20


@dataclass
class Seen:
    """All that a key can change."""

    stack: list[tuple[str, str]] = field(default_factory=list)
    dialog: str = ""
    filtering: bool = False
    view: dict[str, Any] = field(default_factory=dict)
    frame: dict[str, Any] = field(default_factory=dict)
    toasts: list[str] = field(default_factory=list)
    clipboard: str = ""
    exits: int = 0
    feed: int = 0


def seen(app: Top, exits: list[object]) -> Seen:
    """The dashboard now."""
    view, dialogs = app.view, app.screen_stack
    rows, shown = getattr(view, "rows", None), getattr(view, "map", None)
    map_ = shown if isinstance(shown, FleetMap) else None
    cursor = map_.cursor if map_ is not None else getattr(rows, "cursor", None)
    names = ("sort", "reverse", "folded", "marked", "node", "_answer", "group")
    return Seen(
        list(app.navigation.path), type(dialogs[-1]).__name__ if len(dialogs) > 1 else "",
        bool(app.query_one("#filter").display) if len(dialogs) == 1 else False,
        {"cursor": cursor, **{name: getattr(view, name, None) for name in names},
         **({} if map_ is None else {"metric": map_.shown_metric, "zoom": map_.zoom, "by": map_.group})},
        {"faults": app.context.faults, "paused": app.context.time.paused is not None, "bar": app.context.time.open,
         "past": app.context.time.replaying, "at": app.context.time._at, "played": app.context.time.played is not None,
         "length": app.context.time.length, "span": app.context.span, "utc": app.context.utc, "tray": list(app.context.tray), "filter": app.context.filter},
        [str(each.message) for each in app._notifications], app.clipboard, len(exits),
        sum(worker.name == "feed" for worker in app.workers),
    )  # fmt: skip


Does = Callable[[Seen, Seen], bool]


def opens(name: str) -> Does:
    """A dialog."""
    return lambda _, after: after.dialog == name


def changes(name: str) -> Does:
    """Something of the view, or of the frame."""
    return lambda before, after: {**before.view, **before.frame}.get(name) != {**after.view, **after.frame}.get(name)


def says(*words: str) -> Does:
    """A toast."""
    return lambda before, after: any(word in each for each in after.toasts[len(before.toasts) :] for word in words)


def either(*ways: Does) -> Does:
    """One of these."""
    return lambda before, after: any(way(before, after) for way in ways)


def moves(before: Seen, after: Seen) -> bool:
    """To another page."""
    return before.stack != after.stack


BACK = either(changes("past"), moves)
DOES: dict[str, Does] = {
    "quit": lambda before, after: after.exits > before.exits,
    "interrupt": lambda before, after: after.exits > before.exits,
    "help": opens("HelpDialog"),
    "filter": lambda _, after: after.filtering,
    "palette": opens("Palette"),
    "export": opens("Palette"),
    "open": either(moves, changes("cursor"), changes("folded")),
    "back": moves,
    "faults": changes("faults"),
    "next_fault": changes("cursor"),
    "previous_fault": changes("cursor"),
    "metric": changes("metric"),
    "zoom": changes("zoom"),
    "group": changes("by"),
    "sort": changes("sort"),
    "reverse": changes("reverse"),
    "longer": changes("span"),
    "shorter": changes("span"),
    "what_if": changes("_answer"),
    "fold": changes("folded"),
    "unfold": changes("folded"),
    "ack": either(opens("AckForm"), says("acknowledge")),
    "silence": opens("SilenceForm"),
    "unsilence": says("no silence is in force"),
    "mark": changes("marked"),
    "ack_marked": says("nothing is marked"),
    "runbook": says("/runbook/"),
    "pause": changes("paused"),
    "time": changes("bar"),
    "step_back": BACK,
    "jump_back": BACK,
    "alert_back": BACK,
    "step_on": either(moves, changes("at")),
    "jump_on": changes("at"),
    "alert_on": changes("at"),
    "live": changes("past"),
    "play": changes("played"),
    "moment": opens("TimeForm"),
    "compare": changes("tray"),
    "then": opens("TimeForm"),
    "tray": either(moves, says("nothing to compare yet"), lambda _, after: after.stack[-1] == ("compare", "tray")),
    "matrix": changes("node"),
    "copy": either(
        lambda before, after: bool(after.clipboard) and after.toasts != before.toasts, says("nothing here to copy")
    ),
    "copy_json": either(lambda _, after: after.clipboard.startswith(("{", "[", '"')), says("nothing here to copy")),
    "copy_address": lambda _, after: after.clipboard.startswith("http://127.0.0.1:"),
    "reconnect": lambda before, after: after.feed >= 1,
    "utc": changes("utc"),
}
"""What each key is seen to do."""


def does(key: Key, name: str) -> Does:
    """What it is seen to do on a screen: behind the first there is nothing to go back to, and a key of a
    view leads to it, also from itself."""
    its = key.action.removeprefix("view_")
    if its.isdecimal():
        view = [kind.NAME for kind in VIEWS.values()][int(its) - 1]
        return lambda _, after: after.stack == [(view, "")]
    if key.action == "back" and name == "overview":
        return lambda before, after: before == after
    return DOES[key.action]


NEEDS: dict[str, tuple[str, ...]] = {
    "unfold": ("left",),
    "shorter": ("plus",),
    "step_on": ("t", "left_square_bracket", "left_square_bracket"),
    "jump_on": ("t", "left_curly_bracket", "left_curly_bracket"),
    "alert_on": ("t", "left_curly_bracket", "left_curly_bracket"),
    "live": ("t", "left_square_bracket"),
    "step_back": ("t",),
    "jump_back": ("t",),
    "alert_back": ("t",),
    "play": ("t", "left_curly_bracket"),
}
"""Keys before, without which there is nothing to do."""


@pytest.fixture(autouse=True)
def turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """After each key Textual waits four times until the process does next to nothing; here the aggregator
    lives in it too, and that took most of this file's time. What a key does is done after some turns of the
    loop; what must come over HTTP first is waited for by what is seen."""

    async def turn(*given: float) -> None:
        for _ in range(TURNS):
            await asyncio.sleep(0)

    monkeypatch.setattr("textual.app.wait_for_idle", turn)
    monkeypatch.setattr("textual.pilot.wait_for_idle", turn)


async def press(pilot: Pilot[None], name: str) -> None:
    """Press one key by Textual's name of it."""
    await pilot.press(name)
    await pilot.pause()


async def after_key(pilot: Pilot[None], app: Top, keys: str, exits: list[object], done: Does) -> tuple[Seen, Seen]:
    """Press a key and wait for what it does. Returns before and after, also of one that does not do it."""
    before = seen(app, exits)
    await press(pilot, keys)
    with contextlib.suppress(AssertionError):
        await until(lambda: done(before, seen(app, exits)))
    return before, seen(app, exits)


async def tidy(pilot: Pilot[None], app: Top, stack: list[tuple[str, str]]) -> None:
    """Back to a screen as it was, by the frame's own means; whatever is left open fails."""
    for _ in range(4):
        if len(app.screen_stack) > 1:
            await press(pilot, "escape")
    assert len(app.screen_stack) == 1, "a dialog that escape does not close"
    if app.query_one("#filter").display:
        await press(pilot, "escape")
    assert not app.query_one("#filter").display
    app.context.time.close()
    app.context.faults, app.context.filter, app.context.span_index, app.context.utc = (False, ALL, 2, True)
    app.query_one("#filter", Input).value = ""
    app.clear_notifications()
    view = app.query_one(f"#view-{stack[-1][0]}")
    for name, value in (("marked", frozenset()), ("folded", frozenset()), ("node", ""), ("_answer", ())):
        if hasattr(view, name):
            setattr(view, name, value)
    app.navigation.path = list(stack)
    app.show_view()
    await pilot.pause()


def shows_something(app: Top) -> bool:
    """Whether the screen has loaded, and its table has rows where it has a table."""
    rows = getattr(app.view, "rows", None)
    return "loading" not in text_of(app) and (rows is None or bool(rows.count))


async def reach(pilot: Pilot[None], app: Top, name: str) -> list[tuple[str, str]]:
    """Go to a screen, each step once the one before shows something."""
    for key in SCREENS[name]:
        await press(pilot, key)
        await until(lambda: shows_something(app))
    assert name == app.view.NAME
    return list(app.navigation.path)


async def tried(pilot: Pilot[None], app: Top, key: Key, name: str, exits: list[object]) -> tuple[Seen, Seen]:
    """Press a key after those that it needs; wait for what it does. Returns before and after."""
    for each in NEEDS.get(key.action, ()):
        await press(pilot, each)
    before, after = await after_key(pilot, app, key.keys.split(",")[0], exits, does(key, name))
    assert all(cell_len(line) <= 80 for line in text_of(app).splitlines()), (name, key.keys)
    return before, after


@pytest.mark.parametrize("names", BY_START, ids=" ".join)
async def test_every_key_does_what_its_help_says(names: tuple[str, ...]) -> None:
    exits: list[object] = []
    async with staged((80, 24), write=True, who="ops", every=0.5) as (pilot, app, stage):
        for _ in range(4):  # a past to go back to
            kept = len(app.context.time.recent)
            await stage.beat()
            await until(lambda kept=kept: len(app.context.time.recent) > kept)  # type: ignore[misc]
        app.exit = lambda *given, **_: exits.append(given)  # type: ignore[method-assign]
        wrong = [each for name in names for each in await wrong_on(pilot, app, name, exits)]
        assert app.is_running
        assert not wrong, "\n".join(wrong)


async def wrong_on(pilot: Pilot[None], app: Top, name: str, exits: list[object]) -> list[str]:
    """Try every key of one screen; returns what was seen of those that do something else."""
    app.context.tray, app._clipboard = [], ""
    stack = await reach(pilot, app, name)
    wrong = []
    legal = {key.action for key in app.view.legal()}
    for key in KEYS:
        if key.action not in legal or (key.action == "play" and "mark" in legal):
            continue
        before, after = await tried(pilot, app, key, name, exits)
        if not does(key, name)(before, after):
            wrong.append(f"{name}: {key.shown} {key.word}: {before} {after}")
        await tidy(pilot, app, stack)
    return wrong


async def test_what_is_no_key_of_a_screen_does_nothing_there() -> None:
    exits: list[object] = []
    async with staged((80, 24), every=0.5) as (pilot, app, _):
        for name in SCREENS:
            await reach(pilot, app, name)
            legal = {key.action for key in app.view.legal()}
            shown = {key.keys for key in app.view.legal()}
            for key in KEYS:
                if key.action in legal or key.keys in shown:
                    continue
                if name == "overview" and key.keys in {"left", "right"}:  # the map's own keys
                    continue
                before = seen(app, exits)
                await press(pilot, key.keys.split(",")[0])
                after = seen(app, exits)
                before.feed = after.feed
                assert before == after, (name, key.keys)
            app.context.tray = []
            await press(pilot, "1")


@pytest.mark.parametrize("name", ["alerts", "incident"])
async def test_without_write_the_footer_the_help_and_the_key_say_why_not(name: str) -> None:
    exits: list[object] = []
    async with staged((100, 40)) as (pilot, app, stage):
        stack = await reach(pilot, app, name)
        for key in [key for key in app.view.legal() if key.writes]:
            before, after = await after_key(pilot, app, key.keys, exits, says(READ_ONLY))
            assert says(READ_ONLY)(before, after), key.word
            assert not after.dialog
            await tidy(pilot, app, stack)
        await press(pilot, "question_mark")
        await until(lambda: text_of(app).count("(read-only") >= 3)
        assert not any(one.acknowledged for one in stage.pipeline.manager.incidents())


def missing(app: Top, words: list[str]) -> list[str]:
    """Return which of some words the screen does not have."""
    text = " ".join(text_of(app).split())
    return [word for word in words if word not in text]


async def test_the_help_of_every_screen_has_every_key_of_it() -> None:
    async with staged((100, 60), every=0.5) as (pilot, app, _):
        for name in SCREENS:
            await reach(pilot, app, name)
            await press(pilot, "question_mark")
            words = [key.word for key in app.view.legal()]
            with contextlib.suppress(AssertionError):
                await until(lambda words=words: not missing(app, words))  # type: ignore[misc]
            assert not missing(app, words), name
            await press(pilot, "escape")
            await press(pilot, "1")


def test_the_page_of_the_dashboard_names_every_key() -> None:
    page = (Path(__file__).parents[2] / "docs").joinpath("dashboard.md").read_text()
    past = (Path(__file__).parents[2] / "docs").joinpath("past.md").read_text()
    words = {"⏎": "enter", "␣": "space", "esc": "esc", "^c": "ctrl+c"}
    for key in KEYS:
        shown = words.get(key.shown, f"`{key.shown}`")
        inside = key.action.startswith("view_") and 1 <= int(key.action.removeprefix("view_")) <= 9
        assert shown in page or shown in past or inside, key.word
