"""The dialogs: acknowledge, silence, help, and the palette."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.await_complete import AwaitComplete
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Label

from api.alerts import Incident
from present.units import number
from telemetry.text import counted
from tui.kit.surface import Surface
from tui.kit.text import clean, fit
from tui.kit.theme import Line, Tones
from tui.state.dashboard_state import DashboardState


class Dialog(ModalScreen[Any]):
    """A window over the screen; escape closes it."""

    DEFAULT_CSS = """
    Dialog { align: center bottom; background: $background 20%; }
    Dialog > Vertical { width: 78; max-width: 100%; height: auto; max-height: 100%; border: round $frame;
                        background: $panel; padding: 0 1; border-title-color: $foreground; }
    Dialog Label { width: 1fr; height: 1; color: $dim; }
    Dialog Label.fault { color: $crit; height: auto; }
    Dialog Input, Dialog Input:focus { height: 1; border: none; padding: 0; background: $background; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "dismiss", show=False)]

    def __init__(self, tones: Tones, title: str) -> None:
        super().__init__()
        self.tones, self._title = tones, title
        self._answered = False

    def dismiss(self, result: Any = None) -> AwaitComplete:
        """Close with an answer, once: a burst of keys may come before the window is closed."""
        if self._answered:
            return AwaitComplete()
        self._answered = True
        return super().dismiss(result)

    def window(self) -> Vertical:
        """Return the frame of the window."""
        box = Vertical()
        if self.tones.ascii_only:
            box.styles.border = ("ascii", "white")
        box.border_title = Text(self.tones.as_text(clean(self._title)))
        return box


class AckForm(Dialog):
    """A form for an acknowledgement: who, and why."""

    def __init__(self, tones: Tones, what: str, who: str) -> None:
        super().__init__(tones, "Acknowledge")
        self._what, self._who = what, who

    def compose(self) -> ComposeResult:
        """Yield two inputs."""
        with self.window():
            yield Label(Text(fit(self._what, 70).rstrip()))
            yield Label("who")
            yield Input(self._who, id="who")
            yield Label("why (may be empty)")
            yield Input(placeholder="on it", id="why")
            yield Label("⏎ acknowledge   esc cancel")

    def on_mount(self) -> None:
        """Focus the first empty input."""
        self.query_one("#why" if self._who else "#who").focus()

    @on(Input.Submitted)
    def _done(self) -> None:
        who = self.query_one("#who", Input).value.strip()
        if who:
            self.dismiss({"who": who, "why": self.query_one("#why", Input).value.strip()})


def default_matchers(incident: Incident) -> list[str]:
    """Return the matchers that a silence of an incident begins with: its node, circuit or group."""
    lead = incident.alerts[0] if incident.alerts else None
    if lead is not None and lead.node:
        return [f"node={lead.node}"]
    if incident.group.get("circuit"):
        return [f"circuit={incident.group['circuit']}"]
    return [f"{key}={value}" for key, value in incident.group.items()]


def how_long_and_why(who: str) -> ComposeResult:
    """Yield the inputs that every silence needs."""
    yield Label("for")
    yield Input("2h", id="for")
    yield Label("who")
    yield Input(who, id="who")
    yield Label("why")
    yield Input(placeholder="CHG-112, BMC swap", id="why")


class SilenceForm(Dialog):
    """A form for a silence: what, how long, and why; shows how many alerts it would hide now."""

    def __init__(self, tones: Tones, incident: Incident, state: DashboardState, who: str) -> None:
        super().__init__(tones, "Silence: no notifications of")
        self._incident, self._board, self._who = incident, state, who

    def compose(self) -> ComposeResult:
        """Yield four inputs."""
        with self.window():
            yield Label("match: conditions that must all hold, apart by commas")
            yield Input(",".join(default_matchers(self._incident)), id="match")
            yield from how_long_and_why(self._who)
            yield Label("", id="hides")
            yield Label("", id="wrong", classes="fault")
            yield Label("⏎ silence   tab next   esc cancel")

    def on_mount(self) -> None:
        """Show what it would hide."""
        self.query_one("#match").focus()
        self._show_hits()

    @property
    def matchers(self) -> list[str]:
        """The typed conditions."""
        return [part.strip() for part in self.query_one("#match", Input).value.split(",") if part.strip()]

    @on(Input.Changed, "#match")
    def _show_hits(self) -> None:
        plain = [m.partition("=") for m in self.matchers]
        if any("~" in m or "!" in m for m in self.matchers) or any(not sign for _, sign, _ in plain):
            self.query_one("#hides", Label).update("")
            return
        hit = sum(
            all((a.labels.get(key) or getattr(a, key, None)) == value.strip('"') for key, _, value in plain)
            for a in self._board.alerts
            if a.state == "firing"
        )
        self.query_one("#hides", Label).update(f"will hide {number(hit)} that {'fires' if hit == 1 else 'fire'} now")

    @on(Input.Submitted)
    def _done(self) -> None:
        words = {name: self.query_one(f"#{name}", Input).value.strip() for name in ("for", "who", "why")}
        missing = [name for name, value in (("match", self.matchers), *words.items()) if not value]
        if missing:
            self.query_one("#wrong", Label).update(f"{' and '.join(missing)}: missing")
            self.query_one(f"#{missing[0]}").focus()
            return
        self.dismiss({"matchers": self.matchers, **words})


