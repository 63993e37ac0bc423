"""What is drawn around the views, and when."""

from __future__ import annotations

from rich.cells import cell_len

from tui.frame import lines
from tui.frame.breadcrumbs import gpu_name, joined
from tui.frame.header import WIDE, header
from tui.frame.state import State
from tui.keys import footer
from tui.kit.surface import Surface
from tui.kit.text import clean, fit
from tui.screens import VIEWS
from tui.screens.view import View
from tui.state.dashboard_state import DashboardState
from tui.state.incidents import counts
from tui.tables.filter import ALL
from tui.theme import Line, Piece
from tui.time.barline import bar_line
from tui.time.timebar import time_of

SMALLEST = (60, 16)
"""Below this pictures make no sense; counts and alerts are shown instead."""


class Drawing(State):
    """The lines around the view on the screen."""

    def redraw(self) -> None:
        """Draw what is on the screen once."""
        if not self._standing:
            return
        self._drawn = self._clock()
        self._pictured = self._picture
        with self.batch_update():
            self._lay_out()
            if self._root.query_one("#body").display:
                self.view.draw()
            self._draw_lines()

    def redraw_news(self) -> None:
        """Draw after news of the feed: of a past time that stands still only the lines are others."""
        board, came = self._pictured
        if self.clock.replaying and self._picture[0] is board and self._picture[1] == came:
            self._lay_out()
            self._draw_lines()
        else:
            self.redraw()

    @property
    def _picture(self) -> tuple[DashboardState, int]:
        """What a picture is made of: the board, and how much of the past has come."""
        return self.shown, 0 if self.clock.past is None else self.clock.past.came

    def rewant(self) -> None:
        """What is shown needs something else from the aggregator."""
        self.feed.want(self.view.wants())
        self.redraw()

    def on_resize(self) -> None:
        """Lay out anew, once the new size is known."""
        self.call_after_refresh(self.redraw)

    def _lay_out(self) -> None:
        root, (width, height) = self._root, self.size
        small = width < SMALLEST[0] or height < SMALLEST[1]
        instead = self._instead
        root.query_one("#body").display = not small and instead is None
        root.query_one("#message").display = not small and instead is not None
        root.query_one("#tiny").display = small
        for name in ("#header", "#footer"):
            root.query_one(name).display = not small
        root.query_one("#bar").display = self.clock.open and not small
        root.query_one("#header").styles.height = 3 if width >= WIDE else 2
        asking = root.query_one("#filter").display
        root.query_one("#footer").display = not small and not asking
        wants = self.view.wants()
        self.feed.want(wants)
        self.clock.follow(self.feed.board, wants.asks)
        if self.clock.early is not None:
            self._tell_early()

    def _tell_early(self) -> None:
        """The time that was asked for is before all that is stored."""
        first, last = self.clock.ends(self.feed.board)
        self.clock.early = None
        where = time_of(first, last, utc=self.utc)
        self.notify(f"nothing is stored before {where}: that is shown", timeout=5)

    @property
    def _instead(self) -> list[list[Piece]] | None:
        """What stands in place of the view while there is nothing to show."""
        return lines.nothing_yet(
            self.shown, self.feed.line, self.url, self._clock(),
            recorded=self.clock.recorded, past=self.clock.replaying,
        )  # fmt: skip

    def _surface(self, name: str) -> Surface:
        return self._surfaces[name]

    def _draw_lines(self) -> None:
        if not self._standing:
            return
        board, line, moment = self.shown, self.feed.line, self.moment
        self._surface("#header").show(
            lambda width, _: self._headed(header(board, line, moment, width), width)
        )
        warning = lines.band(
            line, moment.now, self.feed.board, utc=self.utc, recorded=self.clock.recorded
        )
        self._surface("#band").display = bool(warning)
        self._surface("#band").show(lambda _w, _h: [warning])
        instead = self._instead
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
        path = parts[-3:] if len(parts) > 1 or parts[0] != "Overview" else []
        chips: list[tuple[str, str]] = []
        if self._filter is not ALL:
            text = clean(fit(self._filter.text, min(30, len(self._filter.text))))
            here = "" if self.filters_here else "not here "
            chips.append((f" /{text} {here}", "chip"))
        if self.faults:
            chips.append((" faults only ", "chip"))
        if not drawn or not (chips or path):
            return list(drawn)
        board = self.shown
        kept = len(counts(board)) if width < WIDE and board.status is not None else 0
        return [joined(drawn[0], kept, chips, path, width), *drawn[1:]]

    @property
    def filters_here(self) -> bool:
        """Whether the view on the screen lists only what fits the filter: tables have other keys."""
        return True

    def _named(self, name: str, subject: str) -> str:
        if not subject:
            return VIEWS[name].TITLE
        view = self._root.query_one(f"#view-{name}", View)
        said = view.title() if view.subject == subject else subject
        if said == subject and name == "gpu":  # its page is not here (yet)
            said = gpu_name(subject, self.shown.gpus, self.feed.board.gpus)
        return fit(clean(said), min(28, cell_len(clean(said))))

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


def centred(said: list[list[tuple[str, str]]], width: int, height: int) -> list[Line]:
    """Put lines into the middle of the screen; what is too long is cut."""
    result: list[Line] = [[]] * max(0, (height - len(said)) // 2)
    for pieces in said:
        length = sum(cell_len(text) for text, _ in pieces)
        result.append([(" " * max(0, (width - length) // 2), ""), *pieces])
    return result
