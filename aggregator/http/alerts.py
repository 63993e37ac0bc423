"""Alerts, incidents, silences, rules, deliveries and channels: what can be read of them."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec
from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.alerting.delivery_view import DeliveryView
from aggregator.http.errors import RequestError, unknown
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import OF_NODE, WHEN, between, one_of, query, whole_number
from aggregator.http.reply import STORE_SECONDS, VIEW, send_json
from alerts.incidents.manager import IncidentManager
from alerts.notice import Delivery
from api.alerts import (
    Alert,
    AlertRow,
    AlertsReply,
    AlertState,
    ChannelsReply,
    DeliveriesReply,
    DeliveryOutcome,
    DeliveryRow,
    Incident,
    IncidentEvent,
    IncidentReply,
    IncidentsReply,
    NotificationState,
    RuleRow,
    RulesReply,
    Severity,
    SilencesReply,
    Subject,
    TimelineReply,
)
from api.evidence import EvidenceReply
from telemetry.errors import IncidentError

USUAL, MOST = 1000, 10_000
_CHOICES: dict[str, type[StrEnum]] = {
    "state": AlertState,
    "severity": Severity,
    "standing": NotificationState,
    "subject": Subject,
    "outcome": DeliveryOutcome,
}


def check_choices(asked: dict[str, str]) -> None:
    """Raise a 400 for an unknown word."""
    for name, members in _CHOICES.items():
        if name in asked and asked[name] not in members._value2member_map_:
            raise unknown(name, asked[name], [member.value for member in members], status=400)


@contextlib.contextmanager
def refusals(what: str) -> Iterator[None]:
    """Turn what the incident manager refuses into an answer: 404 for what is not there, else 400."""
    try:
        yield
    except IncidentError as error:
        text = str(error).removeprefix(f"{what}: ")
        status = 404 if text.startswith(f"no {what}") else 400
        raise RequestError(status, what, text.rstrip(".")) from error


async def alerts(request: web.Request) -> web.Response:
    """Answer with the present alerts, worst first."""
    asked = query(request, "state", "severity", "standing", "subject", "rule", "node", "gpu", "name")
    check_choices(asked)
    view = request.app[VIEW]
    standing = asked.pop("standing", None)
    found = [
        row
        for alert in view.alerts()
        if all(getattr(alert, name) == value for name, value in asked.items())
        and (row := row_of(view.pipeline.manager, alert)).notification == (standing or row.notification)
    ]
    return await send_json(request, AlertsReply(view.wall(), found), values=20 * len(found))


def row_of(manager: IncidentManager, alert: Alert) -> AlertRow:
    """Return an alert with its notification state and its incident."""
    status = manager.status(alert.key)
    state = NotificationState.NOTIFIED if status is None else status.state
    incident = None if status is None else status.incident or None
    return AlertRow(**msgspec.structs.asdict(alert), notification=state, incident=incident)


async def incidents(request: web.Request) -> web.Response:
    """Answer with open incidents, worst first; with `from`, those that were open since, newest first."""
    asked = query(request, "severity", "node", "rule", "from", "to", "limit")
    check_choices(asked)
    view = request.app[VIEW]
    limit = whole_number(asked, "limit", USUAL, MOST)
    found: Iterable[Incident]
    if "from" in asked or "to" in asked:
        start, end = between(asked.get("from"), asked.get("to"), view.wall(), "-24h")
        async with asyncio.timeout(STORE_SECONDS):
            ever = await view.delivery.history(start, MOST)
        found = [one for one in ever if one.began < end]
    else:
        found = view.pipeline.manager.incidents()
    chosen = [one for one in found if fits(one, asked)][:limit]
    chosen = view.pipeline.quality.marked(chosen)
    return await send_json(request, IncidentsReply(view.wall(), chosen), values=500 * len(chosen))


def fits(incident: Incident, asked: dict[str, str]) -> bool:
    """Return whether an incident has the severity, node and rule that were requested."""
    if incident.severity.value != asked.get("severity", incident.severity.value):
        return False
    return all(
        name not in asked
        or incident.group.get(name) == asked[name]
        or any(getattr(alert, name) == asked[name] for alert in incident.alerts)
        for name in ("node", "rule")
    )


async def incident(request: web.Request) -> web.Response:
    """Answer with one incident, open or ended within the hour."""
    query(request)
    view = request.app[VIEW]
    with refusals("incident"):
        found = view.pipeline.manager.incident(request.match_info["key"])
    [found] = view.pipeline.quality.marked([found])
    return await send_json(request, IncidentReply(view.wall(), found), values=500)


async def timeline(request: web.Request) -> web.Response:
    """Answer with the timeline of one incident, open or ended within the hour, and its deliveries."""
    query(request)
    view = request.app[VIEW]
    with refusals("incident"):
        manager, key = view.pipeline.manager, request.match_info["key"]
        found, events = manager.incident(key), manager.timeline(key)
    body = await timeline_reply(view.delivery, found, events, view.wall())
    return await send_json(request, body, values=20 * len(body.deliveries))


async def timeline_reply(
    delivery: DeliveryView, found: Incident, events: tuple[IncidentEvent, ...], at: int
) -> TimelineReply:
    """Return the timeline of an incident with its deliveries, from the journal."""
    async with asyncio.timeout(STORE_SECONDS):
        sent = await delivery.deliveries(found.began, USUAL, found.key)
    return TimelineReply(
        at=at,
        incident=found.key,
        began=found.began,
        ended=found.ended,
        events=events,
        deliveries=[delivery_row(one) for one in sent],
    )


async def evidence(request: web.Request) -> web.Response:
    """Answer with the evidence of one incident: what was known of it when it was notified. That of an
    incident that ended more than an hour ago is found by its whole key."""
    query(request)
    view, key = request.app[VIEW], request.match_info["key"]
    found: Incident | None = None
    with contextlib.suppress(IncidentError):
        found = view.pipeline.manager.incident(key)
    async with asyncio.timeout(STORE_SECONDS):
        body = await view.delivery.evidence(key, found)
    if body is None:
        with refusals("incident"):
            view.pipeline.manager.incident(key)
        raise RequestError(404, "evidence", "this aggregator collects none")
    return await send_json(request, body, values=500 * len(body.cards))


async def silences(request: web.Request) -> web.Response:
    """Answer with silences and maintenance windows."""
    asked = query(request, "maintenance")
    wanted = "maintenance" in asked and one_of(asked, "maintenance", ("true", "false"))
    view = request.app[VIEW]
    found = [
        silence
        for silence in view.pipeline.manager.silences()
        if not wanted or silence.maintenance == (wanted == "true")
    ]
    return await send_json(request, SilencesReply(at=view.wall(), silences=found))


async def rules(request: web.Request) -> web.Response:
    """Answer with the rules in force, and the number of their pending and firing alerts."""
    asked = query(request, "severity", "subject")
    check_choices(asked)
    view = request.app[VIEW]
    counts = view.pipeline.counts()
    found = [
        RuleRow(
            name=rule.name,
            id=rule.id,
            subject=rule.table,
            kind=str(rule.when.__struct_config__.tag),
            severity=rule.severity,
            hold=rule.hold,
            keep=rule.keep,
            summary=rule.summary,
            act=rule.act,
            description=rule.description,
            runbook=rule.runbook,
            remediation=rule.remediation,
            pending=counts[rule.name, "pending"],
            firing=counts[rule.name, "firing"],
        )
        for rule in view.pipeline.engine.rules
        if rule.severity.value == asked.get("severity", rule.severity.value)
        and rule.table.value == asked.get("subject", rule.table.value)
    ]
    return await send_json(request, RulesReply(view.wall(), found), values=20 * len(found))


async def deliveries(request: web.Request) -> web.Response:
    """Answer with deliveries and their outcomes, newest first."""
    asked = query(request, "channel", "outcome", "incident", "from", "limit")
    check_choices(asked)
    view = request.app[VIEW]
    limit = whole_number(asked, "limit", USUAL, MOST)
    start, _ = between(asked.get("from"), None, view.wall(), "-7d")
    async with asyncio.timeout(STORE_SECONDS):
        found = await view.delivery.deliveries(start, MOST)
    chosen = [delivery_row(one) for one in found if _goes(one, asked)][:limit]
    return await send_json(request, DeliveriesReply(view.wall(), chosen), values=20 * len(chosen))


def _goes(delivery: Delivery, asked: dict[str, str]) -> bool:
    its = {"channel": delivery.channel, "outcome": delivery.outcome.value, "incident": delivery.notice.incident.key}
    return all(asked.get(name, value) == value for name, value in its.items())


def delivery_row(delivery: Delivery) -> DeliveryRow:
    """Return a delivery without the alerts of its notification."""
    notice = delivery.notice
    return DeliveryRow(
        id=delivery.id,
        channel=delivery.channel,
        incident=notice.incident.key,
        title=notice.incident.title,
        action=notice.action,
        reason=notice.reason,
        created=delivery.created,
        due=delivery.due,
        tries=delivery.tries,
        outcome=delivery.outcome,
        error=delivery.error,
    )


async def channels(request: web.Request) -> web.Response:
    """Answer with all channels, their states and counters."""
    query(request)
    view = request.app[VIEW]
    return await send_json(request, ChannelsReply(view.wall(), view.delivery.channels()))


_SEVERITY = Parameter("severity", "Only those of this severity.", "page", tuple(Severity))
_SUBJECT = Parameter("subject", "Only those about this kind of subject.", "gpu", tuple(Subject))
_RULE = Parameter("rule", "Only those of this rule.", "gpu_lost")
_LIMIT = Parameter("limit", f"Highest number of them, 1 to {MOST}; {USUAL} if absent.", "100")
KEY = Parameter(
    "key",
    "Key of an incident, the first characters of it, or the key of one of its alerts; with '/' written as %2F.",
    "gpu_lost%2Fn1",
    required=True,
    place="path",
)

OPERATIONS = (
    Operation(
        "/api/v1/alerts",
        alerts,
        "alerts",
        "Alerts, worst first, with their notification state.",
        AlertsReply,
        (
            Parameter("state", "Only those in this state.", "firing", tuple(AlertState)),
            _SEVERITY,
            Parameter("standing", "Only those with this notification state.", "told", tuple(NotificationState)),
            _SUBJECT,
            _RULE,
            OF_NODE,
            Parameter("gpu", "Only those of this GPU, by UUID.", "GPU-n1-0"),
            Parameter("name", "Only those of this circuit, budget or UPS.", "office"),
        ),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/incidents",
        incidents,
        "incidents",
        "Open incidents, worst first: all alerts of one cause. With `from`, those that were open since, newest first.",
        IncidentsReply,
        (
            _SEVERITY,
            OF_NODE,
            _RULE,
            Parameter("from", f"Incidents that were open since. {WHEN}", "-7d"),
            Parameter("to", f"Incidents that began before. {WHEN}", "now"),
            _LIMIT,
        ),
        (503,),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/incidents/{key}",
        incident,
        "incident",
        "One incident, open or ended within the hour.",
        IncidentReply,
        (KEY,),
        (404,),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/incidents/{key}/timeline",
        timeline,
        "incidentStory",
        "The timeline of one incident, open or ended within the hour: acknowledgements, "
        "notifications, and their deliveries.",
        TimelineReply,
        (KEY,),
        (404, 503),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/incidents/{key}/evidence",
        evidence,
        "incidentEvidence",
        "What was known of an incident when it was notified: a card for each GPU, node or circuit with "
        "its lines, readings, earlier faults, remedy and commands. Kept for the newest 2,000 incidents "
        "of 30 days; one that ended more than an hour ago is found by its whole key.",
        EvidenceReply,
        (KEY,),
        (404, 503),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/silences",
        silences,
        "silences",
        "Silences and maintenance windows: in force, planned, and ended within the hour.",
        SilencesReply,
        (Parameter("maintenance", "Only maintenance windows, or none.", "true", ("true", "false")),),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/rules",
        rules,
        "rules",
        "The rules in force, with the number of their pending and firing alerts.",
        RulesReply,
        (_SEVERITY, _SUBJECT),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/deliveries",
        deliveries,
        "deliveries",
        "Deliveries of notifications to channels and their outcomes, newest first.",
        DeliveriesReply,
        (
            Parameter("channel", "Only those to this channel.", "oncall"),
            Parameter("outcome", "Only those with this outcome.", "waiting", tuple(DeliveryOutcome)),
            Parameter("incident", "Only those of this incident, by its whole key.", "gpu_lost/n1"),
            Parameter("from", f"Start of the time, inclusive; a week ago if absent. {WHEN}", "-1d"),
            _LIMIT,
        ),
        (503,),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/channels",
        channels,
        "channels",
        "All channels, with their state and counters.",
        ChannelsReply,
        scope=AccessScope.READ,
    ),
)
