"""Controls of the time that the screen shows: pause, step, jump, play; and that time as text."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from telemetry.text import day_of_month, duration, short_duration, time_of_day
from tui.feed.wants import DocumentRequest
from tui.kit.text import time_of
from tui.past.fetching import SETTLES
from tui.state.dashboard_state import DashboardState
from tui.time.playback import SECOND, SPANS, Playback

JUMPS = 60
"""Jumps across the bar; one is a minute at least."""
SPEEDS = (1, 4, 15, 60)
"""Seconds of the past that are played in a second."""


@dataclass
class TimeControls(Playback):
    """The controls of the time that is shown."""

    played: float | None = None
    """When playback moved last, monotonic seconds; None while it does not play."""
    pace: int = 1
    """Index of the speed in `SPEEDS`."""
    early: int | None = None
    """A time that a user requested and that is before the beginning of the store; reported once."""
    _begun: bool = False
    """Whether a recording was rewound to its beginning."""

    @property
    def speed(self) -> int:
        """Seconds of the past that are played in a second."""
        return SPEEDS[self.pace]

    def follow(self, newest: DashboardState, documents: Sequence[DocumentRequest]) -> None:
        """Request what the shown time and the next one need."""
        if self.recorded and not self._begun:
            self._begin(newest)
        self._bound(newest)
        super().follow(newest, documents)

    def _bound(self, newest: DashboardState) -> None:
        """Go to the beginning of the store, if it turns out to be later than the shown time."""
        begins = None if self.past is None else self.past.known.begins
        if self._at is None or begins is None or self._at >= begins or self._frame(self._at) is not None:
            return
        self.early = self._at
        self._to(self._at, self._way, newest)

    def _begin(self, newest: DashboardState) -> None:
        """Rewind a recording, as soon as its beginning is known; the bar holds all of it."""
        self.open = True
        begins = None if self.past is None else self.past.known.begins
        if newest.ready and begins is not None:
            self._begun = True
            self.to_moment(begins, newest)

    def pause(self, newest: DashboardState, now: float) -> None:
        """Pause, or continue."""
        if self.paused is None:
            self.paused, self._frozen = now, self.state(newest)
        else:
            self.live()

    def toggle(self) -> None:
        """Open or close the bar."""
        if self.open:
            self.close()
        else:
            self.open = True

    def close(self) -> None:
        """Close the bar, and return to now; stay in a recording."""
        self.open = False
        if not self.recorded:
            self.live()

    def live(self) -> None:
        """Return to now."""
        self._at = self.paused = self._frozen = self._shown = self.played = None
        self._key = ()

    def widen(self, by: int) -> str:
        """Show more or less of the past on the bar, or play faster or slower; returns a text for the
        user."""
        if self.played is not None:
            self.pace = max(0, min(self.pace + by, len(SPEEDS) - 1))
            return f"playing at {self.speed}x"
        self.length = max(0, min(self.length + by, len(SPANS) - 1))
        return f"time bar of {duration(SPANS[self.length])} at most"

    def step(self, by: int, newest: DashboardState) -> None:
        """Go to the next or previous frame; after the newest comes now."""
        here = newest.at if self._at is None else self._at
        width = self._step(newest)
        grid = ((here + width - 1) // width - 1 if by < 0 else here // width + 1) * width
        number = self.recent.nearest(here) if len(self.recent) else 0
        near = [
            frame.at
            for frame in self.recent.frames[max(0, number - 1) : number + 2]
            if 0 < (frame.at - here) * by <= 2 * width
        ]
        self._to(near[0] if by > 0 and near else near[-1] if near else grid, by, newest)

    def jump(self, seconds: int, newest: DashboardState) -> None:
        """Go by seconds, or by a sixtieth of a long bar."""
        by = 1 if seconds > 0 else -1
        far = max(abs(seconds), SPANS[self.length] // JUMPS) * by
        here = newest.at if self._at is None else self._at
        self.to(here + far * SECOND, newest, by)

    def to(self, at: int, newest: DashboardState, way: int = -1) -> None:
        """Go to an instant: that of a recent frame, else the next one of the grid."""
        first = self._reach(newest)
        at = max(at, first)
        number, width = self._frame(at), self._step(newest)
        if number is not None:
            at = self.recent.frames[number].at
        else:
            at -= at % width
            at += width * (at < first)
        self._to(at, way, newest)

    def to_moment(self, at: int, newest: DashboardState) -> None:
        """Go to an instant that a user typed; the bar grows to hold it."""
        while at < newest.at - SPANS[self.length] * SECOND and self.length < len(SPANS) - 1:
            self.length += 1
        if at < self.ends(newest)[0] and self.past is not None and self.past.known.probed:
            self.early = at
        self.to(at, newest)

    def to_alert(self, newest: DashboardState, by: int) -> None:
        """Go to the previous or next alert."""
        here = newest.at if self._at is None else self._at
        width = self._step(newest)
        # A frame shows what was before it: the first that has the alert is the one after.
        times = [self._after(at, width) for at, _ in self.marks(newest)]
        wanted = [at for at in times if (at > here if by > 0 else at < here)]
        if wanted:
            self._to(wanted[0] if by > 0 else wanted[-1], by, newest)
        elif by > 0:
            self.live()

    def play(self, now: float, newest: DashboardState) -> None:
        """Play or stop; from now it begins at the left end of the bar."""
        if self.played is not None:
            self.played = None
            return
        if self._at is None:
            self.to(self.ends(newest)[0], newest, 1)
        self.played = now
        self._way = 1

    def turn(self, now: float, newest: DashboardState) -> bool:
        """Advance playback; returns whether another instant is shown."""
        if self.played is None or self._at is None:
            return False
        if self.loading:  # until it has loaded
            self.played = now
            return False
        width, gone = self._step(newest), round((now - self.played) * self.speed * SECOND)
        if gone < width:
            return False
        for _ in range(gone // width):
            self.step(1, newest)
            if not self.replaying:  # now is reached
                return True
        self.played = now
        return True

    def _after(self, at: int, width: int) -> int:
        kept = [frame.at for frame in self.recent.frames if 0 < frame.at - at <= 2 * width]
        return kept[0] if kept else (at // width + 1) * width

    def _to(self, at: int, way: int, newest: DashboardState) -> None:
        self.open = True
        width, settled = self._step(newest), newest.at - SETTLES
        young = at > settled and self._frame(at) is None
        if way > 0 and (at >= newest.at or young):
            self.live()
            return
        if young:  # not all of it is stored yet
            at = settled - settled % width
        first = self._reach(newest)
        if at < first:
            at = first if self._frame(first) is not None else -(-first // width) * width
        if self._at is None and self._shown is None:
            self._shown = self._frozen or newest
        self._at, self._way = at, way

    # -- Texts -----------------------------------------------------------------------------------

    def marks(self, newest: DashboardState) -> list[tuple[int, str]]:
        """Return when incidents or alerts within the bar began, with their severities."""
        found = {one.key: (one.began, one.severity) for one in newest.incidents}
        if self.past is not None:
            found |= {one.key: (one.began, one.severity) for one in self.past.known.incidents}
        single = [(alert.since, alert.severity) for alert in newest.alerts if alert.state == "resolved"]
        first, last = self.ends(newest)
        every = [*found.values(), *(single if self.past is None else ())]
        return sorted((at, severity) for at, severity in every if first <= at <= last)

    def words(self, newest: int, *, utc: bool) -> str:
        """Return the time that is shown or being loaded, for the header; `` for now."""
        if self.recorded:
            at = newest if self._at is None else self._at
            end = " (end)" if self._at is None else ""
            return f"{day_of_month(at, utc=utc)} {time_of_day(at, utc=utc)}{end}"
        if self._at is None:
            return ""
        ago = short_duration(max(0, newest - self._at) / 1e9).replace(" ", "")
        words = f"{time_of(self._at, newest, utc=utc)} (-{ago})"
        if self.loading and self._shown is not None and self._shown.at:
            words += f", still {time_of(self._shown.at, newest, utc=utc)}"
        lost = () if self.past is None else self.past.known.incomplete
        if any(begin <= self._at < end for begin, end in lost):
            words += ", incomplete"
        return words

    @property
    def at(self) -> int | None:
        """The instant that is shown or being loaded, ns since 1970; None for now."""
        return self._at

    @property
    def fault(self) -> str:
        """The reason why the time that was requested is not loaded."""
        return self.past.fault if self.past is not None and self.loading else ""


ACTIONS: dict[str, Callable[[TimeControls, DashboardState, float], object]] = {
    "pause": lambda time, newest, now: time.pause(newest, now),
    "time": lambda time, *_: time.toggle(),
    "live": lambda time, *_: time.live(),
    "jump_back": lambda time, newest, _: time.jump(-60, newest),
    "jump_on": lambda time, newest, _: time.jump(60, newest),
    "alert_back": lambda time, newest, _: time.to_alert(newest, -1),
    "alert_on": lambda time, newest, _: time.to_alert(newest, 1),
    "play": lambda time, newest, now: time.play(now, newest) if time.open else None,
}
"""Keys of `tui.keys` that move in time: controls, newest state and monotonic seconds in."""
