"""The state at the time that the screen shows: the newest, a paused one, one of the recent frames, or one
of the aggregator's store."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tui.feed.wants import DocumentRequest
from tui.past.fetching import PastWants
from tui.past.reader import Past
from tui.state.dashboard_state import DashboardState
from tui.state.documents import Doc
from tui.time.recent_frames import RecentFrames, spacing

SECOND = 1_000_000_000
SPANS = (600, 3600, 6 * 3600, 86_400, 7 * 86_400, 30 * 86_400)
"""Seconds of the time bar at most; it leaves out what is not stored."""
LATE = 1.5
"""Spacings for which a recent frame holds."""


@dataclass
class Playback:
    """The time that is shown, and its state; `tui.time.timebar` moves it."""

    recent: RecentFrames = field(default_factory=RecentFrames)
    past: Past | None = None
    """Reader of the aggregator's store; None without one."""
    paused: float | None = None
    """When the screen was paused, monotonic seconds."""
    open: bool = False
    """Whether the time bar is shown."""
    length: int = 1
    """Index of the bar's length in `SPANS`."""
    recorded: bool = False
    """Whether a recording is shown, which has an end and no now."""
    _frozen: DashboardState | None = None
    _shown: DashboardState | None = None
    """The past state shown last; it stays, faded, until the one that is waited for has come."""
    _at: int | None = None
    """The instant that is shown, ns since 1970; None is now."""
    _way: int = -1
    _key: tuple[object, ...] = ()
    """Identity of the parts that `_shown` was made of."""

    @property
    def replaying(self) -> bool:
        """Whether the past is shown."""
        return self._at is not None

    @property
    def away(self) -> bool:
        """Whether escape leads back to now."""
        return self.open or (self.replaying and not self.recorded)

    @property
    def loading(self) -> bool:
        """Whether the time that was requested has not been loaded yet."""
        return self._at is not None and (self._shown is None or self._shown.at != self._at)

    def state(self, newest: DashboardState) -> DashboardState:
        """Return the state to show."""
        if self._at is None:
            return self._frozen if self._frozen is not None else newest
        self._find(self._at, newest)
        return self._shown or self._frozen or newest

    def _find(self, at: int, newest: DashboardState) -> None:
        """Show an instant, if it is loaded; the same object while no part of it has changed."""
        docs: dict[str, Doc] = {}
        number = self._frame(at)
        if number is None:
            base = None if self.past is None else self.past.state(at, newest)
        else:
            base = self.recent.state(number)
            docs = {} if self.past is None else self.past.documents(at)
        key = (at, id(base), *((path, id(doc.value)) for path, doc in docs.items()))
        if base is not None and key != self._key:
            self._key = key
            self._shown = replace(base, at=at, docs={**base.docs, **docs})

    def _frame(self, at: int) -> int | None:
        """Return the index of the recent frame that represents an instant; None where none does."""
        if not len(self.recent):
            return None
        number = self.recent.nearest(at)
        frame = self.recent.frames[number]
        near = 0 <= at - frame.at < LATE * spacing(len(frame.gpus)) * SECOND
        return number if near else None

    def follow(self, newest: DashboardState, documents: Sequence[DocumentRequest]) -> None:
        """Request what the shown time and the next one need."""
        if self.past is None:
            return
        step = self._step(newest)
        begin = self._reach(newest)
        wanted: list[int] = []
        if self._at is not None:
            ahead = self._at + self._way * self.past.length
            wanted = [at for at in (self._at, ahead) if begin <= at and self._frame(at) is None]
        wants = PastWants(self._at, tuple(wanted), begin, tuple(documents), self.open)
        self.past.wants(wants, newest, step)

    def ends(self, newest: DashboardState) -> tuple[int, int]:
        """Return the first and the last instant of the bar."""
        last = newest.at
        first = last - SPANS[self.length] * SECOND
        kept = self.recent.frames[0].at if len(self.recent) else last
        if self.past is None or not self.past.known.probed:
            return min(kept, last), last
        begins = self.past.known.begins
        return (first if begins is None else min(last, max(first, begins)), last)

    def _reach(self, newest: DashboardState) -> int:
        """Return the first instant that can be shown: the beginning of the store, or of the bar while
        that is not known."""
        if self.past is None or self.past.known.probed:
            return self.ends(newest)[0]
        return newest.at - SPANS[self.length] * SECOND

    def _step(self, newest: DashboardState) -> int:
        return round(spacing(len(newest.gpus)) * SECOND)
