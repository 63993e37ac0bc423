"""Every operation of the HTTP API: path, method, handler, and its texts in the OpenAPI document."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from aggregator.access.tokens import AccessScope
from aggregator.http import (
    alert_actions,
    alerts,
    chain,
    circuits,
    dcgm,
    drift,
    evidence_picture,
    fitness,
    fleet,
    health,
    history,
    jobs,
    metrics,
    node_actions,
    nodes,
    past,
    ports,
    power,
    quality,
    sd,
    stream,
    use,
)
from aggregator.http.openapi import Operation, Parameter, build
from aggregator.http.parameters import query
from aggregator.http.reply import send_json
from alerts.message.picture_link import PATH as PICTURE_PATH
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
from api.bill import MonthBill
from api.chain import ChainReply
from api.columns import FleetReply, FramesReply, HistoryReply
from api.device import GpuPageReply, NodePageReply
from api.drift import DriftReply, NodeDifferenceReply
from api.evidence import EvidenceReply
from api.fitness import FitnessReply
from api.fleet import (
    CatalogueReply,
    EventsReply,
    ForgetReply,
    ForgetRequest,
    HealthReply,
    NodesReply,
    ScrapeTarget,
    StatusReply,
)
from api.jobs import JobReply, JobsReply, NodeJobsReply
from api.node_register import RegisterChange, RegisterReply, RegisterRequest, RenameRequest
from api.ports import PortsReply
from api.power import (
    CapPlan,
    CapRequest,
    CircuitHistoryReply,
    CircuitReply,
    CircuitsReply,
    FitRequest,
    FitResult,
    PlanRequest,
    PlanResult,
    PowerReply,
    ReloadRequest,
    RowsReply,
    SiteConfiguration,
)
from api.quality import QualityReply, SuggestionsReply
from api.recovery import RecoveryStepReply, RecoveryStepRequest
from api.report import Report
from api.use import BY, UseReply
from telemetry.metric import Table
from telemetry.wire.dcgm import HOST_LABELS
from telemetry.wire.tables import KINDS


async def document(request: web.Request) -> web.Response:
    """Answer with the description of all operations."""
    query(request)
    return await send_json(request, build(OPERATIONS))


_WHEN = "RFC 3339, seconds since 1970, '-1h' or 'now'."
_NODE = Parameter("node", "Name of a node.", "n1", required=True, place="path")
_NODES = Parameter("node", "Names of nodes, joined by commas; all if absent.", "n1,n2")
_FROM = Parameter("from", f"Start of the time, inclusive. {_WHEN}", "-1h")
_TO = Parameter("to", f"End of the time, exclusive. {_WHEN}", "now")
_AT = Parameter("at", f"A past time, answered from the store. {_WHEN}", "-10m")
_TABLE = Parameter("table", "Kind of the rows; GPUs if absent.", "gpu", tuple(Table))
_LABELS = Parameter("labels", "'device' leaves out the labels cluster and node.", "device", ("full", "device"))
_HOST_LABEL = Parameter(
    "host_label", "Label with the node's name: dcgm-exporter renamed it after release 4.8.2.", "Hostname", HOST_LABELS
)
_JOB_LABELS = Parameter(
    "job_labels",
    "Whether readings have hpc_job, or pod, namespace and container, of the only job on their GPU, for callers who may "
    "see jobs.",
    "no",
    dcgm.JOB_LABELS,
)
_COLUMNS = Parameter(
    "columns",
    "Metrics of the table, joined by commas; the usual ones if absent, '*' for all.",
    "gpu_power_watts,gpu_temperature_celsius",
)
_SEVERITY = Parameter("severity", "Only those of this severity.", "page", tuple(Severity))
_SUBJECT = Parameter("subject", "Only those about this kind of subject.", "gpu", tuple(Subject))
_OF_NODE = Parameter("node", "Only those of this node.", "n1")
_RULE = Parameter("rule", "Only those of this rule.", "gpu_lost")
_LIMIT = Parameter("limit", f"Highest number of them, 1 to {alerts.MOST}; {alerts.USUAL} if absent.", "100")
_KEY = Parameter(
    "key",
    "Key of an incident, the first characters of it, or the key of one of its alerts; with '/' written as %2F.",
    "gpu_lost%2Fn1",
    required=True,
    place="path",
)
_CIRCUIT_AT = Parameter(
    "at",
    "A past time: what was computed up to 30 s before it; one instant in ten seconds is stored, without "
    "facts and alerts. `at` is 0 where nothing is stored. "
    f"{_WHEN}",
    "-10m",
)
_CIRCUIT = Parameter(
    "circuit", "Name of a circuit or panel; '/' is written as %2F.", "office", required=True, place="path"
)
_WRITE_FAULTS = (408, 413, 415)
_READ, _ACK, _SILENCE, _ADMIN = AccessScope

OPERATIONS: tuple[Operation, ...] = (
    Operation(
        "/healthz", health.health, "healthz", "Whether the process is alive.", HealthReply, also=(503,), scope=None
    ),
    Operation(
        "/readyz", health.health, "readyz", "Whether there are fresh readings.", HealthReply, also=(503,), scope=None
    ),
    Operation(
        "/metrics", metrics.metrics, "metrics", "The cluster and the aggregator itself, for Prometheus.", scope=_READ
    ),
    Operation(
        "/metrics/nodes",
        metrics.all_nodes_page,
        "metricsOfAllNodes",
        "All readings of all nodes of a small cluster.",
        faults=(413,),
        scope=_READ,
    ),
    Operation(
        "/metrics/node/{node}",
        metrics.node_page,
        "metricsOfNode",
        "All readings of one node.",
        None,
        (_NODE, _LABELS),
        (404,),
        scope=_READ,
    ),
    Operation(
        "/metrics/dcgm/{node}",
        dcgm.node_page,
        "dcgmOfNode",
        "A node under the names of dcgm-exporter.",
        None,
        (_NODE, _HOST_LABEL, _JOB_LABELS),
        (404,),
        scope=_READ,
    ),
    Operation(
        "/sd/dcgm",
        sd.dcgm,
        "dcgmDiscovery",
        "Every node as a target of its page with the names of dcgm-exporter.",
        list[ScrapeTarget],
        (_HOST_LABEL,),
        scope=_READ,
    ),
    Operation(
        "/sd/prometheus",
        sd.prometheus,
        "serviceDiscovery",
        "Every node as a target, for Prometheus' http_sd.",
        list[ScrapeTarget],
        scope=_READ,
    ),
    Operation("/api/v1/openapi.json", document, "openapi", "This document.", dict[str, Any], scope=_READ),
    Operation(
        "/api/v1/status",
        fleet.status,
        "status",
        "The aggregator and its cluster at this instant.",
        StatusReply,
        scope=_READ,
    ),
    Operation(
        "/api/v1/catalogue",
        fleet.catalogue,
        "catalogue",
        "Every metric with unit, help and span.",
        CatalogueReply,
        scope=_READ,
    ),
    Operation(
        "/api/v1/fleet",
        fleet.fleet,
        "fleet",
        "Readings of the whole fleet, by columns: now, or at the past time `at`.",
        FleetReply,
        (_TABLE, _COLUMNS, _NODES, _AT),
        (404, 503),
        scope=_READ,
    ),
    Operation(
        "/api/v1/fleet/frames",
        past.frames,
        "fleetFrames",
        "The fleet at several past times, from the store. The rows are the devices of "
        "any of these times; `stale`, `unknown` and `not_read` are the reasons for absent readings.",
        FramesReply,
        (
            _TABLE,
            _COLUMNS,
            _NODES,
            Parameter("from", f"Time of the first frame; a minute ago if absent. {_WHEN}", "-10m"),
            Parameter("to", f"End of the time, exclusive. {_WHEN}", "-9m"),
            Parameter(
                "step",
                "Time between two frames; 5s if absent. One that a roll-up divides (10s, 1m) is "
                f"answered from it. {past.MOST_FRAMES} frames and {past.MOST_CELLS} readings at most.",
                "10s",
            ),
            Parameter(
                "packed",
                "'true': MessagePack of the same fields, with each column as the bytes of "
                "little-endian float32 (float64 where there are eight a row): much less work.",
                "false",
                ("true", "false"),
            ),
        ),
        (404, 503),
        scope=_READ,
    ),
    Operation("/api/v1/nodes", nodes.nodes, "nodes", "All nodes.", NodesReply, scope=_READ),
    Operation(
        "/api/v1/nodes/{node}",
        nodes.node,
        "node",
        "One node in detail, now or at a past time.",
        NodePageReply,
        (_NODE, _AT),
        (404, 503),
        scope=_READ,
    ),
    Operation(
        "/api/v1/nodes/{node}/jobs",
        jobs.node_jobs,
        "nodeJobs",
        "Who uses the GPUs of a node: its jobs, allocations and processes, as its collector said last.",
        NodeJobsReply,
        (_NODE,),
        (401, 404),
        scope=_READ,
    ),
    Operation(
        "/api/v1/nodes/{node}/forget",
        node_actions.forget,
        "forgetNode",
        "Remove a node that is gone for good from the fleet, the alerts and the broker; its history "
        "stays. 409 for one that is online.",
        ForgetReply,
        (_NODE,),
        (*_WRITE_FAULTS, 409, 503),
        body=ForgetRequest,
        body_required=False,
        method="post",
        scope=_ADMIN,
    ),
    Operation(
        "/api/v1/register",
        node_actions.register,
        "register",
        "All nodes that are expected, retired, renamed or heard, with their releases.",
        RegisterReply,
        scope=_READ,
    ),
    Operation(
        "/api/v1/drift",
        drift.drift,
        "drift",
        "Nodes whose driver, firmware, GPUs or ports are others than those of most nodes of their kind.",
        DriftReply,
        scope=_READ,
    ),
    Operation(
        "/api/v1/fitness",
        fitness.fitness,
        "fitness",
        "Whether the fleet is good: a score of it, its nodes and its running jobs, with the reasons.",
        FitnessReply,
        scope=_READ,
    ),
    Operation(
        "/api/v1/ports",
        ports.ports,
        "ports",
        "All ports of network adapters, by switch and rail, and each of them, worst first.",
        PortsReply,
        (Parameter("limit", f"Highest number of them, 1 to {ports.MOST}; {ports.USUAL_LINES} if absent.", "100"),),
        scope=_READ,
    ),
    Operation(
        "/api/v1/drift/{node}/{other}",
        drift.between,
        "differenceOfNodes",
        "The facts in which two nodes differ.",
        NodeDifferenceReply,
        (_NODE, Parameter("other", "Name of the other node.", "dgx-02", required=True, place="path")),
        (404,),
        scope=_READ,
    ),
    Operation(
        "/api/v1/nodes/{node}/expect",
        node_actions.expect,
        "expectNode",
        "Declare that a node belongs to the cluster: while it is not there, that is an alert. A retired one is "
        "taken back.",
        RegisterChange,
        (_NODE,),
        (*_WRITE_FAULTS, 409),
        body=RegisterRequest,
        body_required=False,
        method="post",
        scope=_ADMIN,
    ),
    Operation(
        "/api/v1/nodes/{node}/retire",
        node_actions.retire,
        "retireNode",
        "Remove a node as `forget` does, and declare that it has left: it is not expected any more, and it is an "
        "alert when it sends again. 409 for one that is online.",
        RegisterChange,
        (_NODE,),
        (*_WRITE_FAULTS, 409, 503),
        body=RegisterRequest,
        body_required=False,
        method="post",
        scope=_ADMIN,
    ),
    Operation(
        "/api/v1/nodes/{node}/rename",
        node_actions.rename,
        "renameNode",
        "Declare that a node has another name from its next start on. Its history is found under both; the "
        "old name leaves the fleet when the new one is heard.",
        RegisterChange,
        (_NODE,),
        (*_WRITE_FAULTS, 409),
        body=RenameRequest,
        method="post",
        scope=_ADMIN,
    ),
    Operation(
        "/api/v1/nodes/{node}/recovery",
        node_actions.record_recovery,
        "recordRecovery",
        "Record a step of a node's recovery, which somebody carried out elsewhere: it is an event of kind "
        "`recovery`. Nothing is run.",
        RecoveryStepReply,
        (_NODE,),
        (*_WRITE_FAULTS, 404, 503),
        body=RecoveryStepRequest,
        method="post",
        scope=_ACK,
    ),
    Operation(
        "/api/v1/gpus/{uuid}",
        nodes.gpu,
        "gpu",
        "One GPU in detail, now or at a past time.",
        GpuPageReply,
        (Parameter("uuid", "UUID of a GPU.", "GPU-n1-0", required=True, place="path"), _AT),
        (404, 503),
        scope=_READ,
    ),
    Operation(
        "/api/v1/history",
        history.history,
        "history",
        "One metric of one device over time.",
        HistoryReply,
        (
            Parameter("metric", "Name of a metric.", "gpu_power_watts", required=True),
            Parameter("gpu", "UUID of a GPU. Name one device.", "GPU-n1-0"),
            Parameter("link", "A link: UUID of its GPU, '/', its number.", "GPU-n1-0/3"),
            Parameter("node", "Name of a node.", "n1"),
            *(
                Parameter(str(one.table), f"Key of a {one.noun}.", f"{one.prefix}n1")
                for one in KINDS.values()
                if one.prefix
            ),
            _FROM,
            _TO,
            Parameter(
                "step",
                "Length of a bucket, in seconds or as '10s', '5m'; 0 for every reading. If absent, "
                "about 300 buckets, or every reading where that is not many more. "
                f"{history.MOST_POINTS} points at most.",
                "10s",
            ),
        ),
        (404, 503),
        scope=_READ,
    ),
    Operation(
        "/api/v1/events",
        history.events,
        "events",
        "Events, newest first: XIDs, GPUs lost and back, driver reloads.",
        EventsReply,
        (
            _FROM,
            _TO,
            Parameter("node", "Name of a node.", "n1"),
            Parameter("kind", "Kind of event.", "xid"),
            Parameter(
                "limit",
                f"Highest number of events, 1 to {history.MOST_EVENTS}; {history.USUAL_EVENTS} if absent.",
                "100",
            ),
        ),
        (503,),
        scope=_READ,
    ),
    Operation(
        "/api/v1/alerts",
        alerts.alerts,
        "alerts",
        "Alerts, worst first, with their notification state.",
        AlertsReply,
        (
            Parameter("state", "Only those in this state.", "firing", tuple(AlertState)),
            _SEVERITY,
            Parameter("standing", "Only those with this notification state.", "told", tuple(NotificationState)),
            _SUBJECT,
            _RULE,
            _OF_NODE,
            Parameter("gpu", "Only those of this GPU, by UUID.", "GPU-n1-0"),
            Parameter("name", "Only those of this circuit, budget or UPS.", "office"),
        ),
        scope=_READ,
    ),
    Operation(
        "/api/v1/alerts/quality",
        quality.quality,
        "alertQuality",
        "How the pages and tickets of each rule served the people who received them: acknowledged how "
        "fast, resolved by themselves, silenced, flapping, marked as false. A figure that nobody "
        "knows is null, never 0.",
        QualityReply,
        (Parameter("from", f"Start of the time; -30d if absent. {_WHEN}", "-30d"),),
        scope=_READ,
    ),
    Operation(
        "/api/v1/alerts/quality/suggestions",
        quality.suggestions,
        "alertSuggestions",
        "For each rule of which something was marked as false: the smallest change of its level or hold "
        "time that the stored readings of those alerts no longer make fire, while those that were "
        "acknowledged and not marked still do.",
        SuggestionsReply,
        (Parameter("from", f"Start of the time; -30d if absent. {_WHEN}", "-30d"),),
        (503,),
        scope=_READ,
    ),
    Operation(
        "/api/v1/incidents",
        alerts.incidents,
        "incidents",
        "Open incidents, worst first: all alerts of one cause. With `from`, those that were open since, newest first.",
        IncidentsReply,
        (
            _SEVERITY,
            _OF_NODE,
            _RULE,
            Parameter("from", f"Incidents that were open since. {_WHEN}", "-7d"),
            Parameter("to", f"Incidents that began before. {_WHEN}", "now"),
            _LIMIT,
        ),
        (503,),
        scope=_READ,
    ),
    Operation(
        "/api/v1/incidents/{key}",
        alerts.incident,
        "incident",
        "One incident, open or ended within the hour.",
        IncidentReply,
        (_KEY,),
        (404,),
        scope=_READ,
    ),
    Operation(
        "/api/v1/incidents/{key}/timeline",
        alerts.timeline,
        "incidentStory",
        "The timeline of one incident, open or ended within the hour: acknowledgements, "
        "notifications, and their deliveries.",
        TimelineReply,
        (_KEY,),
        (404, 503),
        scope=_READ,
    ),
    Operation(
        "/api/v1/incidents/{key}/evidence",
        alerts.evidence,
        "incidentEvidence",
        "What was known of an incident when it was notified: a card for each GPU, node or circuit with "
        "its lines, readings, earlier faults, remedy and commands. Kept for the newest 2,000 incidents "
        "of 30 days; one that ended more than an hour ago is found by its whole key.",
        EvidenceReply,
        (_KEY,),
        (404, 503),
        scope=_READ,
    ),
    Operation(
        PICTURE_PATH,
        evidence_picture.picture,
        "evidencePicture",
        "The picture of the readings of a card, by the signed link of a message to a channel that has "
        "`public_url`: for seven days, without a token.",
        None,
        (
            Parameter("incident", "Whole key of the incident.", "gpu_lost/n1", required=True),
            Parameter("alert", "Key of the alert.", "gpu_lost/n1/GPU-1", required=True),
            Parameter("expires", "End of the link, seconds since 1970.", "1785578400", required=True),
            Parameter("signature", "Of the three before.", "0" * 64, required=True),
        ),
        (404, 503),
        text_type=evidence_picture.PNG,
        scope=None,
    ),
    Operation(
        "/api/v1/silences",
        alerts.silences,
        "silences",
        "Silences and maintenance windows: in force, planned, and ended within the hour.",
        SilencesReply,
        (Parameter("maintenance", "Only maintenance windows, or none.", "true", ("true", "false")),),
        scope=_READ,
    ),
    Operation(
        "/api/v1/rules",
        alerts.rules,
        "rules",
        "The rules in force, with the number of their pending and firing alerts.",
        RulesReply,
        (_SEVERITY, _SUBJECT),
        scope=_READ,
    ),
    Operation(
        "/api/v1/deliveries",
        alerts.deliveries,
        "deliveries",
        "Deliveries of notifications to channels and their outcomes, newest first.",
        DeliveriesReply,
        (
            Parameter("channel", "Only those to this channel.", "oncall"),
            Parameter("outcome", "Only those with this outcome.", "waiting", tuple(DeliveryOutcome)),
            Parameter("incident", "Only those of this incident, by its whole key.", "gpu_lost/n1"),
            Parameter("from", f"Start of the time, inclusive; a week ago if absent. {_WHEN}", "-1d"),
            _LIMIT,
        ),
        (503,),
        scope=_READ,
    ),
    Operation(
        "/api/v1/channels",
        alerts.channels,
        "channels",
        "All channels, with their state and counters.",
        ChannelsReply,
        scope=_READ,
    ),
    Operation(
        "/api/v1/circuits",
        circuits.circuits,
        "circuits",
        "Every circuit and panel, parents before what they feed. Times to trip are estimates; "
        "null is never if `trip_known`, else unknown. `alerts` are those that are not suppressed: "
        "inhibited ones are in `/api/v1/alerts?standing=inhibited`.",
        CircuitsReply,
        (
            Parameter(
                "columns",
                "Quantities of circuits, joined by commas, '*' for all: the answer then has `rows` and "
                "`columns` in place of `circuits`, a tenth of the bytes.",
                "circuit_watts,circuit_load_ratio",
            ),
            _CIRCUIT_AT,
        ),
        scope=_READ,
    ),
    Operation(
        "/api/v1/circuits/{circuit}",
        circuits.circuit,
        "circuit",
        "One circuit, with the nodes that it feeds.",
        CircuitReply,
        (_CIRCUIT, _CIRCUIT_AT),
        (404,),
        scope=_READ,
    ),
    Operation(
        "/api/v1/circuits/{circuit}/history",
        circuits.history,
        "circuitHistory",
        "One quantity of a circuit over time, in buckets: mean, lowest and highest.",
        CircuitHistoryReply,
        (
            _CIRCUIT,
            Parameter("quantity", "Any of `circuit_*`, without the prefix; watts if absent.", "heat_ratio"),
            Parameter("from", f"Start of the time; an hour ago if absent. {_WHEN}", "-6h"),
            Parameter("to", f"End of the time, exclusive. {_WHEN}", "now"),
            Parameter(
                "step",
                "Length of a bucket, as 10s, 5m or seconds; 0 is every instant, one in about ten "
                "seconds. If absent, about 300 buckets.",
                "1m",
            ),
        ),
        (404,),
        scope=_READ,
    ),
    Operation("/api/v1/budgets", circuits.budgets, "budgets", "Every budget.", RowsReply, (_CIRCUIT_AT,), scope=_READ),
    Operation("/api/v1/ups", circuits.ups, "ups", "Every UPS.", RowsReply, (_CIRCUIT_AT,), scope=_READ),
    Operation(
        "/api/v1/power",
        power.power,
        "power",
        "The electrical side as a whole: configuration, notices, meters.",
        PowerReply,
        scope=_READ,
    ),
    Operation(
        "/api/v1/power/chain",
        chain.chain,
        "powerChain",
        "The power chain from sources to GPUs, as the web pages draw it: pieces with what feeds them, load, limits, and "
        "what flows. Of a small site all; of a larger one the branch of the most urgent circuit, or of the one that is "
        "asked for, with the other feeds of its nodes.",
        ChainReply,
        (Parameter("circuit", "Name of a circuit or panel whose branch is wanted.", "office"),),
        (404,),
        scope=_READ,
    ),
    Operation(
        "/api/v1/report",
        power.report,
        "report",
        "The figures of this cluster for comparison with another: size, power, energy and cost.",
        Report,
        (Parameter("days", f"Days that were measured, today the last; {power.USUAL_DAYS} if absent.", "30"),),
        scope=_READ,
    ),
    Operation(
        "/api/v1/bill",
        power.bill,
        "bill",
        "The bill of a month in the site's time zone: energy by the hour's price, what fills its gaps, "
        "demand, contract, power factor, and idle GPUs by node.",
        MonthBill,
        (Parameter("month", "A stored month; the present one if absent.", "2026-10"),),
        scope=_READ,
    ),
    Operation(
        "/api/v1/use",
        use.use,
        "use",
        "Use of the GPUs in a month of the site's time zone by user, account or job: GPU hours, utilisation, "
        "energy, cost, CO2, and what was asked for against what was used of it. A job over the month's edge is counted on each side of it.",
        UseReply,
        (
            Parameter("by", "What a row is; user if absent.", "user", BY),
            Parameter("month", "A month; the present one if absent.", "2026-10"),
        ),
        scope=_READ,
    ),
    Operation(
        "/api/v1/jobs",
        jobs.jobs,
        "jobs",
        "Jobs that had GPUs between `from` and `to`, with their use and energy, the newest begin first.",
        JobsReply,
        (
            Parameter("job", "Only the job of this id.", "4711"),
            Parameter("user", "Only those of this user; refused without a token (401).", "ada"),
            Parameter("account", "Only those of this account; likewise.", "physics"),
            _OF_NODE,
            Parameter("state", "Only those that run, or that ended.", "running", jobs.STATES),
            Parameter("from", f"Start of the time; a day ago if absent. {_WHEN}", "-1h"),
            _TO,
            Parameter("limit", f"Highest number of them, 1 to {jobs.MOST}; {jobs.USUAL} if absent.", "100"),
        ),
        scope=_READ,
        own=True,
    ),
    Operation(
        "/api/v1/jobs/{id}",
        jobs.job,
        "job",
        "A job: its facts, its allocations, and what it used of each GPU. The newest run, if it was requeued.",
        JobReply,
        (
            Parameter("id", "Id of the job; '/' is written as %2F.", "4711", required=True, place="path"),
            Parameter("scheduler", "Scheduler, where several have a job of this id.", "slurm"),
            Parameter("node", "One of its nodes: a user, a unit or a container is a job of each node.", "dgx01"),
            Parameter("restart", "Number of the run; the newest if absent.", "0"),
        ),
        (404,),
        scope=_READ,
        own=True,
    ),
    Operation(
        "/api/v1/stream",
        stream.stream,
        "stream",
        "A WebSocket. Send a StreamRequest, and another to change it; receive StreamRows, then "
        "StreamData for each tick (in MessagePack, StreamPacked), and on request StreamAlerts and "
        "StreamEvents. StreamError names the fault of a request.",
        faults=(426, 503),
        scope=_READ,
    ),
    Operation(
        "/api/v1/incidents/{key}/ack",
        alert_actions.acknowledge,
        "acknowledge",
        "Acknowledge an incident: no reminders until it grows worse. With `false`, mark what was sent of "
        "it as false, also when it is over.",
        IncidentReply,
        (_KEY,),
        (*_WRITE_FAULTS, 404),
        body=AckRequest,
        method="post",
        scope=_ACK,
    ),
    Operation(
        "/api/v1/incidents/{key}/ack",
        alert_actions.unacknowledge,
        "unacknowledge",
        "Remove the acknowledgement of an incident: reminders resume. With `false`, remove the mark that it "
        "was false instead.",
        IncidentReply,
        (_KEY,),
        (*_WRITE_FAULTS, 404),
        body=EndRequest,
        body_required=False,
        method="delete",
        scope=_ACK,
    ),
    Operation(
        "/api/v1/silences",
        alert_actions.silence,
        "silence",
        "Suppress the notifications of some alerts for a while. With `maintenance`, alerts that fire "
        "meanwhile open no incident.",
        SilenceReply,
        faults=_WRITE_FAULTS,
        body=SilenceRequest,
        method="post",
        most_bytes=64 * 1024,
        scope=_SILENCE,
    ),
    Operation(
        "/api/v1/silences/{id}",
        alert_actions.unsilence,
        "unsilence",
        "End a silence or a maintenance window now.",
        SilenceReply,
        (Parameter("id", "Id of a silence, or the first characters of it.", "3f2a", required=True, place="path"),),
        (*_WRITE_FAULTS, 404),
        body=EndRequest,
        body_required=False,
        method="delete",
        scope=_SILENCE,
    ),
    Operation(
        "/api/v1/channels/{name}/test",
        alert_actions.test,
        "testChannel",
        "Send a test notification to one channel now, and return the outcome.",
        TestReply,
        (Parameter("name", "Name of a channel.", "oncall", required=True, place="path"),),
        (*_WRITE_FAULTS, 404),
        method="post",
        scope=_ADMIN,
    ),
    Operation(
        "/api/v1/power/plan",
        power.plan,
        "planPower",
        "Compute load, limits and time to trip of every circuit for a supposed change of the present "
        "load. Changes nothing. Null seconds mean never or unknown.",
        PlanResult,
        faults=_WRITE_FAULTS,
        body=PlanRequest,
        method="post",
        most_bytes=256 * 1024,
        scope=_READ,
    ),
    Operation(
        "/api/v1/power/fit",
        power.fit,
        "fitPower",
        "Find circuits for new machines: what is left on each legal place in normal state and after the "
        "worst loss of one circuit, panel or source. Changes nothing.",
        FitResult,
        faults=_WRITE_FAULTS,
        body=FitRequest,
        method="post",
        scope=_READ,
    ),
    Operation(
        "/api/v1/power/cap",
        power.cap,
        "capPower",
        "Plan a power limit for each GPU that holds a circuit below a power, with the throughput that it "
        "costs where clocks were measured. Changes nothing.",
        CapPlan,
        faults=_WRITE_FAULTS,
        body=CapRequest,
        method="post",
        scope=_READ,
    ),
    Operation(
        "/api/v1/power/reload",
        power.reload,
        "reloadPower",
        "Read the settings again. The reason for a refusal is in `error`; the configuration before it stays in force.",
        SiteConfiguration,
        faults=_WRITE_FAULTS,
        body=ReloadRequest,
        body_required=False,
        method="post",
        scope=_ADMIN,
    ),
)