class ManySilenceForm(Dialog):
    """A form for several silences at once: how long, and why."""

    def __init__(self, tones: Tones, what: Sequence[str], who: str) -> None:
        super().__init__(tones, "Silence what is marked: no notifications of")
        self._what, self._who = what, who

    def compose(self) -> ComposeResult:
        """Yield the subjects and three inputs."""
        shown = self._what[:5]
        more = [f"and {number(len(self._what) - 5)} more"] if len(self._what) > 5 else []
        with self.window():
            for line in (*shown, *more):
                yield Label(Text(fit(clean(line), 70).rstrip()))
            yield from how_long_and_why(self._who)
            yield Label("", id="wrong", classes="fault")
            yield Label("⏎ silence   tab next   esc cancel")

    def on_mount(self) -> None:
        """Focus the first empty input."""
        self.query_one("#why" if self._who else "#who").focus()

    @on(Input.Submitted)
    def _done(self) -> None:
        words = {name: self.query_one(f"#{name}", Input).value.strip() for name in ("for", "who", "why")}
        missing = [name for name, value in words.items() if not value]
        if missing:
            self.query_one("#wrong", Label).update(f"{' and '.join(missing)}: missing")
            self.query_one(f"#{missing[0]}").focus()
        else:
            self.dismiss(words)


class HelpDialog(Dialog):
    """A window with every key of the view."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,question_mark,f1,enter", "dismiss", show=False),
        Binding("down,j", "by(1)", show=False),
        Binding("up,k", "by(-1)", show=False),
        Binding("pagedown", "by(15)", show=False),
        Binding("pageup", "by(-15)", show=False),
    ]

    def __init__(self, tones: Tones, title: str, lines: Callable[[int], Sequence[Line]]) -> None:
        super().__init__(tones, title)
        self._lines, self._top, self._tall = lines, 0, 0

    def compose(self) -> ComposeResult:
        """Yield the drawing."""
        with self.window():
            yield Surface(self.tones, id="help", under="panel")

    def on_mount(self) -> None:
        """Make the window as tall as the screen allows."""
        lines = self._lines(72)
        self._tall = min(len(lines), max(3, self.size.height - 4))
        self.query_one("#help").styles.height = self._tall
        self._show()

    def action_by(self, by: int) -> None:
        """Move by lines."""
        surface = self.query_one("#help", Surface)
        self._top = max(0, min(self._top + by, len(self._lines(72)) - surface.size.height))
        self._show()

    def _show(self) -> None:
        self.query_one("#help", Surface).show(lambda width, _h: self._lines(width)[self._top :])
        below = len(self._lines(72)) - self._top - self._tall
        more = f"↓ {counted(below, 'more line')}" if below > 0 else "↑ more" if self._top else ""
        self.query_one(Vertical).border_subtitle = Text(self.tones.as_text(more))


class Palette(Dialog):
    """A search for anything by a few letters; for commands too."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss", show=False),
        Binding("down", "by(1)", show=False),
        Binding("up", "by(-1)", show=False),
    ]

    def __init__(self, tones: Tones, find: Callable[[str], list[tuple[str, str, str]]]) -> None:
        super().__init__(tones, "Go to or do")
        self._find, self._at = find, 0
        self._found: list[tuple[str, str, str]] = []

    def compose(self) -> ComposeResult:
        """Yield an input, and the list of what fits."""
        with self.window():
            yield Input(placeholder="a node, GPU, circuit, view, theme, export …", id="what")
            yield Surface(self.tones, id="found", under="panel")

    def on_mount(self) -> None:
        """Show all choices."""
        self.query_one("#found").styles.height = 12
        self._search("")

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        self._search(event.value.strip())

    def _search(self, text: str) -> None:
        self._found, self._at = self._find(text), 0
        self._show()

    def action_by(self, by: int) -> None:
        """Move by lines."""
        self._at = max(0, min(self._at + by, len(self._found) - 1))
        self._show()

    def _show(self) -> None:
        at, found = self._at, self._found

        def draw(width: int, height: int) -> list[Line]:
            first = max(0, at - height + 1)
            return [
                [
                    ("▶ " if n == at else "  ", "key"),
                    (f"{kind:<9}", "dim"),
                    (fit(clean(word), max(1, width - 11)), "strong" if n == at else ""),
                ]
                for n, (kind, word, _) in list(enumerate(found))[first : first + height]
            ] or [[("no match", "dim")]]

        self.query_one("#found", Surface).show(draw)

    @on(Input.Submitted)
    def _done(self) -> None:
        self.dismiss(self._found[self._at] if self._found else None)
