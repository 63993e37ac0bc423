"""The state of a past instant, from fetched frames and documents. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec
import numpy as np

from api.alerts import Alert, Incident, IncidentsReply
from api.errors import ErrorDetail
from api.fleet import FleetSummary, ModelSummary, NodeReply, NodeStatus, StatusReply
from api.power import CircuitsReply, PowerReply
from tui.past.frame_cache import CachedFrame
from tui.state.cluster_sums import summed
from tui.state.dashboard_state import DashboardState
from tui.state.documents import CIRCUITS, INCIDENTS, POWER_PAGE, TODAY, Doc
from tui.state.gpus import GpuRows, Gpus
from tui.state.readings import POWER

NOT_KEPT = ErrorDetail("past", "nothing of this is kept", "L goes back to now.")
"""In place of what is not stored for a past time."""

NOT_STORED = ErrorDetail("circuits", "nothing of them is stored for this time", "L goes back to now.")


def state_then(
    newest: DashboardState, frame: CachedFrame, incidents: Sequence[Incident] | None, docs: Mapping[str, Doc]
) -> DashboardState:
    """Return the state. `incidents`: None while they are not loaded; `docs`: the documents of that
    time."""
    gpus = _there(frame.readings())
    nodes = _nodes(newest, frame, gpus)
    were = (incident_then(one, frame.at) for one in incidents or ())
    open_then = [each for each in were if each is not None]
    power = newest.doc(POWER_PAGE, PowerReply) or PowerReply()
    watts = {node: value for node, value in frame.nodes.items() if value is not None}
    kept = {TODAY: Doc(NOT_KEPT, 0.0), POWER_PAGE: Doc(msgspec.structs.replace(power, wall_watts=None), 0.0)}
    if incidents is not None:
        kept[INCIDENTS] = Doc(IncidentsReply(frame.at, open_then), 0.0)
    listed = docs.get(CIRCUITS)
    if (
        newest.circuits and listed is not None and isinstance(listed.value, CircuitsReply) and not listed.value.circuits
    ):  # circuits exist, but were not stored
        kept[CIRCUITS] = Doc(NOT_STORED, 0.0)
        docs = {path: doc for path, doc in docs.items() if path != CIRCUITS}
    return DashboardState(
        status=None if newest.status is None else _status(newest.status, frame, gpus, nodes),
        nodes=nodes,
        wall=watts,
        gpus=gpus,
        docs={**kept, **docs},
        alerts=tuple(alerts_then(open_then)),
        at=frame.at,
        ready=True,
    )


# -- Alerts --------------------------------------------------------------------------------------


def incident_then(incident: Incident, at: int) -> Incident | None:
    """Return an incident as it was; None where it had not begun, or was over."""
    if incident.began > at or (incident.ended is not None and incident.ended <= at):
        return None
    were = [alert_then(alert, incident.began, at) for alert in incident.alerts]
    alerts = [alert for alert in were if alert is not None]
    fires = sum(alert.state == "firing" for alert in alerts)
    listed = sum(alert.state == "firing" for alert in incident.alerts)
    taken = incident.acknowledged
    if taken is not None and not taken.at <= at < (taken.until or 1 << 62):
        taken = None
    return msgspec.structs.replace(
        incident,
        ended=None,
        changed=min(incident.changed, at),
        alerts=alerts,
        firing=max(fires, incident.firing + fires - listed),
        acknowledged=taken,
    )


def alert_then(alert: Alert, began: int, at: int) -> Alert | None:
    """Return an alert as it was; None where nothing was wrong yet. `began`: of its incident.

    When one that has resolved began to fire is not kept: it is taken to have fired from when its
    condition was first seen, or its incident began."""
    if alert.since > at:
        return None
    if alert.state == "resolved" and at < alert.changed:
        fired = max(alert.since, began)
        return msgspec.structs.replace(alert, state="firing", changed=fired)
    if alert.state == "firing" and at < alert.changed:
        return msgspec.structs.replace(alert, state="pending", changed=alert.since)
    return alert


def alerts_then(incidents: Iterable[Incident]) -> list[Alert]:
    """Return all alerts of incidents, each once."""
    found: dict[str, Alert] = {}
    for incident in incidents:
        for alert in incident.alerts:
            found.setdefault(alert.key, alert)
    return list(found.values())


# -- Nodes and sums ------------------------------------------------------------------------------


def _there(gpus: Gpus) -> Gpus:
    """Return the GPUs without those that came only later."""
    kept = [row for row in range(len(gpus)) if gpus.reporting[row] or gpus.gap(POWER, row) != "not_read"]
    if len(kept) == len(gpus):
        return gpus
    who = gpus.who
    place = {str(row): str(number) for number, row in enumerate(kept)}
    gaps = {
        name: {place.get(row, row): why for row, why in reasons.items() if row in place or row == "*"}
        for name, reasons in gpus.gaps.items()
    }
    columns = {name: values[kept] for name, values in gpus.columns.items()}
    rows = GpuRows(
        [who.node[row] for row in kept],
        [who.gpu[row] for row in kept],
        [who.uuid[row] for row in kept],
        [who.name[row] for row in kept],
        [who.present[row] for row in kept],
    )
    return Gpus(gpus.version - 1 - len(kept), rows, columns, gaps)


def _nodes(newest: DashboardState, frame: CachedFrame, gpus: Gpus) -> tuple[NodeReply, ...]:
    """Return all nodes that had rows, or that reported."""
    heard = {*frame.nodes, *(gpus.who.node[row] for row in np.flatnonzero(gpus.reporting).tolist())}
    count = Counter(gpus.who.node)
    today = {line.node: line for line in newest.nodes}
    return tuple(
        msgspec.structs.replace(
            today.get(node, NodeReply(node, NodeStatus.STALE)),
            state=NodeStatus.ONLINE if node in heard else NodeStatus.STALE,
            age_seconds=None,
            gpus=count[node],
        )
        for node in sorted({*count, *heard}, key=lambda name: (newest.node_row.get(name, len(today)), name))
    )


def _status(status: StatusReply, frame: CachedFrame, gpus: Gpus, nodes: Sequence[NodeReply]) -> StatusReply:
    online = sum(line.state == "online" for line in nodes)
    reporting = int(gpus.reporting.sum())
    model = ModelSummary(
        gpus={"reporting": reporting, "silent": len(gpus) - reporting, "lost": 0},
        power_known=int(np.count_nonzero(~np.isnan(gpus.column(POWER)))),
    )
    wall_watts = [value for value in frame.nodes.values() if value is not None]
    return msgspec.structs.replace(
        status,
        at=frame.at,
        nodes=len(nodes),
        gpus=len(gpus),
        newest_frame_age_seconds=0.0 if online else None,
        wall_watts=None,  # of now
        wall_nodes=None,
        trends=None,
        summary=summed(
            FleetSummary(
                nodes={"online": online, "stale": len(nodes) - online},
                models=[model],
                wall_power_watts=sum(wall_watts) if wall_watts else None,
                wall_power_known=len(wall_watts),
            ),
            gpus,
        ),
    )
