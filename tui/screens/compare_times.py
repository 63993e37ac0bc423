"""A GPU or node now and at an earlier time, beside each other, with their differences; and the form for
a time."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from urllib.parse import quote, urlencode

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, Label

from api.columns import HistoryReply
from api.device import GpuPageReply, NodePageReply
from present.units import percent, percent_change
from telemetry.text import SECONDS_IN, duration, short_duration, time_of_day
from tui.feed.wants import DocumentRequest
from tui.kit.text import DASH, clean, fit
from tui.kit.theme import Line, Piece, Tones
from tui.screens.forms import Dialog
from tui.screens.history import Plot, beside, history_lines, share_room
from tui.state.dashboard_state import DashboardState

SECOND = 1_000_000_000
AsText = Callable[[float | None], str]
ODD = 0.1
"""Share by which a value differs before it is marked."""
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2})?")
_AGO = re.compile(r"-?\s*(\d+(?:\.\d+)?)\s*(s|m|h|d)[a-z]*(?:\s+ago)?")


def parse_time(text: str, now: int, *, utc: bool) -> int | None:
    """Return a typed time, ns since 1970: `10m` (ago), `14:05`, `14:05:30`, `2026-08-01 14:05`. None for
    what is no time, or not past."""
    text = text.strip().removesuffix("Z").removesuffix("z").lower()
    ago = _AGO.fullmatch(text)
    if ago is not None:
        at = now - round(float(ago[1]) * SECONDS_IN[ago[2]] * SECOND)
        return at if 0 <= at < now else None
    zone = UTC if utc else datetime.fromtimestamp(now / 1e9, UTC).astimezone().tzinfo
    today = datetime.fromtimestamp(now / 1e9, zone)
    clock = _CLOCK.fullmatch(text) is not None
    if clock:
        text = f"{today.date().isoformat()} {'0' if text[1] == ':' else ''}{text}"
    try:
        parsed = datetime.fromisoformat(text)
    except ValueError:
        return None
    found = parsed.replace(tzinfo=zone)
    if clock and found > today:  # a clock time is the latest past one
        found -= timedelta(days=1)
    at = int(found.timestamp()) * SECOND
    return at if 0 <= at < now else None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A GPU or node, and the time with which it is compared."""

    at: int
    """ns since 1970."""
    kind: str
    """`gpu` or `node`."""
    name: str

    def __str__(self) -> str:
        """Return it as the subject of a page."""
        return f"{self.at} {self.kind} {self.name}"

    @classmethod
    def read(cls, subject: str) -> Comparison | None:
        """Parse the subject of a page; None for another subject."""
        parts = subject.split(" ", 2)
        return cls(int(parts[0]), parts[1], parts[2]) if len(parts) == 3 else None

    def page(self, *, then: bool) -> str:
        """Return the path of its page, now or at that time."""
        path = f"api/v1/{self.kind}s/{quote(self.name, safe='')}"
        return f"{path}?at={self.at // SECOND}" if then else path

    def history(self, metric: str, within: int, *, then: bool) -> str:
        """Return the path of a metric's history up to now, or to that time."""
        asked = {self.kind: self.name, "metric": metric, "from": f"-{within}s"}
        if then:
            end = self.at // SECOND
            asked |= {"from": str(end - within), "to": str(end + 1)}
        return f"api/v1/history?{urlencode(asked, quote_via=quote)}"

    def documents(self, metrics: Sequence[str], within: int) -> tuple[DocumentRequest, ...]:
        """Return the documents of the comparison; those of the past are fetched seldom."""
        page = GpuPageReply if self.kind == "gpu" else NodePageReply
        return (
            DocumentRequest(self.page(then=False), page, 1.0), DocumentRequest(self.page(then=True), page, 600.0),
            *(DocumentRequest(self.history(m, within, then=False), HistoryReply, max(2.0, within / 150)) for m in metrics),
            *(DocumentRequest(self.history(m, within, then=True), HistoryReply, 600.0) for m in metrics),
        )  # fmt: skip


