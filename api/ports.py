"""Ports of the fleet's network adapters: `/api/v1/ports`, and the figures of one."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from api.alerts import Alert, AlertState, Severity, Subject
from api.device import PortReply
from telemetry.devices import Gpu
from telemetry.metric import Table
from telemetry.text import ABSENT
from telemetry.value_text import value_text

STATE, SPEED, USUAL = "port_state", "port_speed_bytes_per_second", "port_speed_usual_bytes_per_second"  # fmt: skip
UP = 4.0
"""`port_state` of a port that carries data."""


@functools.cache
def faults() -> tuple[str, ...]:
    """Return the counters that lists add up as errors of a port."""
    from telemetry.catalogue import CATALOGUE  # noqa: PLC0415 - the dashboard starts without it

    return tuple(
        metric.name for metric in CATALOGUE if metric.table is Table.PORT and metric.is_fault
    )


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


def state_text(readings: Mapping[str, float], gaps: Mapping[str, str], *, present: bool) -> str:
    """Return the state of a port in a word, or why it is not known."""
    if not present:
        return "gone"
    if STATE in readings:
        from telemetry.catalogue import BY_NAME  # noqa: PLC0415 - the dashboard starts without it

        return value_text(BY_NAME[STATE].unit, BY_NAME[STATE].states, readings[STATE])
    return gaps.get(STATE, "").replace("_", " ") or ABSENT


def speed_text(speed: float | None) -> str:
    """Return bytes a second as people name the speed of a port: `400 Gb/s`."""
    return ABSENT if speed is None else f"{speed * 8e-9:.4g} Gb/s"


def is_slow(readings: Mapping[str, float]) -> bool:
    """Return whether a port is slower than most of its kind on its node."""
    return SPEED in readings and USUAL in readings and readings[SPEED] < 0.95 * readings[USUAL]


def fault_count(readings: Mapping[str, float]) -> float | None:
    """Return the sum of the counters of faults; None where none is known."""
    known = [readings[name] for name in faults() if name in readings]
    return sum(known) if known else None


def line_of(each: PortReply, gpus: Sequence[Gpu], pages: int = 0, tickets: int = 0) -> PortLine:
    """Return the line of a port of a node's page. `gpus`: those of its node; `pages` and `tickets`: alerts that fire."""
    port, readings = each.port, each.readings
    indexes = {gpu.uuid: gpu.index for gpu in gpus}
    return PortLine(
        id=port.id,
        node="",
        name=port.name,
        role=port.role,
        rail=port.rail,
        gpu=indexes.get(port.gpu or ""),
        switch=port.switch or "",
        switch_port=port.switch_port or "",
        state=state_text(readings, each.gaps, present=port.present),
        up=readings[STATE] == UP if STATE in readings else None,
        speed=readings.get(SPEED),
        slow=is_slow(readings),
        errors=fault_count(readings),
        pages=pages,
        tickets=tickets,
    )


def port_of(alert: Alert) -> str:
    """Return the identity of the port that an alert is about; "" where it is about none."""
    parts = alert.key.split("/", 2)
    return parts[2] if alert.subject is Subject.PORT and len(parts) == 3 else ""


def firing_by_port(alerts: Iterable[Alert]) -> Counter[tuple[str, Severity]]:
    """Return how many alerts fire about each port, by severity."""
    return Counter(
        (port_of(alert), alert.severity) for alert in alerts if alert.state is AlertState.FIRING
    )
