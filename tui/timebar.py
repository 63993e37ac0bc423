"""Time: the screen can stand still, or show what was. Pure, but for what the trail keeps."""

from __future__ import annotations

from dataclasses import dataclass, field

from tui.board import Board
from tui.text import clock_of, span
from tui.theme import Line, Piece
from tui.trail import Trail, marks


@dataclass
class Clock:
    """When the screen is."""

    trail: Trail = field(default_factory=Trail)
    paused: float | None = None
    """Since when it stands still, monotonic seconds."""
    open: bool = False
    """Whether the time bar is shown."""
    _frozen: Board | None = None
    _at: int | None = None
    """The instant that is shown, ns since 1970; None is now."""

    @property
    def replaying(self) -> bool:
        """Whether the past is shown."""
        return self._at is not None

    def board(self, newest: Board) -> Board:
        """What to show."""
        if self._at is not None and len(self.trail):
            return self.trail.board(self.trail.nearest(self._at))
        return self._frozen if self._frozen is not None else newest

    def pause(self, newest: Board, now: float) -> None:
        """Stand still, or go on."""
        if self.paused is None:
            self.paused, self._frozen = now, self.board(newest)
        else:
            self.live()

    def toggle(self) -> None:
        """Open or close the bar."""
        if self.open:
            self.close()
        else:
            self.open = True

    def close(self) -> None:
        """Close the bar, and go back to now."""
        self.open = False
        self.live()

    def live(self) -> None:
        """Back to now."""
        self._at = self.paused = self._frozen = None

    def step(self, by: int) -> None:
        """Go by frames; after the newest comes now."""
        if not len(self.trail):
            return
        here = len(self.trail) if self._at is None else self.trail.nearest(self._at)
        self._to(here + by)

    def jump(self, seconds: int) -> None:
        """Go by seconds."""
        if not len(self.trail):
            return
        at = (self.trail.frames[-1].at if self._at is None else self._at) + seconds * 10**9
        self._to(len(self.trail) if at > self.trail.frames[-1].at else self.trail.nearest(at))

    def to_alert(self, newest: Board, by: int) -> None:
        """Go to the alert before or after."""
        times = [at for at, _ in marks(newest, self.trail.frames)]
        here = newest.at if self._at is None else self._at
        # A frame shows what was before it: the first that has the alert is the one after.
        wanted = [at for at in times if (at > here if by > 0 else at < here - 10**9)]
        if wanted:
            at = wanted[0] if by > 0 else wanted[-1]
            self._to(min(self.trail.nearest(at) + 1, len(self.trail) - 1))
        elif by > 0:
            self.live()

    def _to(self, number: int) -> None:
        self.open = True
        if number >= len(self.trail):
            self.live()
        else:
            self._at = self.trail.frames[max(0, number)].at

    def words(self, newest: int, *, utc: bool) -> str:
        """The time that is shown, for the header; `` for now."""
        if self._at is None:
            return ""
        return f"{clock_of(self._at, utc=utc)} (-{span(max(0, newest - self._at) / 1e9).replace(' ', '')})"

    def share(self, width: int, at: int) -> int:
        """Where an instant lies on a bar."""
        first, last = self.trail.frames[0].at, self.trail.frames[-1].at
        return round((width - 1) * (at - first) / max(1, last - first))


def bar_line(clock: Clock, newest: Board, width: int, *, utc: bool) -> Line:
    """Draw the time bar: what began when, and where the screen is."""
    frames = clock.trail.frames
    if not frames:
        return [("time bar: nothing is kept yet", "dim")]
    hint = " [ ] step  { } minute  < > alert  L live "
    left, right = f"◀ {clock_of(frames[0].at, utc=utc)} ", f" {clock_of(frames[-1].at, utc=utc)} ▶"
    room = width - len(left) - len(right) - (len(hint) if width >= 110 else 0)
    signs: list[Piece] = [("─", "faint")] * max(1, room)
    for at, severity in marks(newest, frames):
        place = clock.share(room, at)
        if 0 <= place < room:
            signs[place] = ("▲", "crit") if severity == "page" else ("!", "warn")
    here = frames[-1].at if not clock.replaying else frames[clock.trail.nearest(clock._at or 0)].at  # noqa: SLF001
    signs[max(0, min(room - 1, clock.share(room, here)))] = (
        "●",
        "strong" if clock.replaying else "good",
    )
    pieces: list[Piece] = [(left, "dim")]
    for sign, tone in signs:
        if pieces[-1][1] == tone:
            pieces[-1] = (pieces[-1][0] + sign, tone)
        else:
            pieces.append((sign, tone))
    return [*pieces, (right, "dim"), (hint if width >= 110 else "", "key")]
