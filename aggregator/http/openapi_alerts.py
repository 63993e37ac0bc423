"""The alerts' part of the OpenAPI document: what can be read, and what can be done."""

from __future__ import annotations

from aggregator.http.alerts import MOST, USUAL
from aggregator.http.operation import Operation, Parameter
from api.alerts import (
    AckRequest,
    AlertsReply,
    AlertState,
    ChannelsReply,
    DeliveriesReply,
    DeliveryOutcome,
    EndRequest,
    IncidentReply,
    IncidentsReply,
    NotificationState,
    RulesReply,
    Severity,
    SilenceReply,
    SilenceRequest,
    SilencesReply,
    Subject,
    TestReply,
    TimelineReply,
)

_WHEN = "RFC 3339, seconds since 1970, '-1h' or 'now'."
_SEVERITY = Parameter("severity", "Only those of this severity.", "page", tuple(Severity))
_SUBJECT = Parameter("subject", "Only those about such a thing.", "gpu", tuple(Subject))
_NODE = Parameter("node", "Only those of this node.", "n1")
_RULE = Parameter("rule", "Only those of this rule.", "gpu_lost")
_LIMIT = Parameter("limit", f"Most of them, 1 to {MOST}; {USUAL} without.", "100")
_KEY = Parameter(
    "key",
    "Key of an incident, the first characters of it, or the key of one of its alerts; with '/' "
    "written as %2F.",
    "gpu_lost%2Fn1",
    required=True,
    place="path",
)

READS: dict[str, Operation] = {
    "/api/v1/alerts": Operation(
        "alerts",
        "What is wrong now, worst first, and who is told of it.",
        AlertsReply,
        (
            Parameter("state", "Only those in this state.", "firing", tuple(AlertState)),
            _SEVERITY,
            Parameter("standing", "Only those that stand so.", "told", tuple(NotificationState)),
            _SUBJECT,
            _RULE,
            _NODE,
            Parameter("gpu", "Only those of this GPU, by UUID.", "GPU-n1-0"),
            Parameter("name", "Only those of this circuit, budget or UPS.", "office"),
        ),
    ),
    "/api/v1/incidents": Operation(
        "incidents",
        "Open incidents, worst first: all alerts of one cause. With `from`, those that were open "
        "since, newest first.",
        IncidentsReply,
        (
            _SEVERITY,
            _NODE,
            _RULE,
            Parameter("from", f"History: first instant. {_WHEN}", "-7d"),
            Parameter("to", f"History: first instant that no longer counts. {_WHEN}", "now"),
            _LIMIT,
        ),
        (503,),
    ),
    "/api/v1/incidents/{key}": Operation(
        "incident",
        "One incident, open or ended within the hour.",
        IncidentReply,
        (_KEY,),
        (404,),
    ),
    "/api/v1/incidents/{key}/story": Operation(
        "incidentStory",
        "What happened to one incident, open or ended within the hour: who took it, when it was "
        "told of, to whom, and what became of that.",
        TimelineReply,
        (_KEY,),
        (404, 503),
    ),
    "/api/v1/silences": Operation(
        "silences",
        "Silences and maintenance windows: in force, to come, and ended within the hour.",
        SilencesReply,
        (
            Parameter(
                "maintenance", "Only maintenance windows, or none.", "true", ("true", "false")
            ),
        ),
    ),
    "/api/v1/rules": Operation(
        "rules",
        "The rules in force, and how many of their alerts stand.",
        RulesReply,
        (_SEVERITY, _SUBJECT),
    ),
    "/api/v1/deliveries": Operation(
        "deliveries",
        "Notices on their way to channels, and what became of them; newest first.",
        DeliveriesReply,
        (
            Parameter("channel", "Only those to this channel.", "oncall"),
            Parameter("outcome", "Only those that ended so.", "waiting", tuple(DeliveryOutcome)),
            Parameter("incident", "Only those of this incident, by its whole key.", "gpu_lost/n1"),
            Parameter("from", f"First instant. {_WHEN} A week without.", "-1d"),
            _LIMIT,
        ),
        (503,),
    ),
    "/api/v1/channels": Operation(
        "channels", "All channels to people, and how they do.", ChannelsReply
    ),
}

_FAULTS = (403, 413, 415)
WRITES: dict[tuple[str, str], Operation] = {
    ("/api/v1/incidents/{key}/ack", "post"): Operation(
        "acknowledge",
        "Somebody takes care of an incident: it is not told again until it grows worse.",
        IncidentReply,
        (_KEY,),
        (*_FAULTS, 404),
        body=AckRequest,
    ),
    ("/api/v1/incidents/{key}/ack", "delete"): Operation(
        "unacknowledge",
        "Nobody does any more: it is told again when it is due.",
        IncidentReply,
        (_KEY,),
        (*_FAULTS, 404),
        body=EndRequest,
        body_required=False,
    ),
    ("/api/v1/silences", "post"): Operation(
        "silence",
        "Tell nobody of some alerts for a while; with `maintenance`, what fires meanwhile is no "
        "incident at all.",
        SilenceReply,
        faults=_FAULTS,
        body=SilenceRequest,
    ),
    ("/api/v1/silences/{id}", "delete"): Operation(
        "unsilence",
        "End a silence or a maintenance window now.",
        SilenceReply,
        (
            Parameter(
                "id", "Id of a silence, or how only that begins.", "3f2a", required=True,
                place="path",
            ),
        ),
        (*_FAULTS, 404),
        body=EndRequest,
        body_required=False,
    ),
    ("/api/v1/channels/{name}/test", "post"): Operation(
        "testChannel",
        "Send a test notice to one channel now, and say what became of it.",
        TestReply,
        (Parameter("name", "Name of a channel.", "oncall", required=True, place="path"),),
        (*_FAULTS, 404),
    ),
}  # fmt: skip
