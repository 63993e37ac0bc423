"""What a simulated node has to tell: the edges of its faults, in order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from collector.simulated.cluster import SimulatedNode
from collector.simulated.course import WARM_UP
from collector.simulated.faults import SILENT, Fault, FaultKind
from collector.simulated.inventory import pci_of, uuid_of
from collector.source import Happening

_XID = {
    FaultKind.XID79: (79, "GPU has fallen off the bus."),
    FaultKind.REMAP_PENDING: (
        63,
        "Row Remapper: New row marked for remapping, reset gpu to activate.",
    ),
}

_Edge = tuple[int, str, str, dict[str, object]]
"""Second, kind, message, data."""


def _edges(fault: Fault) -> Iterator[_Edge]:
    """Yield what one fault makes known, as the driver and the kernel would say it."""
    start, end = fault.start, fault.end
    yield start, "fault", f"simulated: {fault}", {"fault": fault.kind.value}
    if fault.kind in _XID:
        number, text = _XID[fault.kind]
        yield start, "xid", text, {"xid": number}
    match fault.kind:
        case FaultKind.XID79:
            yield start, "gpu_lost", "the GPU has left the bus", {}
            yield end, "gpu_back", "the GPU answers again", {}
        case FaultKind.HUNG:
            yield start, "gpu_hung", "the driver doesn't answer for this GPU", {}
            yield end, "gpu_answers", "the driver answers again", {}
        case FaultKind.THERMAL if end > start + WARM_UP:
            reason: dict[str, object] = {"reason": "hw_thermal_slowdown"}
            yield start + WARM_UP, "clocks_down", "hardware holds the clocks down: heat", reason
            yield end, "clocks_free", "the clocks are free", reason
        case FaultKind.POWER_BRAKE:
            brake: dict[str, object] = {"reason": "hw_power_brake_slowdown"}
            yield start, "clocks_down", "hardware holds the clocks down: power brake", brake
            yield end, "clocks_free", "the clocks are free", brake
        case _:
            pass


def happenings(node: SimulatedNode, after: int, until: int) -> list[Happening]:
    """Return what happened after second `after` and up to second `until`, oldest first.

    A node that is silent can't tell; of what it missed it tells what still holds when it is back
    only as readings, as a machine that has booted does.
    """
    out: list[tuple[int, Happening]] = []
    for fault in node.faults:
        for second, kind, message, data in _edges(fault):
            if not after < second <= until:
                continue
            if node.silent(second) and fault.kind not in SILENT:
                continue
            out += [
                (second, _happening(node, index, second, kind, message, data))
                for index in _about(node, fault, kind)
            ]
    return [happening for _, happening in sorted(out, key=lambda entry: entry[0])]


def _about(node: SimulatedNode, fault: Fault, kind: str) -> Sequence[int | None]:
    """Return the GPUs that an edge is about; (None,) when it is about the node."""
    if fault.kind is FaultKind.POWER_BRAKE and kind != "fault":
        return range(len(node.gpus))
    return (fault.gpu,)


def _happening(
    node: SimulatedNode,
    index: int | None,
    second: int,
    kind: str,
    message: str,
    data: dict[str, object],
) -> Happening:
    scenario = node.scenario
    return Happening(
        kind=kind,
        at=scenario.at_ns(second),
        gpu=None if index is None else uuid_of(scenario.seed, node.name, index),
        pci=None if index is None else pci_of(scenario.name, index),
        message=message,
        data=dict(data),
    )
