"""A port of a network adapter: its state and speed in words, and its line in lists."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from api.device import PortReply
from api.ports import SPEED, STATE, UP, USUAL, PortLine, faults
from present.units import value_text
from telemetry.devices import Gpu
from telemetry.text import ABSENT


def state_text(readings: Mapping[str, float], gaps: Mapping[str, str], *, present: bool) -> str:
    """Return the state of a port in a word, or why it is not known."""
    if not present:
        return "gone"
    if STATE in readings:
        from telemetry.catalogue import BY_NAME  # noqa: PLC0415 - the dashboard starts without it

        return value_text(BY_NAME[STATE].unit, BY_NAME[STATE].states, readings[STATE])
    return gaps.get(STATE, "").replace("_", " ") or ABSENT


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
