"""What a user does about several incidents in one go: take them, or silence what they are about."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from urllib.parse import quote

from rich.text import Text
from textual import on
from textual.app import ComposeResult
from textual.widgets import Input, Label

from tui.documents import INCIDENTS, SILENCES
from tui.feed.requests import ActionError
from tui.messages.alerts import Incident
from tui.screens.forms import AckForm, Dialog, how_long_and_why, usual
from tui.screens.view import View
from tui.text import clean, fit, number
from tui.theme import Tones

AT_ONCE = 8
"""Requests under way together."""
Request = tuple[str, str, object]
"""Method, path and body."""


def acknowledge_marked(view: View, incidents: Sequence[Incident]) -> None:
    """Ask once who and why, then take all that nobody has taken yet."""
    top = view.top
    free = [incident for incident in incidents if incident.acknowledged is None]
    taken = len(incidents) - len(free)
    if not free:
        why = (
            "all that is marked is taken already"
            if taken
            else "nothing is marked: space marks a row"
        )
        top.notify(why, timeout=4)
        return

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            asked = [
                ("POST", f"api/v1/incidents/{quote(one.key, safe='')}/ack", answer) for one in free
            ]
            also = [f"{number(taken)} taken already"] if taken else []
            done = f"acknowledged as {answer['who']}"
            view.run_worker(_tell_all(view, asked, done, also), group="act")

    what = f"{number(len(free))} marked: {'; '.join(clean(one.title) for one in free[:3])}"
    top.push_screen(AckForm(top.tones, what, top.who), answered)


def silence_marked(view: View, incidents: Sequence[Incident]) -> None:
    """Ask once how long and why, then silence each thing that the incidents are about."""
    top = view.top
    targets = list(dict.fromkeys(tuple(usual(incident)) for incident in incidents))

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            asked = [
                ("POST", "api/v1/silences", {"matchers": target, **answer}) for target in targets
            ]
            view.run_worker(
                _tell_all(view, asked, f"silenced for {answer['for']}", []), group="act"
            )

    top.push_screen(ManySilenceForm(top.tones, [", ".join(t) for t in targets], top.who), answered)


async def _tell_all(view: View, asked: Sequence[Request], done: str, also: Sequence[str]) -> None:
    """Ask the aggregator for all of it, and say once how it went."""
    top, gate = view.top, asyncio.Semaphore(AT_ONCE)

    async def ask(method: str, path: str, body: object) -> str:
        async with gate:
            try:
                await top.feed.act(method, path, body)
            except ActionError as error:
                return clean(str(error))
        return ""

    answers = await asyncio.gather(*(ask(*one) for one in asked))
    refused = Counter(answer for answer in answers if answer)
    good = len(answers) - refused.total()
    parts = [f"{number(good)} {done}", *also]
    parts += [f"{number(count)} refused: {why}" for why, count in refused.most_common(2)]
    top.notify(
        "; ".join(parts), severity="error" if refused else "information",
        timeout=8 if refused else 4, markup=False,
    )  # fmt: skip
    top.feed.hurry(INCIDENTS, SILENCES)


class ManySilenceForm(Dialog):
    """How long and why, for several things at once."""

    def __init__(self, tones: Tones, what: Sequence[str], who: str) -> None:
        super().__init__(tones, "Silence what is marked: tell nobody of")
        self._what, self._who = what, who

    def compose(self) -> ComposeResult:
        """What it is about, and three lines to write in."""
        shown = self._what[:5]
        more = [f"and {number(len(self._what) - 5)} more"] if len(self._what) > 5 else []
        with self.window():
            for line in (*shown, *more):
                yield Label(Text(fit(clean(line), 70).rstrip()))
            yield from how_long_and_why(self._who)
            yield Label("", id="wrong", classes="fault")
            yield Label("⏎ silence   tab next   esc cancel")

    def on_mount(self) -> None:
        """Begin where something is missing."""
        self.query_one("#why" if self._who else "#who").focus()

    @on(Input.Submitted)
    def _done(self) -> None:
        said = {
            name: self.query_one(f"#{name}", Input).value.strip() for name in ("for", "who", "why")
        }
        missing = [name for name, value in said.items() if not value]
        if missing:
            self.query_one("#wrong", Label).update(
                f"{' and '.join(missing)}: nothing is written there"
            )
            self.query_one(f"#{missing[0]}").focus()
        else:
            self.dismiss(said)
