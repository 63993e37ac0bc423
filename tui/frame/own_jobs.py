"""The dashboard of the person whose job it is: `kilowatch top --user`. Read-only.

A small application of its own: the token of a user may fetch jobs and nothing else, so that there is no
fleet, no stream and no past to show. Table and page are those of the Jobs screen.
"""

from __future__ import annotations

import asyncio
import getpass
import time
from collections.abc import Callable
from typing import ClassVar
from urllib.parse import urlencode

from textual import on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver

from api.errors import ErrorDetail
from api.jobs import JobPhase, JobReply, JobsReply
from present.units import number, watts
from telemetry.text import counted, short_duration, time_of_day
from tui.feed.requests import ApiRequests, why
from tui.feed.wants import DocumentRequest
from tui.frame.terminal_input import TerminalDriver
from tui.kit.surface import Surface
from tui.kit.text import clean
from tui.kit.theme import Line, Tones
from tui.screens.job_text import job_lines, numbered
from tui.screens.page import Scroll
from tui.state.documents import LOADING
from tui.tables.job_table import JOB_SORTS, job_listing
from tui.tables.table import VirtualTable

ME = "me"
"""In place of a user's name: the user of the token, else the login name."""
MOST = 500
RUNNING = frozenset({JobPhase.RUNNING, JobPhase.SILENT})
_KEYS: Line = [(" q", "key"), (" Quit  ", "dim"), ("⏎", "key"), (" Open  ", "dim"), ("esc", "key"),
               (" Back  ", "dim"), ("s", "key"), (" Sort  ", "dim"), ("r", "key"), (" Reverse", "dim")]  # fmt: skip


