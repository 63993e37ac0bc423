"""What a user can do about an incident: take it, silence it, read its runbook."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from api.alerts import Incident
from tui.feed.requests import ActionError
from tui.kit.text import clean
from tui.screens.forms import AckForm, SilenceForm
from tui.screens.view import View
from tui.state.documents import INCIDENTS, SILENCES

RUNBOOK = "docs/runbook.md#"


def acknowledge(view: View, incident: Incident | None) -> None:
    """Ask who and why, then tell the aggregator."""
    top = view.top
    if incident is None:
        return
    path = f"api/v1/incidents/{quote(incident.key, safe='')}/ack"
    if incident.acknowledged is not None:
        view.run_worker(
            _tell(view, "DELETE", path, {"who": top.who}, "it is nobody's again"), group="act"
        )
        return

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            view.run_worker(
                _tell(view, "POST", path, answer, f"acknowledged as {answer['who']}"), group="act"
            )

    top.push_screen(AckForm(top.tones, clean(incident.title), top.who), answered)


def silence(view: View, incident: Incident | None) -> None:
    """Ask for what, how long and why, then tell the aggregator."""
    top = view.top
    if incident is None:
        return

    def answered(answer: dict[str, Any] | None) -> None:
        if answer is not None:
            done = f"silenced {', '.join(answer['matchers'])} for {answer['for']}"
            view.run_worker(_tell(view, "POST", "api/v1/silences", answer, done), group="act")

    top.push_screen(SilenceForm(top.tones, incident, top.shown, top.who), answered)


def unsilence(view: View) -> None:
    """End the newest silence in force."""
    board = view.top.shown
    running = sorted(
        (s for s in board.silences if s.starts <= board.at < s.ends), key=lambda s: s.starts
    )
    if not running:
        view.top.notify("no silence is in force", timeout=3)
        return
    newest = running[-1]
    words = ", ".join(map(str, newest.matchers))
    view.run_worker(
        _tell(view, "DELETE", f"api/v1/silences/{quote(newest.id, safe='')}", {"who": view.top.who},
              f"silence of {words} ended"), group="act"
    )  # fmt: skip


def runbook(view: View, incident: Incident | None) -> None:
    """Say where the runbook is, and copy it."""
    named = (
        next((a.runbook for a in incident.alerts if a.runbook), "") if incident is not None else ""
    )
    if named:
        view.top.copy(named if "://" in named else f"{RUNBOOK}{named}")


async def _tell(view: View, method: str, path: str, body: object, done: str) -> None:
    top = view.top
    try:
        await top.feed.act(method, path, body)
    except ActionError as error:
        top.notify(clean(str(error)), severity="error", timeout=8, markup=False)
    else:
        top.notify(clean(done), timeout=4, markup=False)
    top.feed.hurry(INCIDENTS, SILENCES)
