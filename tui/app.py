"""The dashboard: a frame around views, on a running aggregator.

A worker keeps the feed; whenever it says that something changed, what is on the screen is drawn
once from the newest board. Views (`tui.screens`) draw; the frame has the header, the key map, time
(pause, time bar) and the dialogs.
"""

from __future__ import annotations

import getpass
import os
import time
from collections import deque
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.message import Message
from textual.screen import Screen
from textual.theme import Theme as TextualTheme
from textual.widgets import Input

from tui import lines
from tui.board import Board
from tui.circuits import Now
from tui.client import Feed, LineState
from tui.export import Export
from tui.fields import ALERT_KEYS, CIRCUIT_KEYS, GPU_KEYS, NODE_KEYS, gpu_fields
from tui.filter import ALL, Filter, FilterError, parse
from tui.goto import find
from tui.keys import KEYS, READ_ONLY, footer, help_lines
from tui.kit.surface import Surface
from tui.screens import VIEWS
from tui.screens.forms import HelpDialog, Palette
from tui.screens.history import SPANS
from tui.screens.page import PageView
from tui.screens.view import View
from tui.text import CROSS, DASH, STEP, clean, fit, span
from tui.theme import MONO, THEMES, Line, Theme, Tones
from tui.timebar import Clock, bar_line

SMALLEST = (60, 16)
"""Below this pictures make no sense; counts and alerts are shown instead."""
LEGEND: tuple[Line, ...] = (
    [("what stands before a name", "strong")],
    [("  · ok  ", "ok"), ("! WARN a ticket  ", "warn"), ("▲ CRIT a page", "crit")],
    [(f"  {CROSS} lost, hung or off  ", "down"), ("▒ STALE nothing new  ", "stale"),
     (f"{DASH} not read, not zero", "dim")],
)  # fmt: skip
_KEYS_OF = {"nodes": NODE_KEYS, "circuits": CIRCUIT_KEYS, "alerts": ALERT_KEYS}
_PAST_CIRCUITS = 1200
TOGETHER = 0.04
"""Seconds within which what comes is drawn together."""


class Changed(Message):
    """The feed has something new."""


