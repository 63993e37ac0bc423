"""Actions on alerts: acknowledge, silence, test a channel.

An action is in force at once. The answer waits until it is in the journal too, and reports that
(`saved`): a full disk must not prevent a silence.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.alerting.delivery_view import DeliveryView
from aggregator.http.alerts import KEY, refusals
from aggregator.http.auth import CALLER, signed
from aggregator.http.config import CONFIG
from aggregator.http.errors import RequestError, bad, unknown
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import BODY_FAULTS, duration, moment, query, read_body
from aggregator.http.reply import VIEW, send_json
from aggregator.view import AggregatorView
from alerts.incidents.matchers import LABELS, parse
from api.alerts import (
    AckRequest,
    EndRequest,
    Incident,
    IncidentReply,
    Matcher,
    MatcherParts,
    Silence,
    SilenceReply,
    SilenceRequest,
    TestReply,
)
from telemetry.errors import ConfigError, did_you_mean
from telemetry.text import duration as duration_text

SAVE_SECONDS = 5.0
"""How long an answer waits for the disk."""
LONGEST = 366 * 86_400.0
"""Seconds: a longer silence would be forgotten."""
NO_CHANNEL = (
    "Channels are read at the start. `kilowatch run` without a GPU driver has none: its readings are simulated. "
    "With --source simulated:desktop-4x5090 they are sent."
)


async def acknowledge(request: web.Request) -> web.Response:
    """Acknowledge an incident, or mark what was sent of it as false."""
    query(request)
    view, key = request.app[VIEW], request.match_info["key"]
    asked = await read_body(request, AckRequest)
    now, wall = view.now(), view.wall()
    until = None if asked.duration is None else wall + _length("body.for", asked.duration)
    who = signed(request, asked.who)
    with refusals("incident"):
        if asked.false:
            found = view.pipeline.mark_false(key, who=who, why=asked.why, until=until, now=now, wall=wall)
        else:
            found = await view.pipeline.actions.acknowledge(
                key, who=who, why=asked.why, until=until, now=now, wall=wall
            )
    return await _incident(request, view, found)


async def unacknowledge(request: web.Request) -> web.Response:
    """Remove the acknowledgement, so that reminders resume; or the mark that it was false."""
    query(request)
    view, key = request.app[VIEW], request.match_info["key"]
    asked = await _done(request)
    who, now, wall = signed(request, asked.who), view.now(), view.wall()
    with refusals("incident"):
        if asked.false:
            found = view.pipeline.unmark_false(key, who=who, why=asked.why, now=now, wall=wall)
        else:
            found = await view.pipeline.actions.unacknowledge(key, who=who, why=asked.why, now=now, wall=wall)
    return await _incident(request, view, found)


async def silence(request: web.Request) -> web.Response:
    """Silence some alerts for a while."""
    query(request)
    view = request.app[VIEW]
    asked = await read_body(request, SilenceRequest)
    now, wall = view.now(), view.wall()
    known = {*LABELS, *(label for alert in view.alerts() for label in alert.labels)}
    matchers = [_matcher(number, one, known) for number, one in enumerate(asked.matchers)]
    starts, ends = _times(asked, wall)
    _check_length(request, (ends - (starts or wall)) / 1e9)
    with refusals("silence"):
        found = await view.pipeline.actions.silence(
            matchers,
            who=signed(request, asked.who),
            why=asked.why,
            starts=starts,
            ends=ends,
            maintenance=asked.maintenance,
            now=now,
            wall=wall,
        )
    return await _silence(request, view.delivery, found, view.wall)


async def unsilence(request: web.Request) -> web.Response:
    """End a silence or a maintenance window now."""
    query(request)
    view, key = request.app[VIEW], request.match_info["id"]
    asked = await _done(request)
    with refusals("silence"):
        found = await view.pipeline.actions.unsilence(
            key, who=signed(request, asked.who), why=asked.why, now=view.now(), wall=view.wall()
        )
    return await _silence(request, view.delivery, found, view.wall)


async def test(request: web.Request) -> web.Response:
    """Send a test notification to one channel now, and answer with the outcome."""
    query(request)
    view, name = request.app[VIEW], request.match_info["name"]
    await read_body(request, dict[str, object])
    known = [channel.name for channel in view.delivery.channels()]
    if not known:
        raise RequestError(404, "channel", f"{name[:128]!r} is not known, no channel is in force", NO_CHANNEL)
    if name not in known:
        raise unknown("channel", name, known)
    return await send_json(request, await view.delivery.test(name))


async def _done(request: web.Request) -> EndRequest:
    """Return who ends something and why; a DELETE may come without a body."""
    if not request.body_exists:
        return EndRequest()
    return await read_body(request, EndRequest)


async def _incident(request: web.Request, view: AggregatorView, found: Incident) -> web.Response:
    saved = await view.delivery.saved(SAVE_SECONDS)
    [found] = view.pipeline.quality.marked([found])
    return await send_json(request, IncidentReply(view.wall(), found, saved))


async def _silence(
    request: web.Request, delivery: DeliveryView, found: Silence, wall: Callable[[], int]
) -> web.Response:
    saved = await delivery.saved(SAVE_SECONDS)
    return await send_json(request, SilenceReply(wall(), found, saved))


def _check_length(request: web.Request, seconds: float) -> None:
    """Raise a 403 for a silence that is longer than the scope `silence` permits: one without a bound
    hides a page for ever."""
    most = request.app[CONFIG].longest_silence_seconds
    if seconds > most + 1 and not request[CALLER].allows(AccessScope.ADMIN):
        raise RequestError(
            403,
            "scope",
            f"a silence of more than {duration_text(most)} needs a token with the scope 'admin'",
            "Make it shorter, and again later; the limit is aggregator.longest_silence_seconds.",
        )


def _matcher(number: int, given: str | MatcherParts, known: Collection[str]) -> Matcher:
    where = f"body.matchers[{number}]"
    try:
        found = parse(given if isinstance(given, str) else _text(given), where)
    except ConfigError as error:
        raise bad(where, error.problem, error.hint) from error
    if found.label not in known:  # it would silence nothing, unnoticed
        raise bad(
            where,
            f"no alert has a label {found.label!r}",
            did_you_mean(found.label, known) or "`kilowatch alerts --json` shows them.",
        )
    return found


def _text(given: MatcherParts) -> str:
    value = given.value.replace("\\", "\\\\").replace('"', '\\"')
    sign = ("=~" if given.is_regex else "=") if given.is_equal else ("!~" if given.is_regex else "!=")
    return f'{given.name}{sign}"{value}"'


def _times(asked: SilenceRequest, wall: int) -> tuple[int | None, int]:
    """Return start (None is now) and end, ns since 1970."""
    starts = None if asked.starts is None else _moment("body.starts", asked.starts, wall)
    if (asked.ends is None) == (asked.duration is None):
        problem = "there is no end" if asked.ends is None else "there are two ends"
        raise bad("body", problem, 'Give one of "for" ("2h") and "ends".')
    if asked.duration is not None:
        return starts, (starts or wall) + _length("body.for", asked.duration)
    ends = _moment("body.ends", asked.ends, wall)
    if ends - wall > LONGEST * 1e9:
        raise bad("body.ends", "it is more than a year away", "Choose an end within a year.")
    return starts, ends


def _moment(where: str, given: str | int | None, wall: int) -> int:
    return given if isinstance(given, int) else moment(where, given or "", wall)


def _length(where: str, given: str | float) -> int:
    seconds = duration(where, given) if isinstance(given, str) else float(given)
    if not 0 < seconds <= LONGEST:
        raise bad(where, f"{given} is no length of time", "Write 2h; more than 0, at most a year.")
    return round(seconds * 1e9)


OPERATIONS = (
    Operation(
        "/api/v1/incidents/{key}/ack",
        acknowledge,
        "acknowledge",
        "Acknowledge an incident: no reminders until it grows worse. With `false`, mark what was sent of "
        "it as false, also when it is over.",
        IncidentReply,
        (KEY,),
        (*BODY_FAULTS, 404),
        body=AckRequest,
        method="post",
        scope=AccessScope.ACK,
    ),
    Operation(
        "/api/v1/incidents/{key}/ack",
        unacknowledge,
        "unacknowledge",
        "Remove the acknowledgement of an incident: reminders resume. With `false`, remove the mark that it "
        "was false instead.",
        IncidentReply,
        (KEY,),
        (*BODY_FAULTS, 404),
        body=EndRequest,
        body_required=False,
        method="delete",
        scope=AccessScope.ACK,
    ),
    Operation(
        "/api/v1/silences",
        silence,
        "silence",
        "Suppress the notifications of some alerts for a while. With `maintenance`, alerts that fire "
        "meanwhile open no incident.",
        SilenceReply,
        faults=BODY_FAULTS,
        body=SilenceRequest,
        method="post",
        most_bytes=64 * 1024,
        scope=AccessScope.SILENCE,
    ),
    Operation(
        "/api/v1/silences/{id}",
        unsilence,
        "unsilence",
        "End a silence or a maintenance window now.",
        SilenceReply,
        (Parameter("id", "Id of a silence, or the first characters of it.", "3f2a", required=True, place="path"),),
        (*BODY_FAULTS, 404),
        body=EndRequest,
        body_required=False,
        method="delete",
        scope=AccessScope.SILENCE,
    ),
    Operation(
        "/api/v1/channels/{name}/test",
        test,
        "testChannel",
        "Send a test notification to one channel now, and return the outcome.",
        TestReply,
        (Parameter("name", "Name of a channel.", "oncall", required=True, place="path"),),
        (*BODY_FAULTS, 404),
        method="post",
        scope=AccessScope.ADMIN,
    ),
)
