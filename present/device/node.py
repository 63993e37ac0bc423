"""A node in words: its state, its driver, its GPUs, its release, and what it does now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from api.device import WallAndGpus
from api.fleet import NodeReply, NodeStatus
from api.node_register import ReleaseDrift
from present.device.gpu import Read, short_model
from present.device.wall import contradiction
from present.row import FactRow, Tone
from present.units import gibibytes_of, number, percent, watts
from telemetry.text import ABSENT, counted, duration, short_duration
from telemetry.wire.inventory import NodeRole

_WITH_GPUS = {"", NodeRole.GPU}
"""Roles of nodes whose missing GPUs are missed; "" is not known."""
DRIVER_FAULTS = frozenset({"missing", "mismatched", "hung", "no_permission"})
"""States of a driver that a person must mend."""
DRIFTS = (ReleaseDrift.OLDER, ReleaseDrift.NEWER, ReleaseDrift.OTHER)


def state_row(node: NodeReply) -> FactRow:
    """Return the state of a node, and for how long it has not been online."""
    if node.state is NodeStatus.ONLINE:
        return FactRow("state", node.state)
    return FactRow("state", node.state, Tone.STALE, since=node.age_seconds)


def frame_row(age: float | None) -> FactRow:
    """Return the age of its newest frame."""
    if age is None:
        return FactRow("newest frame", ABSENT, short=f"data {ABSENT} old")
    return FactRow("newest frame", f"{duration(age)} ago", short=f"data {short_duration(age)} old")


def role_row(role: str) -> FactRow:
    """Return the role of a node."""
    return FactRow("role", role or ABSENT)


def gpus_row(gpus: int, there: int, role: str) -> FactRow:
    """Return how many of its GPUs are there, or report; `none` where its role has none."""
    if not gpus and role not in _WITH_GPUS:
        return FactRow("GPUs", "none", Tone.DIM)
    tone = Tone.PLAIN if there == gpus else Tone.STALE
    words = f"{gpus:,}" if there == gpus else f"{there:,} of {gpus:,}"
    return FactRow("GPUs", words, tone, short=f"{there}/{gpus}")


def driver_row(version: str | None, state: str = "", message: str = "", role: str = "") -> FactRow:
    """Return the version of the driver, and what is wrong with it; as short form the role of a node without GPUs."""
    its = version or ABSENT
    short = version or (f"{role} node" if role not in _WITH_GPUS else ABSENT)
    if state not in DRIVER_FAULTS:
        return FactRow("driver", its, short=short)
    fault = state.replace("_", " ")
    return FactRow("driver", f"{version} {fault}" if version else fault, Tone.WARN, note=message, short=short)


def release_row(its: str, drift: ReleaseDrift = ReleaseDrift.UNKNOWN) -> FactRow:
    """Return its release of kilowatch; as note how it differs from the aggregator's."""
    if drift in DRIFTS:
        return FactRow("release", its, Tone.WARN, note=str(drift))
    return FactRow("release", its or ABSENT)


def about_row(node: NodeReply, product: str, models: Iterable[str]) -> FactRow:
    """Return what a node is: its product, its GPUs by model, and its rack."""
    found = Counter(short_model(name) for name in models)
    gpus = (f"{count:,} x {model}" for model, count in found.items())
    rack = f"rack {node.rack}" if node.rack else ""
    return FactRow("about", ", ".join(filter(None, (product, *gpus, rack))))


def now_rows(read: Read, power: WallAndGpus | None = None) -> Iterator[FactRow]:
    """Yield what its page says of the machine now, beside single readings. `power`: at the wall beside its GPUs'."""
    total, free = read("node_memory_total_bytes"), read("node_memory_available_bytes")
    up = read("node_uptime_seconds")
    against = "" if power is None else contradiction(power)
    wall = watts(read("node_wall_power_watts"))
    yield FactRow("wall", wall, Tone.WARN if against else Tone.PLAIN, note=against)
    yield FactRow("CPU", percent(read("node_cpu_utilization_ratio")))
    yield FactRow("RAM", ABSENT if total is None or free is None else gibibytes_of(total - free, total))
    yield FactRow("load", number(read("node_load_1m"), 1))
    yield FactRow("up", ABSENT if up is None else duration(up), short=short_duration(up))


def firing(pages: int, tickets: int) -> Iterator[tuple[str, str]]:
    """Yield severity and number of the alerts that fire: `3 pages`."""
    for count, severity in ((pages, "page"), (tickets, "ticket")):
        if count:
            yield severity, counted(count, severity)