class Top(App[None]):
    """`kilowatch top`."""

    TITLE = "kilowatch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; }
    #header { height: 2; }
    #band, #bar, #tiny, #message, #filter, #fault { display: none; height: 1; }
    #message, #tiny { height: 1fr; }
    #footer { height: 1; }
    #filter { border: none; padding: 0; background: $panel; }
    Toast { background: $panel; color: $foreground; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        *(Binding(key.keys, f"do('{key.action}')", show=False) for key in KEYS),
        Binding("tab", "app.focus_next", show=False),
        Binding("shift+tab", "app.focus_previous", show=False),
    ]

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        every: float = 1.0,
        colour: bool | None = None,
        theme: str = "dark",
        ascii_only: bool = False,
        write: bool = False,
        who: str = "",
        view: str = "overview",
    ) -> None:
        super().__init__()
        self.url, self.write = url, write
        self.who = who or _user()
        plain = "NO_COLOR" in os.environ if colour is None else not colour
        self._clock = clock
        self.feed = Feed(url, token, self._tell, clock, every)
        self.ascii_only = ascii_only
        for each in THEMES.values():
            if each.background:
                self.register_theme(_textual(each))
        self.tones = Tones(MONO if plain else THEMES[theme], ascii_only=ascii_only)
        self.theme = _theme_name(self.tones.theme)
        self.clock = Clock()
        self.utc, self.faults = True, False
        self._filter = ALL
        self._fault = ""
        self._span = SPANS.index(900)
        self._told = self._laid_out = False
        self._drawn = 0.0
        self._stack: list[tuple[str, str]] = [(view, "")]
        self.tray: list[tuple[str, str]] = []
        self._circuits: deque[tuple[int, np.ndarray[Any, Any]]] = deque(maxlen=_PAST_CIRCUITS)
        self._circuit_names: tuple[str, ...] = ()

    def get_theme_variable_defaults(self) -> dict[str, str]:
        """Colours of our style sheets in a terminal's own theme."""
        return {"frame": "ansi_default", "dim": "ansi_default", "crit": "ansi_default"}

    def compose(self) -> ComposeResult:
        """The lines around the views, and all views."""
        yield Surface(self.tones, id="header")
        yield Surface(self.tones, id="band")
        yield Surface(self.tones, id="bar")
        yield Surface(self.tones, id="message")
        yield Surface(self.tones, id="tiny")
        with Vertical(id="body"):
            for kind in VIEWS.values():
                yield kind(self)
        yield Surface(self.tones, id="fault")
        yield Input(
            id="filter",
            placeholder="part of a name, or power>600 & rack=R16 | sev>=warn",
            select_on_focus=False,
        )
        yield Surface(self.tones, id="footer", under="panel")

    def on_mount(self) -> None:
        """Start the feed, and a slow beat: freshness and countdowns move even when nothing comes."""
        self._laid_out = True
        self._root = self.screen
        names = ("#header", "#band", "#bar", "#message", "#tiny", "#fault", "#footer")
        self._surfaces = {name: self._root.query_one(name, Surface) for name in names}
        self._show_view()
        self.run_worker(self.feed.run(), name="feed", group="feed", exclusive=True)
        self.set_interval(1.0, self._beat)
        self.redraw()

    # What is shown, and when it is.

    @property
    def view(self) -> View:
        """The view on the screen."""
        return self._root.query_one(f"#view-{self._stack[-1][0]}", View)

    @property
    def shown(self) -> Board:
        """What the screen shows: the newest, or what was."""
        return self.clock.board(self.feed.board)

    @property
    def faded(self) -> bool:
        """Whether what is shown is no longer true, and nobody asked for that."""
        return (
            self.feed.line.state in {LineState.LOST, LineState.REFUSED} and not self.clock.replaying
        )

    @property
    def moment(self) -> lines.Moment:
        """When the screen is."""
        board = self.feed.board
        return lines.Moment(
            self._clock(), self.clock.paused, self.clock.words(board.at, utc=self.utc), self.utc
        )

    @property
    def since(self) -> Now:
        """From when countdowns count."""
        return lines.countdown_now(self.shown, self.feed.line, self.moment)

    @property
    def span(self) -> int:
        """Seconds of history in charts."""
        return SPANS[self._span]

    @property
    def _standing(self) -> bool:
        """Whether there is a screen to draw on: not before the first, not after the last."""
        return self._laid_out and self.is_running and self._surfaces["#footer"].is_attached

    def _tell(self) -> None:
        """Called by the feed; several changes before the next turn of the loop are one."""
        if not self._told and self.is_running:
            self._told = self.post_message(Changed())

    @on(Changed)
    def _data_came(self) -> None:
        # Readings and alerts of one tick are two messages: one picture for both.
        self.set_timer(TOGETHER, self._draw_frame)

    def _draw_frame(self) -> None:
        self._told = False
        board = self.feed.board
        self.clock.trail.add(board)
        self._remember_circuits(board)
        self.redraw()

    def _remember_circuits(self, board: Board) -> None:
        names = tuple(circuit.id for circuit in board.circuits)
        if names != self._circuit_names:
            self._circuits.clear()
            self._circuit_names = names
        at = board.circuits_at
        if names and at and (not self._circuits or self._circuits[-1][0] != at):
            watts = np.array([c.watts for c in board.circuits], np.float32)
            self._circuits.append((at, watts))

    def circuit_past(self, name: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
        """Watts of a circuit since this dashboard began to look: times in ns, and values."""
        if name not in self._circuit_names:
            return np.empty(0), np.empty(0)
        row = self._circuit_names.index(name)
        until = self.shown.at or 2**63
        pairs = [(at, values[row]) for at, values in self._circuits if at <= until + 2_000_000_000]
        return np.array([at for at, _ in pairs]), np.array(
            [value for _, value in pairs], np.float64
        )

    def _beat(self) -> None:
        """Lines only: no picture changes without data, but for the countdowns on it."""
        idle = self._clock() - self._drawn > 1.5
        if idle and self._standing and self.shown.circuits and not self.clock.replaying:
            self.redraw()
        else:
            self._draw_lines()

    # Drawing.

    def redraw(self) -> None:
        """Draw what is on the screen once."""
        if not self._standing:
            return
        self._drawn = self._clock()
        with self.batch_update():
            self._lay_out()
            if self._root.query_one("#body").display:
                self.view.draw()
            self._draw_lines()

    def rewant(self) -> None:
        """What is shown needs something else from the aggregator."""
        self.feed.want(self.view.wants())
        self.redraw()

    def _lay_out(self) -> None:
        root, (width, height) = self._root, self.size
        small = width < SMALLEST[0] or height < SMALLEST[1]
        instead = lines.nothing_yet(self.shown, self.feed.line, self.url, self._clock())
        root.query_one("#body").display = not small and instead is None
        root.query_one("#message").display = not small and instead is not None
        root.query_one("#tiny").display = small
        for name in ("#header", "#footer"):
            root.query_one(name).display = not small
        root.query_one("#bar").display = self.clock.open and not small
        root.query_one("#header").styles.height = 3 if width >= lines.WIDE else 2
        asking = root.query_one("#filter").display
        root.query_one("#footer").display = not small and not asking
        self.feed.want(self.view.wants())

    def _surface(self, name: str) -> Surface:
        return self._surfaces[name]

    def _draw_lines(self) -> None:
        if not self._standing:
            return
        board, line, moment = self.shown, self.feed.line, self.moment
        self._surface("#header").show(
            lambda width, _: self._headed(lines.header(board, line, moment, width), width)
        )
        warning = lines.band(line, moment.now, self.feed.board, utc=self.utc)
        self._surface("#band").display = bool(warning)
        self._surface("#band").show(lambda _w, _h: [warning])
        instead = lines.nothing_yet(board, line, self.url, moment.now)
        if instead is not None:
            self._surface("#message").show(lambda width, height: centred(instead, width, height))
        self._surface("#tiny").show(
            lambda width, height: lines.tiny(board, line, moment, width, height)
        )
        if self.clock.open:
            self._surface("#bar").show(
                lambda width, _: [bar_line(self.clock, self.feed.board, width, utc=self.utc)]
            )
        self.draw_footer()

    def _headed(self, drawn: list[list[tuple[str, str]]], width: int) -> list[Line]:
        """Put the path of the view, and what is filtered, at the right end of the first line."""
        parts = [self._named(name, subject) for name, subject in self._stack]
        path = f" {STEP} ".join(parts[-3:]) if len(parts) > 1 or parts[0] != "Overview" else ""
        chips: list[tuple[str, str]] = []
        if self._filter is not ALL:
            chips.append(
                (f" /{clean(fit(self._filter.text, min(30, len(self._filter.text))))} ", "chip")
            )
        if self.faults:
            chips.append((" faults only ", "chip"))
        if path:
            chips.append((f" {path}", "strong"))
        if not drawn or not chips:
            return list(drawn)
        first = drawn[0]
        room = width - sum(len(text) for text, _ in chips)
        used = 0
        kept: list[tuple[str, str]] = []
        for text, tone in first:
            if used + len(text) > room - 1:
                break
            kept.append((text, tone))
            used += len(text)
        return [[*kept, (" " * max(0, room - used), ""), *chips], *drawn[1:]]

    def _named(self, name: str, subject: str) -> str:
        if not subject:
            return VIEWS[name].TITLE
        view = self._root.query_one(f"#view-{name}", View)
        return (
            fit(view.title(), min(28, len(view.title())))
            if view.subject == subject
            else subject[:12]
        )

    def draw_footer(self) -> None:
        """Show the keys that do something now, and where the cursor is."""
        if not self._standing:
            return
        view = self.view
        keys = [key for key in view.legal() if not key.shy]
        place = view.place()
        right = f"{place} " if place else ""
        self._surface("#footer").show(
            lambda width, _: [footer(keys, right, width, write=self.write)]
        )

    # Where the user is.

    def open(self, kind: str, subject: str) -> None:
        """Open the page of a thing."""
        if self._stack[-1] != (kind, subject):
            self._stack.append((kind, subject))
            self._stack = (
                self._stack[:1] + self._stack[-8:] if len(self._stack) > 9 else self._stack
            )
        self._show_view()

    def go(self, name: str) -> None:
        """Go to a view."""
        self._stack = [(name, "")]
        self._show_view()

    def _show_view(self) -> None:
        name, subject = self._stack[-1]
        for each in self._root.query(View):
            each.display = name == each.NAME
        view = self.view
        if subject:
            view.subject = subject
            if isinstance(view, PageView):
                view.page.top = 0
        first = view.first()
        if first is not None and self.screen is self._root:
            first.focus()
        self.rewant()
        self.call_after_refresh(self.redraw)

    def on_resize(self) -> None:
        """Lay out anew, once the new size is known."""
        self.call_after_refresh(self.redraw)

    # Keys.

    def action_do(self, name: str) -> None:
        """Do what a key says: the view first, then the frame."""
        if name.startswith("view_"):
            if self.screen is self._root:
                self.go([kind.NAME for kind in VIEWS.values()][int(name.removeprefix("view_")) - 1])
            return
        key = next(each for each in KEYS if each.action == name)
        method = getattr(self.view, f"do_{name}", None) or getattr(self, f"do_{name}", None)
        if method is None or self.screen is not self._root:
            return
        if key.writes and not self.write:
            self.notify(READ_ONLY, timeout=3)
            return
        if name == "back":
            self.do_back()
        else:
            method()

    def do_quit(self) -> None:
        """End."""
        self.exit()

    def do_interrupt(self) -> None:
        """Copy what is selected with the mouse, else end."""
        selected = self.screen.get_selected_text()
        if selected:
            self.copy(selected)
        else:
            self.exit()

    def do_help(self) -> None:
        """Show the keys."""
        keys = self.view.legal()
        self.push_screen(
            HelpDialog(self.tones, f"Help: {self.view.TITLE}   (/ filter: {', '.join(self._filter_keys())[:60]})",
                       lambda width: [*help_lines(keys, width, write=self.write), *LEGEND])
        )  # fmt: skip

    def do_back(self) -> None:
        """Close what is open, then undo the filter, then go back. Never quits."""
        asking = self._root.query_one("#filter", Input)
        inner = getattr(self.view, "do_back", None)
        if asking.display:
            asking.value = ""
            self._close_filter()
        elif inner is not None and inner():
            self.redraw()
        elif self.clock.replaying or self.clock.open:
            self.clock.close()
            self.redraw()
        elif self._filter is not ALL or self.faults:
            self._filter, self.faults = ALL, False
            asking.value = ""
            self.redraw()
        elif len(self._stack) > 1:
            self._stack.pop()
            self._show_view()
        elif self._stack[-1][0] != "overview":
            self.go("overview")

    # Filter.

    def _filter_keys(self) -> tuple[str, ...]:
        return _KEYS_OF.get(self.view.NAME, GPU_KEYS)

    def wanted(self, view: View) -> Filter:
        """The filter as the keys of a view understand it; all rows where they do not."""
        try:
            return parse(self._filter.text, _KEYS_OF.get(view.NAME, GPU_KEYS))
        except FilterError:
            return ALL

    def dimmed(self, board: Board) -> np.ndarray[tuple[int], np.dtype[np.bool_]] | None:
        """GPUs that the map shows without colour."""
        wanted = self.wanted(self.view)
        if wanted is ALL and not self.faults:
            return None
        mask = wanted.mask(gpu_fields(board, board.gpus), len(board.gpus))
        if self.faults:
            mask = mask & (board.gpu_standing > 0)
        dimmed: np.ndarray[tuple[int], np.dtype[np.bool_]] = ~mask
        return dimmed

    def toggle_faults(self) -> None:
        """Show only what is ill, or all."""
        self.faults = not self.faults
        self.redraw()

    def ask_filter(self) -> None:
        """Ask for a filter; it holds while it is typed."""
        entry = self._root.query_one("#filter", Input)
        entry.display = True
        self._root.query_one("#footer").display = False
        entry.focus()

    @on(Input.Changed, "#filter")
    def _filter_typed(self, event: Input.Changed) -> None:
        try:
            self._filter = parse(event.value, self._filter_keys())
            self._fault = ""
        except FilterError as error:
            self._fault = f"{' ' * min(error.column, 40)}^ {error}"
        fault = self._surface("#fault")
        fault.display = bool(self._fault)
        fault.show(lambda _w, _h: [[(clean(self._fault), "crit")]])
        self.redraw()

    @on(Input.Submitted, "#filter")
    def _filter_kept(self) -> None:
        if not self._fault:
            self._close_filter()

    def _close_filter(self) -> None:
        self._root.query_one("#filter").display = False
        self._fault = ""
        self._surface("#fault").display = False
        first = self.view.first()
        if first is not None:
            first.focus()
        self.redraw()

    # Time.

    def do_pause(self) -> None:
        """Freeze the screen, not the data."""
        self.clock.pause(self.feed.board, self._clock())
        self.redraw()

    def do_time(self) -> None:
        """Open or close the time bar."""
        self.clock.toggle()
        self.redraw()

    def do_live(self) -> None:
        """Back to now."""
        self.clock.live()
        self.redraw()

    def _walk_or_step(self, by: int) -> None:
        view = self.view
        if not self.clock.open and isinstance(view, PageView) and view.walk(by):
            self._stack[-1] = (view.NAME, view.subject)
            self.redraw()
            return
        self.clock.step(by)
        self.redraw()

    def do_step_back(self) -> None:
        """The frame before; on a page, the thing before."""
        self._walk_or_step(-1)

    def do_step_on(self) -> None:
        """The next."""
        self._walk_or_step(1)

    def do_jump_back(self) -> None:
        """A minute back."""
        self.clock.jump(-60)
        self.redraw()

    def do_jump_on(self) -> None:
        """A minute on."""
        self.clock.jump(60)
        self.redraw()

    def do_alert_back(self) -> None:
        """To the alert before."""
        self.clock.to_alert(self.feed.board, -1)
        self.redraw()

    def do_alert_on(self) -> None:
        """To the next alert."""
        self.clock.to_alert(self.feed.board, 1)
        self.redraw()

    def change_span(self, by: int) -> None:
        """Show more or less history."""
        self._span = max(0, min(self._span + by, len(SPANS) - 1))
        self.notify(f"history of {span(self.span)}", timeout=2)
        self.rewant()

    def do_utc(self) -> None:
        """UTC or local time."""
        self.utc = not self.utc
        self.redraw()

    def do_reconnect(self) -> None:
        """Do not wait for the next try."""
        self.run_worker(self.feed.run(), name="feed", group="feed", exclusive=True)

    # Taking things along.

    def copy(self, text: str) -> None:
        """Copy by the terminal (OSC 52), and show it: not every terminal can."""
        self.copy_to_clipboard(text)
        self.notify(clean(text)[:300], title="copied", timeout=4, markup=False)

    def copy_chosen(self) -> None:
        """Copy the name of what is under the cursor."""
        chosen = self.view.chosen()
        if chosen is not None:
            self.copy(chosen[1])

    def do_copy_json(self) -> None:
        """Copy all that is known of it."""
        self.copy_record()

    def copy_record(self) -> None:
        """Copy all that is known of what is under the cursor."""
        record = self.view.record()
        if record is not None:
            self.copy_to_clipboard(Export.json_of(record))
            self.notify("as JSON", title="copied", timeout=3)

    def do_export(self) -> None:
        """Write the table or the picture to a file."""
        choices = Export.choices(self.view)

        def answered(choice: tuple[str, str, str] | None) -> None:
            if choice is not None:
                said = Export.write(choice[2], self, self.view)
                self.notify(said, timeout=6, markup=False)

        self.push_screen(
            Palette(
                self.tones, lambda text: [c for c in choices if text.casefold() in c[1].casefold()]
            ),
            answered,
        )

    def compare_chosen(self) -> None:
        """Put what is under the cursor into the compare tray, or take it out."""
        chosen = self.view.chosen()
        if chosen is None or chosen[0] not in {"gpu", "node"}:
            return
        if chosen in self.tray:
            self.tray.remove(chosen)
        else:
            self.tray = [*(t for t in self.tray if t[0] == chosen[0]), chosen][-4:]
        self.notify(f"{len(self.tray)} to compare; C opens the tray", timeout=3)

    def do_tray(self) -> None:
        """Compare what is in the tray."""
        if self.tray:
            self.open("compare", "tray")
        else:
            self.notify("nothing to compare yet: c on a GPU or node", timeout=3)

    # Going places.

    def do_palette(self) -> None:
        """Go to anything by a few letters."""

        def answered(choice: tuple[str, str, str] | None) -> None:
            if choice is not None:
                self.follow(choice[0], choice[2])

        self.push_screen(Palette(self.tones, lambda text: find(self.shown, text)), answered)

    def follow(self, kind: str, what: str) -> None:
        """Do what was chosen in the palette."""
        if kind == "view":
            self.go(what)
        elif kind == "theme":
            self.retone(THEMES[what])
        elif kind == "key":
            self.action_do(what)
        else:
            self.open(kind, what)

    def retone(self, theme: Theme) -> None:
        """Show all in other colours."""
        self.tones = Tones(theme, ascii_only=self.ascii_only)
        self.theme = _theme_name(theme)
        for widget in self._root.query("Surface, VirtualTable, FleetMap, Scroll"):
            widget.retone(self.tones)  # type: ignore[attr-defined]  # all of them have it
        self.redraw()

    def get_default_screen(self) -> Screen[None]:
        """The one screen under all dialogs."""
        return Screen(id="_default")


def centred(said: list[list[tuple[str, str]]], width: int, height: int) -> list[Line]:
    """Put lines into the middle of the screen; what is too long is cut."""
    from rich.cells import cell_len  # noqa: PLC0415

    result: list[Line] = [[]] * max(0, (height - len(said)) // 2)
    for pieces in said:
        length = sum(cell_len(text) for text, _ in pieces)
        result.append([(" " * max(0, (width - length) // 2), ""), *pieces])
    return result


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""


def _theme_name(theme: Theme) -> str:
    return f"kilowatch-{theme.name}" if theme.background else "ansi-dark"


def _textual(theme: Theme) -> TextualTheme:
    """Our theme for Textual's own widgets: inputs, toasts, frames."""
    foreground = theme.tones[""]
    return TextualTheme(
        name=f"kilowatch-{theme.name}", primary=theme.tones["bar"], background=theme.background,
        surface=theme.background, panel=theme.panel, foreground=foreground, dark=theme.dark,
        variables={"frame": theme.tones["frame"], "dim": theme.tones["dim"],
                   "crit": theme.tones["bar_crit"]},
    )  # fmt: skip
