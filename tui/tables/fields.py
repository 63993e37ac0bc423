"""The keys by which each table can be filtered, and their columns. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from api.alerts import Incident, Severity
from api.jobs import JobRow
from api.power import CircuitState
from present.circuit.figures import load, share
from present.device.gpu import CLOCK_LIMITS
from tui.state import readings
from tui.state.dashboard_state import DashboardState
from tui.state.gpus import Floats, Gpus
from tui.tables.filter import Fields

GPU_KEYS = ("node", "gpu", "uuid", "model", "rack", "circuit", "job", "sev", "power", "limit", "temp",
            "util", "mem", "clock", "limited")  # fmt: skip
NODE_KEYS = ("node", "rack", "circuit", "job", "sev", "gpus", "power", "wall", "temp", "util", "state")
CIRCUIT_KEYS = ("circuit", "kind", "parent", "node", "watts", "load", "continuous", "heat", "trip", "sev")
JOB_KEYS = ("job", "user", "account", "node", "scheduler", "state", "gpus", "use", "power", "sev")
ALERT_KEYS = ("sev", "rule", "node", "circuit", "gpu", "title", "age", "acked")

_PLAIN = {
    "power": (readings.POWER, 1.0), "limit": (readings.LIMIT, 1.0), "temp": (readings.TEMPERATURE, 1.0),
    "mem": (readings.MEMORY_USED, 2.0**-30), "clock": (readings.CLOCK, 1e-6),
}  # fmt: skip


def gpu_fields(state: DashboardState, gpus: Gpus) -> Fields:
    """Return the columns of GPUs: watts, degrees, a share (or percent with %), GiB, MHz."""
    who = gpus.who
    lines = {line.node: line for line in state.nodes}

    def of_node(as_text: Callable[[str], str]) -> Callable[[], Sequence[str]]:
        return lambda: _per_node(who.node, as_text)

    return {
        "": lambda: [
            f"{n}/{i} {u} {m}".casefold() for n, i, u, m in zip(who.node, who.gpu, who.uuid, who.name, strict=True)
        ],
        "node": lambda: who.node,
        "gpu": lambda: np.array(who.gpu, np.float64),
        "uuid": lambda: who.uuid,
        "model": lambda: who.name,
        "rack": of_node(lambda node: lines[node].rack if node in lines else ""),
        "job": of_node(lambda node: lines[node].job if node in lines else ""),
        "circuit": of_node(lambda node: ",".join(state.feeds.get(node, ()))),
        "sev": lambda: state.gpu_status.astype(np.float64),
        "util": lambda: gpus.column(readings.UTILIZATION),
        "limited": lambda: _clock_limit(gpus),
        **{key: _scaled(gpus, metric, scale) for key, (metric, scale) in _PLAIN.items()},
    }


def _scaled(gpus: Gpus, metric: str, scale: float) -> Callable[[], Floats]:
    return lambda: gpus.column(metric) * scale


def _per_node(nodes: Sequence[str], as_text: Callable[[str], str]) -> list[str]:
    known: dict[str, str] = {}
    return [known[node] if node in known else known.setdefault(node, as_text(node)) for node in nodes]


def _clock_limit(gpus: Gpus) -> list[str]:
    words = [""] * len(gpus)
    for metric, word in reversed(CLOCK_LIMITS.items()):
        for row in np.flatnonzero(gpus.column(metric) > 0).tolist():
            words[row] = word
    return words


def node_fields(state: DashboardState) -> Fields:
    """Return the columns of nodes: watts, degrees, a share."""
    nodes = state.nodes

    def words() -> list[str]:
        """Return the names of nodes, with their labels and GPUs."""
        uuids: dict[str, list[str]] = {}
        for node, uuid in zip(state.gpus.who.node, state.gpus.who.uuid, strict=True):
            uuids.setdefault(node, []).append(uuid)
        return [f"{n.node} {n.rack} {n.job} {' '.join(uuids.get(n.node, ()))}".casefold() for n in nodes]

    return {
        "": words,
        "node": lambda: [n.node for n in nodes],
        "rack": lambda: [n.rack for n in nodes],
        "role": lambda: [n.role for n in nodes],
        "job": lambda: [n.job for n in nodes],
        "state": lambda: [n.state for n in nodes],
        "circuit": lambda: [",".join(state.feeds.get(n.node, ())) for n in nodes],
        "sev": lambda: state.node_status.astype(np.float64),
        "gpus": state.node_reporting,
        "power": lambda: state.node_sum(readings.POWER),
        "wall": lambda: np.array([state.wall.get(n.node, np.nan) for n in nodes], np.float64),
        "temp": lambda: state.node_max(readings.TEMPERATURE),
        "util": lambda: state.node_mean(readings.UTILIZATION),
    }


def circuit_fields(state: DashboardState, circuits: Sequence[CircuitState]) -> Fields:
    """Return the columns of circuits: watts, shares, seconds."""

    def numbers(get: Callable[[CircuitState], float | None]) -> Callable[[], Floats]:
        return lambda: np.array([get(c) for c in circuits], np.float64)

    return {
        "": lambda: [f"{c.id} {c.parent or ''} {' '.join(c.nodes)}".casefold() for c in circuits],
        "circuit": lambda: [c.id for c in circuits],
        "kind": lambda: [c.kind for c in circuits],
        "parent": lambda: [c.parent or "" for c in circuits],
        "node": lambda: [",".join(c.nodes) for c in circuits],
        "watts": numbers(load),
        "load": numbers(share),
        "continuous": numbers(lambda c: c.continuous_ratio),
        "heat": numbers(lambda c: c.heat_ratio),
        "trip": numbers(lambda c: c.trip_seconds.earliest),
        "sev": lambda: np.array([state.circuit_status.get(c.id, 0) for c in circuits], np.float64),
    }


def job_fields(jobs: Sequence[JobRow]) -> Fields:
    """Return the columns of jobs: a share, watts."""
    of = {Severity.PAGE: 3.0, Severity.TICKET: 2.0}

    def numbers(get: Callable[[JobRow], float | None]) -> Callable[[], Floats]:
        return lambda: np.array([get(each) for each in jobs], np.float64)

    return {
        "": lambda: [f"{j.id} {j.job_name} {j.user} {' '.join(j.nodes)}".casefold() for j in jobs],
        "job": lambda: [j.id for j in jobs],
        "user": lambda: [j.user for j in jobs],
        "account": lambda: [j.account for j in jobs],
        "node": lambda: [",".join(j.nodes) for j in jobs],
        "scheduler": lambda: [j.scheduler for j in jobs],
        "state": lambda: [j.phase.value for j in jobs],
        "gpus": numbers(lambda j: j.gpus),
        "use": numbers(lambda j: None if j.summary is None else j.summary.utilization_ratio),
        "power": numbers(lambda j: j.power_watts),
        "sev": numbers(lambda j: 0.0 if j.severity is None else of.get(j.severity, 0.0)),
    }


def alert_fields(incidents: Sequence[Incident], at: int) -> Fields:
    """Return the columns of incidents; age in seconds."""
    of = {"page": 3.0, "ticket": 2.0}
    return {
        "": lambda: [f"{i.title} {' '.join(i.group.values())}".casefold() for i in incidents],
        "sev": lambda: np.array([of.get(i.severity, 0.0) for i in incidents]),
        "rule": lambda: [",".join({a.rule for a in i.alerts} | {i.group.get("rule", "")} - {""}) for i in incidents],
        "node": lambda: [i.group.get("node") or next((a.node for a in i.alerts), "") for i in incidents],
        "circuit": lambda: [i.group.get("circuit", "") for i in incidents],
        "gpu": lambda: [next((a.gpu or "" for a in i.alerts), "") for i in incidents],
        "title": lambda: [i.title for i in incidents],
        "age": lambda: np.array([(at - i.onset) / 1e9 for i in incidents]),
        "acked": lambda: ["yes" if i.acknowledged else "no" for i in incidents],
    }