def comparison_lines(
    state: DashboardState,
    then: Comparison,
    rows: Sequence[tuple[str, str, AsText]],
    plots: Sequence[Plot],
    within: int,
    width: int,
    height: int,
    *,
    utc: bool,
) -> list[Line]:
    """Draw the comparison."""
    kind = GpuPageReply if then.kind == "gpu" else NodePageReply
    now_page, then_page = (state.doc(then.page(then=past), kind) for past in (False, True))
    ago = short_duration((state.at - then.at) / 1e9)
    heads = ("now", f"then {time_of_day(then.at, utc=utc)} (-{ago})", "difference")
    column = max(14, (width - 15) // 3)
    lines: list[Line] = [[(fit("", 15), ""), *((fit(head, column), "head") for head in heads)]]
    for page, past in ((now_page, False), (then_page, True)):
        if page is None:
            why = state.fault(then.page(then=past)) or "loading …"
            lines.append([(f"{'then' if past else 'now'}: {clean(why)}", "warn" if why != "loading …" else "dim")])
    for word, metric, as_text in rows:
        now, was = (_reading(page, metric) for page in (now_page, then_page))
        lines.append(
            [(fit(word, 15), "dim"), (fit(as_text(now), column), ""), (fit(as_text(was), column), ""),
             *_difference(now, was, as_text, column)]
        )  # fmt: skip
    plots, room = share_room(plots, height - len(lines))
    wide = (width - 2) // 2
    for plot in plots if room >= 3 else ():
        sides = []
        for past in (False, True):
            path = then.history(plot.metric, within, then=past)
            when = f"to {time_of_day(then.at, utc=utc)}" if past else "to now"
            sides.append(
                history_lines(
                    state.doc(path, HistoryReply),
                    state.fault(path),
                    plot,
                    f"{duration(within)} {when}",
                    wide,
                    room,
                    utc=utc,
                )
            )
        lines += [[], *beside(sides[0], sides[1], wide)]
    return lines


def _reading(page: object, metric: str) -> float | None:
    return page.readings.get(metric) if isinstance(page, GpuPageReply | NodePageReply) else None


def _difference(now: float | None, was: float | None, as_text: AsText, column: int) -> list[Piece]:
    """Draw a difference: in its unit, and as a share of the earlier value."""
    if now is None or was is None:
        return [(fit(DASH, column), "dim")]
    off = now - was
    if as_text is percent:  # percentage points, not the share of a share
        points = round(100 * off)
        return [(fit(f"{points:+d} points" if points else "=", column), "warn" if abs(off) >= ODD else "dim")]
    if as_text(now) == as_text(was):
        return [(fit("=", column), "dim")]
    text = f"{'+' if off > 0 else '-'}{as_text(abs(off))}"
    if was:
        text += f" ({percent_change(off / was)})"
    odd = abs(off) >= ODD * abs(was) if was else True
    return [(fit(text, column), "warn" if odd else "")]


class TimeForm(Dialog):
    """A window for a past time; its answer is ns since 1970."""

    def __init__(
        self,
        tones: Tones,
        title: str,
        lines: Sequence[str],
        entry: Input,
        go: str,
        cure: str,
        newest: Callable[[], int],
        *,
        utc: bool,
    ) -> None:
        """`lines`: above the `entry`; `go`: the word for enter; `cure`: examples of a time."""
        super().__init__(tones, title)
        self._lines, self._entry, self._go, self._cure = lines, entry, go, cure
        self._newest, self._utc = newest, utc

    @classmethod
    def to_show(cls, tones: Tones, newest: Callable[[], int], *, utc: bool) -> TimeForm:
        """Ask which time to show. `newest`: the newest instant, of which clock times are counted."""
        examples = "18:02, 18:02:10, -10m or 2026-11-20 18:02"
        title = f"To a time ({'UTC' if utc else 'local'})"
        entry = Input(placeholder=examples, id="when")
        return cls(tones, title, [], entry, "go", f"Write {examples}.", newest, utc=utc)

    @classmethod
    def to_compare(cls, tones: Tones, what: str, newest: Callable[[], int], *, utc: bool) -> TimeForm:
        """Ask with which time to compare a GPU or node."""
        zone = "UTC" if utc else "local"
        lines = [fit(clean(what), 70).rstrip(), f"then: 10m, 2h (ago), 14:05 or 2026-08-01 14:05 ({zone})"]
        entry = Input("10m", id="then")
        cure = "Write 10m, 2h or 14:05."
        return cls(tones, "Now against then", lines, entry, "compare", cure, newest, utc=utc)

    def compose(self) -> ComposeResult:
        """Yield the lines and the entry."""
        with self.window():
            for line in self._lines:
                yield Label(line, markup=False)
            yield self._entry
            yield Label("", id="wrong", classes="fault")
            yield Label(f"⏎ {self._go}   esc cancel")

    @on(Input.Submitted)
    def _done(self, event: Input.Submitted) -> None:
        at = parse_time(event.value, self._newest(), utc=self._utc)
        if at is None:
            words = f"{event.value[:40]!r} is not a past time. {self._cure}"
            self.query_one("#wrong", Label).update(Text(words))
        else:
            self.dismiss(at)
