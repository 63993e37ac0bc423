"""Ports of the fleet's network adapters: `/api/v1/ports`, and the figures of one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable

import msgspec

from api.alerts import Alert, AlertState, Severity, Subject
from telemetry.metric import Table

STATE, SPEED, USUAL = "port_state", "port_speed_bytes_per_second", "port_speed_usual_bytes_per_second"
UP = 4.0
"""`port_state` of a port that carries data."""


@functools.cache
def faults() -> tuple[str, ...]:
    """Return the counters that lists add up as errors of a port."""
    from telemetry.catalogue import CATALOGUE  # noqa: PLC0415 - the dashboard starts without it

    return tuple(metric.name for metric in CATALOGUE if metric.table is Table.PORT and metric.is_fault)


class PortLine(msgspec.Struct, frozen=True, kw_only=True):
    """A port."""

    id: str
    node: str
    name: str
    """Adapter and number: `mlx5_0/1`."""
    role: str = ""
    rail: int | None = None
    gpu: int | None = None
    """Index of the nearest GPU."""
    switch: str = ""
    switch_port: str = ""
    state: str = ""
    """Word of `port_state`, else why it is not known; `gone` for a port that was there."""
    up: bool | None = None
    """null where its state is not known."""
    speed: float | None = None
    """Bytes a second; null while it is down."""
    slow: bool = False
    """Slower than most ports of its kind on its node."""
    errors: float | None = None
    """Sum of the counters of faults; null where none is known."""
    pages: int = 0
    """Firing alerts about it of the severity `page`."""
    tickets: int = 0


class PortGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Ports that meet in one place: a switch, or a rail."""

    kind: str
    """`switch` or `rail`."""
    name: str
    ports: int = 0
    up: int = 0
    down: int = 0
    unknown: int = 0
    slow: int = 0
    firing: int = 0
    """Ports about which an alert fires."""
    nodes: int = 0


class PortsReply(msgspec.Struct, frozen=True, kw_only=True):
    """Ports of the fleet by switch and rail, and each of them, worst first."""

    at: int
    """ns since 1970."""
    ports: int
    groups: list[PortGroup] = []
    """Switches first; of these and of rails those with firing alerts first."""
    lines: list[PortLine] = []
    """Worst first; as many as were asked for."""


def port_of(alert: Alert) -> str:
    """Return the identity of the port that an alert is about; "" where it is about none."""
    parts = alert.key.split("/", 2)
    return parts[2] if alert.subject is Subject.PORT and len(parts) == 3 else ""


def firing_by_port(alerts: Iterable[Alert]) -> Counter[tuple[str, Severity]]:
    """Return how many alerts fire about each port, by severity."""
    return Counter((port_of(alert), alert.severity) for alert in alerts if alert.state is AlertState.FIRING)