class OwnJobs(App[None]):
    """The jobs of one user, and the page of one of them."""

    TITLE = "kilowatch"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: $background; }
    #own-head { height: 2; }
    #own-foot { height: 1; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q,ctrl+c", "quit", show=False, priority=True),
        Binding("escape", "close", show=False, priority=True),
        Binding("s", "sort", show=False),
        Binding("r", "reverse", show=False),
    ]

    def __init__(
        self,
        url: str,
        token: str | None,
        user: str,
        tones: Tones,
        *,
        every: float = 2.0,
        clock: Callable[[], float] = time.monotonic,
        settled: Callable[[], None] | None = None,
    ) -> None:
        """`user`: a name, or `ME`; `settled`: called once all modules are loaded."""
        super().__init__()
        self.tones, self.user = tones, user
        self.sort, self.reversed = "", False
        self._requests = ApiRequests(url, token)
        self._every, self._clock, self._settled = every, clock, settled
        self._jobs: JobsReply | None = None
        self._came = 0.0
        """When `_jobs` came, monotonic seconds."""
        self._problem = ""
        """Why nothing newer comes, or ``."""
        self._refused = False
        self._path = ""
        """Path of the page that is open, or ``."""
        self._page: JobReply | ErrorDetail | None = None
        self._ask = asyncio.Event()

    def get_driver_class(self) -> type[Driver]:
        """Return Textual's driver, with an input that survives every byte."""
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def compose(self) -> ComposeResult:
        """Yield the lines around, the table and the page."""
        yield Surface(self.tones, id="own-head")
        yield VirtualTable(self.tones, id="own-table")
        yield Scroll(self.tones, id="own-page")
        yield Surface(self.tones, id="own-foot")

    def on_mount(self) -> None:
        """Start to fetch."""
        theme = self.tones.theme
        self.theme = "textual-dark" if theme.background else "ansi-dark"
        if theme.background:
            self.screen.styles.background = theme.background
        self.table = self.query_one(VirtualTable)
        self.page = self.query_one(Scroll)
        self.query_one("#own-foot", Surface).show(lambda _w, _h: [_KEYS])
        self.run_worker(self._follow(), name="own jobs")
        self.set_interval(1.0, self.redraw)  # ages move even when nothing comes
        if self._settled is not None:
            self._settled()
        self.redraw()
        self.table.focus()

    def on_unmount(self) -> None:
        """Close the connection."""
        self._requests.close()

    # -- Data ------------------------------------------------------------------------------------

    async def _follow(self) -> None:
        """Fetch again and again, and at once when a page is opened."""
        while True:
            try:
                await self._fetch()
            except OSError as error:
                self._problem, self._refused = why(error), False
            except Exception as error:  # noqa: BLE001 - an answer of another program: shown, and asked again
                self._problem, self._refused = f"the answer is not understood ({error})", True
            self.redraw()
            self._ask.clear()
            try:
                async with asyncio.timeout(self._every):
                    await self._ask.wait()
            except TimeoutError:
                continue

    async def _fetch(self) -> None:
        if self.user == ME:
            first = await self._document("api/v1/jobs?limit=1", JobsReply)
            if not isinstance(first, JobsReply):
                return
            self.user = first.user or getpass.getuser()
        asked = urlencode({"user": self.user, "limit": MOST})
        found = await self._document(f"api/v1/jobs?{asked}", JobsReply)
        if not isinstance(found, JobsReply):
            return
        self._jobs, self._came, self._problem = found, self._clock(), ""
        path = self._path
        if path:
            page = await self._requests.document(DocumentRequest(path, JobReply, 0.0))
            if path == self._path and isinstance(page, JobReply | ErrorDetail):
                self._page = page

    async def _document(self, path: str, kind: type[JobsReply]) -> object:
        """Fetch a list; a refusal is noted, and what came before is no longer shown: it may be another's."""
        found = await self._requests.document(DocumentRequest(path, kind, 0.0))
        if isinstance(found, ErrorDetail):
            self._problem, self._refused, self._jobs, self._page = str(found), True, None, None
        return found

    # -- Drawing ---------------------------------------------------------------------------------

    def redraw(self) -> None:
        """Draw the table or the page, and the lines above."""
        if not self.is_running:
            return
        found, faded = self._jobs, bool(self._problem)
        at = 0 if found is None else found.at
        rows = () if found is None else tuple(found.jobs)
        unknown = self._problem or LOADING
        nothing = unknown if found is None else f"no job of {clean(self.user)} in the last 24 h, as far as nodes say"
        with self.batch_update():
            self.table.display, self.page.display = not self._path, bool(self._path)
            listing = job_listing(rows, at, self.sort, reverse=self.reversed, nothing=clean(nothing))
            self.table.show(listing, faded=faded)
            if self._path:
                self.page.show(lambda width, _: self._page_lines(width), faded=faded)
            self.query_one("#own-head", Surface).show(lambda _w, _h: self.head_lines())

    def _page_lines(self, width: int) -> list[Line]:
        if isinstance(self._page, JobReply):
            return job_lines(self._page, width, numbered(self._page.indices))
        return [[(clean(str(self._page)) if self._page else self._problem or LOADING, "dim")]]

    def head_lines(self) -> list[Line]:
        """Return the two lines above: whether what is shown is true now, and the sums of what runs."""
        found = self._jobs
        if self._problem:
            word = "○ REFUSED" if self._refused else "○ DISCONNECTED"
            age = "" if found is None else f"  jobs as of {short_duration(self._clock() - self._came)} ago"
            return [[(word, "crit"), (age, "stale")], [(clean(self._problem), "dim")]]
        if found is None:
            return [[("○ CONNECTING", "stale")], []]
        running = [row for row in found.jobs if row.phase in RUNNING]
        known = [row.power_watts for row in running if row.power_watts is not None]
        about = "" if len(known) == len(running) else f" of {len(known)} of them"
        gpus = sum(row.gpus for row in running)
        bad = sum(row.severity is not None for row in running)
        return [
            [("● LIVE", "good"), ("  jobs of ", "dim"), (clean(self.user), "strong"),
             (f"  {time_of_day(found.at)}", "dim"), ("  more than are shown" if found.more else "", "warn")],
            [(f"{counted(len(running), 'job')} {'runs' if len(running) == 1 else 'run'}", "strong"),
             (f" on {counted(gpus, 'GPU')}  ", ""), (f"{watts(sum(known) if known else None)}{about}", ""),
             (f"  {number(len(found.jobs) - len(running))} ended in the last 24 h", "dim"),
             (f"  {bad} with an alert" if bad else "", "warn")],
        ]  # fmt: skip

    # -- Keys ------------------------------------------------------------------------------------

    @on(VirtualTable.RowSelected)
    def _row_selected(self) -> None:
        if self.table.key is not None:
            self._path, self._page, self.page.top = self.table.key, None, 0
            self.page.focus()
            self._ask.set()
            self.redraw()
            self.page.focus()

    def action_close(self) -> None:
        """Close the page. Never quits."""
        self._path, self._page = "", None
        self.redraw()
        self.table.focus()

    def action_sort(self) -> None:
        """Sort by the next column."""
        names = list(JOB_SORTS)
        self.sort = names[(names.index(self.sort) + 1) % len(names)]
        self.redraw()

    def action_reverse(self) -> None:
        """Reverse the order."""
        self.reversed = not self.reversed
        self.redraw()
