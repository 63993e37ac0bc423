"""Views need no application: a context is a feed, time controls, tones and five requests."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from textual.app import App

from tests.tui.test_listing import state
from tui.feed.connection import Connection, ConnectionState
from tui.feed.feed import DashboardFeed
from tui.feed.wants import Wants
from tui.frame.navigation import DEEPEST, Navigation
from tui.frame.time_keys import TimeKeys
from tui.keys import KEYS
from tui.kit.theme import DARK, Tones
from tui.screens import VIEWS
from tui.screens.context import SPANS, ViewContext
from tui.screens.lists import GpusView
from tui.screens.view import View
from tui.tables.fields import ALERT_KEYS, GPU_KEYS
from tui.tables.filter import ALL, parse
from tui.time.timebar import ACTIONS, TimeControls


@dataclass
class FakeFrame:
    """A frame that records what views request."""

    requests: list[tuple[str, ...]] = field(default_factory=list)

    def redraw(self) -> None:
        self.requests.append(("redraw",))

    def request_data(self) -> None:
        self.requests.append(("request_data",))

    def open(self, kind: str, subject: str) -> None:
        self.requests.append(("open", kind, subject))

    def go(self, name: str, filter_text: str = "") -> None:
        self.requests.append(("go", name, filter_text))

    def copy(self, text: str) -> None:
        self.requests.append(("copy", text))


def context(frame: FakeFrame) -> ViewContext:
    """A context with a few GPUs, at a clock that stands at 100 s."""
    feed = DashboardFeed("http://127.0.0.1:9", None, lambda: None, lambda: 100.0)
    feed.state, feed.connection = state(), Connection(ConnectionState.LIVE, 0.0)
    return ViewContext(frame, feed, TimeControls(), Tones(DARK), clock=lambda: 100.0, every=1.0, who="ops", write=False)


def test_a_view_lists_the_state_of_its_context_and_asks_the_frame() -> None:
    frame = FakeFrame()
    view = GpusView(context(frame))
    view.sort, view.reverse = "", False
    listing = view.listing(view.wanted)
    assert len(listing.order) == len(view.context.shown.gpus) > 0
    view.context.frame.open("gpu", listing.key(0))
    assert frame.requests == [("open", "gpu", listing.key(0))]


def test_a_filter_applies_where_its_keys_are_known() -> None:
    found = context(FakeFrame())
    found.filter = parse("power>600", GPU_KEYS)
    assert found.filter_for(GPU_KEYS).text == "power>600"
    assert found.filter_for(ALERT_KEYS) is ALL


def test_a_view_is_faded_while_the_connection_is_lost() -> None:
    found = context(FakeFrame())
    assert not found.faded(Wants(nodes=()))
    found.feed.connection = Connection(ConnectionState.LOST, 0.0)
    assert found.faded(Wants(nodes=()))


def test_every_key_has_a_handler_in_the_view_or_in_the_frame() -> None:
    from tui.app import Top
    from tui.frame.item_keys import ItemKeys

    frame_objects = (Top, ItemKeys, TimeKeys)
    frame_keys = {key.action for key in KEYS if key.everywhere}
    frame_keys |= {action for view in VIEWS.values() for action in view.FRAME_KEYS}
    for action in frame_keys:
        if not action.startswith("view_"):
            owners = sum(hasattr(each, f"do_{action}") for each in frame_objects)
            assert owners + (action in ACTIONS) == 1, action
    in_views = {key.action for key in KEYS for view in VIEWS.values() if hasattr(view, f"do_{key.action}")}
    assert {key.action for key in KEYS} - in_views <= frame_keys
    assert all(issubclass(view, View) for view in VIEWS.values())


class Notified(App[None]):
    """An application that records what it says."""

    def __init__(self) -> None:
        super().__init__()
        self.said: list[str] = []

    def notify(self, message: str, **_: Any) -> None:
        self.said.append(message)


def test_more_history_is_shown_on_the_time_bar_while_it_is_open_else_in_charts() -> None:
    frame, app = FakeFrame(), Notified()
    shared = context(frame)
    keys = TimeKeys(app, shared)
    keys.do_longer()
    assert shared.span == 3600
    for _ in SPANS:
        keys.do_shorter()
    assert shared.span == SPANS[0], "there is no shorter one"
    assert frame.requests == [("request_data",)] * (1 + len(SPANS))
    assert app.said[:2] == ["history of 60 min", "history of 15 min"]
    keys.act(ACTIONS["time"])
    assert shared.time.open
    keys.do_longer()
    assert (shared.span, app.said[-1][:12]) == (SPANS[0], "time bar of ")
    assert frame.requests[-2:] == [("redraw",)] * 2


def test_the_path_holds_the_first_and_the_newest_views() -> None:
    found = Navigation("overview")
    for number in range(20):
        found.open("gpu", f"G{number}")
        found.open("gpu", f"G{number}")  # twice: once in the path
    assert found.path[0] == ("overview", "")
    assert found.path[1:] == [("gpu", f"G{number}") for number in range(21 - DEEPEST, 20)]
    found.replace("G20")
    assert found.current == ("gpu", "G20")
    while found.back():
        pass
    assert found.path == [("overview", "")]
