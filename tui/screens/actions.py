"""Actions on incidents: acknowledge, silence, end a silence, copy the runbook; and where pages are."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, urlsplit

from api.alerts import Alert, Incident
from present.alert.incident import matchers_words
from present.units import number
from tui.feed.requests import ActionError
from tui.kit.text import clean
from tui.screens.forms import AckForm, ManySilenceForm, SilenceForm, default_matchers
from tui.screens.view import View
from tui.state.documents import INCIDENTS, SILENCES

RUNBOOK = "/runbook/"
"""Path of the runbook pages of an aggregator."""
PAGED = ("node", "gpu", "circuit")
"""Kinds of what is chosen that have a web page each."""
AT_ONCE = 8
"""Requests under way together."""
Request = tuple[str, str, object]
"""Method, path and body."""


def acknowledge(view: View, incident: Incident | None) -> None:
    """Ask who and why, then acknowledge; of an acknowledged incident, withdraw that."""
    context = view.context
    if incident is None:
        return
    if incident.acknowledged is not None:
        _send(view, ("DELETE", _ack(incident), {"who": context.who}), "acknowledgement withdrawn")
        return

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            _send(view, ("POST", _ack(incident), answer), "acknowledged")

    view.app.push_screen(AckForm(context.tones, clean(incident.title), context.who), answered)


def acknowledge_marked(view: View, incidents: Sequence[Incident]) -> None:
    """Ask once who and why, then acknowledge all that nobody has acknowledged yet."""
    context = view.context
    free = [incident for incident in incidents if incident.acknowledged is None]
    done = len(incidents) - len(free)
    if not free:
        why = "all that is marked is acknowledged already"
        view.notify(why if done else "nothing is marked: space marks a row", timeout=4)
        return

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            also = [f"{number(done)} acknowledged already"] if done else []
            requests = [("POST", _ack(each), answer) for each in free]
            _send_all(view, requests, "acknowledged", also)

    what = f"{number(len(free))} marked: {'; '.join(clean(each.title) for each in free[:3])}"
    view.app.push_screen(AckForm(context.tones, what, context.who), answered)


def silence(view: View, incident: Incident | None) -> None:
    """Ask for what, how long and why, then silence."""
    context = view.context
    if incident is None:
        return

    def answered(answer: dict[str, Any] | None) -> None:
        if answer is not None:
            done = f"silenced {', '.join(answer['matchers'])} for {answer['for']}"
            _send(view, ("POST", SILENCES, answer), done)

    form = SilenceForm(context.tones, incident, context.shown, context.who)
    view.app.push_screen(form, answered)


def silence_marked(view: View, incidents: Sequence[Incident]) -> None:
    """Ask once how long and why, then silence the subject of each incident."""
    context = view.context
    targets = list(dict.fromkeys(tuple(default_matchers(incident)) for incident in incidents))

    def answered(answer: dict[str, str] | None) -> None:
        if answer is not None:
            requests = [("POST", SILENCES, {"matchers": target, **answer}) for target in targets]
            _send_all(view, requests, f"silenced for {answer['for']}", [])

    form = ManySilenceForm(context.tones, [", ".join(t) for t in targets], context.who)
    view.app.push_screen(form, answered)


def unsilence(view: View) -> None:
    """End the newest silence in force."""
    state = view.context.shown
    running = [each for each in state.silences if each.starts <= state.at < each.ends]
    if not running:
        view.notify("no silence is in force", timeout=3)
        return
    newest = max(running, key=lambda each: each.starts)
    path = f"{SILENCES}/{quote(newest.id, safe='')}"
    words = matchers_words(newest)
    _send(view, ("DELETE", path, {"who": view.context.who}), f"silence of {words} ended")


def runbook(view: View, incident: Incident | None) -> None:
    """Copy the URL of the runbook page, and show it."""
    alerts = () if incident is None else incident.alerts
    named = next((alert for alert in alerts if alert.runbook), None)
    if named is not None:
        view.context.frame.copy(runbook_url(view.context.feed.url, named))


def runbook_url(aggregator: str, alert: Alert) -> str:
    """Return the URL of the runbook page of an alert's rule, on the aggregator that the dashboard reads,
    without the password in its URL."""
    place = runbook_place(alert)
    return place if "://" in place else _at(aggregator, place)


def page_url(aggregator: str, chosen: tuple[str, str] | None) -> str:
    """Return the URL of the web page of what is chosen, by kind and name; of the first page where nothing is, or what has
    none of its own."""
    kind, name = chosen or ("", "")
    return _at(aggregator, f"/{kind}s/{quote(name, safe='')}" if kind in PAGED else "/")


def _at(aggregator: str, place: str) -> str:
    """Return the URL of a path on the aggregator, without the password in its own."""
    parts = urlsplit(aggregator)
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}{place}"


def runbook_place(alert: Alert) -> str:
    """Return the path of the runbook page on the aggregator, or the URL that the rule itself names."""
    named = clean(alert.runbook)
    return named if "://" in named else f"{RUNBOOK}{quote(alert.rule, safe='')}"


def _ack(incident: Incident) -> str:
    return f"{INCIDENTS}/{quote(incident.key, safe='')}/ack"


def _send(view: View, request: Request, done: str) -> None:
    """Send a request in the background, and report `done`, or why not."""

    async def send() -> None:
        (refused,) = await _answers(view, [request])
        _report(view, refused or clean(done), failed=bool(refused))

    view.run_worker(send(), group="act")


def _send_all(view: View, requests: Sequence[Request], done: str, also: Sequence[str]) -> None:
    """Send requests in the background, and report once how many of them did what."""

    async def send() -> None:
        answers = await _answers(view, requests)
        refused = Counter(answer for answer in answers if answer)
        parts = [f"{number(len(answers) - refused.total())} {done}", *also]
        parts += [f"{number(count)} refused: {why}" for why, count in refused.most_common(2)]
        _report(view, "; ".join(parts), failed=bool(refused))

    view.run_worker(send(), group="act")


async def _answers(view: View, requests: Sequence[Request]) -> list[str]:
    """Send requests; returns why each was refused, or ``."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def ask(method: str, path: str, body: object) -> str:
        async with limit:
            try:
                await view.context.feed.act(method, path, body)
            except ActionError as error:
                return clean(str(error))
        return ""

    answers = await asyncio.gather(*(ask(*each) for each in requests))
    view.context.feed.hurry(INCIDENTS, SILENCES)
    return answers


def _report(view: View, message: str, *, failed: bool) -> None:
    view.notify(message, severity="error" if failed else "information", timeout=8 if failed else 4, markup=False)
