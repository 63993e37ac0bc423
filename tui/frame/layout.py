"""The lines around the view on the screen, and what replaces it where there is nothing to show."""

from __future__ import annotations

from rich.cells import cell_len
from textual.app import ComposeResult
from textual.screen import Screen

from tui.frame import lines
from tui.frame.header import header
from tui.frame.navigation import Navigation, joined
from tui.frame.start_line import OwnAggregator, start_line, with_address
from tui.keys import footer
from tui.kit.surface import WIDE, Surface
from tui.kit.text import clean, fit
from tui.kit.theme import Line, Piece, Tones
from tui.screens import VIEWS
from tui.screens.context import ViewContext
from tui.screens.view import FILTER_KEYS, View
from tui.state.gpus import gpu_name
from tui.state.incidents import counts
from tui.tables.filter import ALL

SMALLEST = (60, 16)
"""Columns and rows below which counts and alerts are shown in place of views."""
ABOVE, BELOW = ("start", "header", "band", "bar", "message", "tiny"), ("footer",)


class FrameLayout:
    """Header, warning band, time bar, message and footer: widgets of one screen, drawn together."""

    STYLE = """
    #header { height: 2; }
    #start, #band, #bar, #tiny, #message { display: none; height: 1; }
    #message, #tiny { height: 1fr; }
    #footer { height: 1; }
    """

    def __init__(
        self, screen: Screen[object], context: ViewContext, navigation: Navigation, own: OwnAggregator | None = None
    ) -> None:
        self._own = own
        self._screen, self._context, self._navigation = screen, context, navigation
        self._body = screen.query_one("#body")
        self._lines = {name: screen.query_one(f"#{name}", Surface) for name in (*ABOVE, *BELOW)}

    @staticmethod
    def above(tones: Tones) -> ComposeResult:
        """Yield the widgets above the view."""
        for name in ABOVE:
            yield Surface(tones, id=name)

    @staticmethod
    def below(tones: Tones) -> ComposeResult:
        """Yield the widgets below the view and the filter."""
        for name in BELOW:
            yield Surface(tones, id=name, under="panel")

    @property
    def ready(self) -> bool:
        """Whether there is a screen to draw on: not after its last widget was removed."""
        return self._lines["footer"].is_attached

    @property
    def view(self) -> View:
        """The view on the screen."""
        return self._screen.query_one(f"#view-{self._navigation.current[0]}", View)

    def show_view(self) -> View:
        """Show the view that navigation names, with its subject, and no other."""
        name, subject = self._navigation.current
        for each in self._screen.query(View):
            each.display = name == each.NAME
        self.view.subject = subject or self.view.subject
        return self.view

    @property
    def _instead(self) -> list[list[Piece]] | None:
        """The message in place of the view while there is nothing to show."""
        context = self._context
        return lines.nothing_yet(
            context.shown,
            context.feed.connection,
            context.feed.url,
            context.clock(),
            recorded=context.time.recorded,
            past=context.time.replaying,
            own=self._own,
        )

    def arrange(self, *, asking: bool) -> bool:
        """Show the lines that this size and state need; returns whether the view is among them."""
        width, height = self._screen.size
        small = width < SMALLEST[0] or height < SMALLEST[1]
        instead = self._instead is not None
        displayed = {
            "header": not small, "message": not small and instead, "tiny": small,
            "bar": self._context.time.open and not small, "footer": not small and not asking,
        }  # fmt: skip
        for name, display in displayed.items():
            self._lines[name].display = display
        self._lines["header"].styles.height = 3 if width >= WIDE else 2
        self._body.display = not small and not instead
        return self._body.display

    def draw(self) -> None:
        """Draw all lines; each is painted only where it is displayed."""
        context, moment = self._context, self._context.moment
        state, newest, connection = context.shown, context.newest, context.feed.connection
        self._lines["header"].show(lambda width, _: self._with_path(header(state, connection, moment, width), width))
        own = self._own
        starting = own is not None and bool(own.waits) and self._lines["header"].display
        self._lines["start"].display = starting
        if own is not None and starting:
            self._lines["start"].show(lambda width, _: [start_line(own, width)])
        warning = lines.band(connection, moment.now, newest, utc=context.utc, recorded=context.time.recorded)
        self._lines["band"].display = bool(warning)
        self._lines["band"].show(lambda _w, _h: [warning])
        instead = self._instead
        if instead is not None:
            self._lines["message"].show(lambda width, height: centred(instead, width, height))
        self._lines["tiny"].show(lambda width, height: lines.tiny(state, connection, moment, width, height))
        if context.time.open:
            self._lines["bar"].show(lambda width, _: [lines.bar_line(context.time, newest, width, utc=context.utc)])
        self.draw_footer()

    def draw_footer(self) -> None:
        """Draw the keys that do something now, and the place of the cursor."""
        view = self.view
        keys = [key for key in view.legal() if not key.shy]
        place = view.place()
        right = f"{place} " if place else ""
        self._lines["footer"].show(lambda width, _: [footer(keys, right, width, write=self._context.write)])

    def _with_path(self, drawn: list[list[Piece]], width: int) -> list[Line]:
        """Put the path of the view, and what is filtered, at the right end of the first line."""
        context, view = self._context, self.view
        parts = [self._named(name, subject) for name, subject in self._navigation.path]
        path = parts[-3:] if len(parts) > 1 or parts[0] != "Overview" else []
        chips: list[Piece] = []
        if context.filter is not ALL:
            text = clean(fit(context.filter.text, min(30, len(context.filter.text))))
            here = not view.FRAME_KEYS & FILTER_KEYS or view.wanted is not ALL
            chips.append((f" /{text} {'' if here else 'not here '}", "chip"))
        if context.faults:
            chips.append((" faults only ", "chip"))
        if not drawn or not (chips or path):
            return with_address(drawn, self._own, width)
        state = context.shown
        kept = len(counts(state)) if width < WIDE and state.status is not None else 0
        return [joined(drawn[0], kept, chips, path, width), *drawn[1:]]

    def _named(self, name: str, subject: str) -> str:
        if not subject:
            return VIEWS[name].TITLE
        view = self._screen.query_one(f"#view-{name}", View)
        title = view.title() if view.subject == subject else subject
        if title == subject and name == "gpu":  # its page has not come
            title = gpu_name(subject, self._context.shown.gpus, self._context.newest.gpus)
        return fit(clean(title), min(28, cell_len(clean(title))))


def centred(message: list[list[Piece]], width: int, height: int) -> list[Line]:
    """Put lines into the middle of the screen; what is too long is cut."""
    result: list[Line] = [[]] * max(0, (height - len(message)) // 2)
    for pieces in message:
        length = sum(cell_len(text) for text, _ in pieces)
        result.append([(" " * max(0, (width - length) // 2), ""), *pieces])
    return result
