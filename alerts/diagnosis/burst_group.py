"""Groups of bursts with one cause: those of one GPU within a minute, and the consequences of a fault.

First each GPU by itself: errors within a minute are one group, with the errors of programs at that
time (XIDs 13, 31, 43, 45). Then across GPUs: the NVSwitch and NVLink errors that follow a lost GPU
join its group; GPUs that are lost within a minute are one group; NVLink errors of several GPUs within seconds are one group; so are refused NVLink
accesses (137, 94) on many GPUs in the same second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from alerts.diagnosis.burst import Burst
from alerts.diagnosis.log_time import LogTime
from alerts.xid.catalogue import XidSeverity

TOGETHER_SECONDS = 60.0
LOST_SECONDS = 600.0
"""Seconds for which a lost GPU, or one whose firmware died, goes on to cause errors of all kinds."""
TRAY_SECONDS = 5.0
"""Most seconds between NVLink errors of several GPUs that are one event of their fabric."""
SAME_SECOND = 2.0
MANY_GPUS = 3

_SWITCH = ("nvswitch_link", "nvswitch_fatal")
_FABRIC = frozenset({"nvlink_errors", "recovery_action", "recovery_action_p2p", "recovery_drain"})
_DEAD = frozenset({"gpu_lost", "gsp_dead"})
_MEMORY_PROOF = frozenset({48, 63, 64, 95, 140, 171, 172})
"""XIDs beside which a contained error (94) is a fault of the memory itself."""


class BurstGroup:
    """Bursts of one cause, with their faults, XIDs and GPUs, kept up to date as the group grows."""

    def __init__(self, first: Burst) -> None:
        self.bursts: list[Burst] = []
        self.faults: set[str] = set()
        self.xids: set[int] = set()
        self.gpus: set[str] = set()
        """PCI addresses of the GPUs, without those of NVSwitches."""
        self.end: LogTime = first.last
        self.add([first])

    @property
    def head(self) -> Burst:
        """The first burst: a cause, where there is one."""
        return self.bursts[0]

    def near(self, burst: Burst, seconds: float) -> bool:
        """Return whether a burst begins within `seconds` of this group, before or after it."""
        since, until = self.end.before(burst.first), burst.last.before(self.head.first)
        return since is not None and until is not None and max(since, until) <= seconds

    def add(self, bursts: Iterable[Burst]) -> None:
        """Add bursts."""
        for burst in bursts:
            self.bursts.append(burst)
            self.faults.add(burst.fault)
            if burst.xid is not None:
                self.xids.add(burst.xid)
            if burst.gpu is not None and burst.sxid is None:
                self.gpus.add(burst.gpu)
            later = self.end.before(burst.last)
            if later is not None and (later, burst.last.order) > (0.0, self.end.order):
                self.end = burst.last


def _is_cause(burst: Burst) -> bool:
    return burst.severity.rank <= XidSeverity.TICKET.rank or burst.xid == 154


def groups_of(bursts: Iterable[Burst]) -> list[BurstGroup]:
    """Return all groups, in the order of the log."""
    devices: dict[tuple[str | None, str | None], list[Burst]] = {}
    for burst in bursts:
        device = "switches" if burst.sxid is not None else burst.gpu
        devices.setdefault((burst.node, device), []).append(burst)
    found = [group for alike in devices.values() for group in _of_one_device(alike)]
    found.sort(key=lambda group: group.head.first.order)
    nodes: dict[str | None, list[BurstGroup]] = {}
    for group in found:
        nodes.setdefault(group.head.node, []).append(group)
    return [group for alike in nodes.values() for group in _across_gpus(alike)]


def _of_one_device(bursts: list[Burst]) -> Iterator[BurstGroup]:
    """Split the bursts of one device into groups; harmless ones are groups of their own."""
    group: BurstGroup | None = None
    waiting: list[Burst] = []
    for burst in bursts:
        if group is not None and group.near(burst, _reach(group)):
            group.add([burst])
        elif _is_cause(burst):
            if group is not None:
                yield group
            group = BurstGroup(burst)
            first = len(waiting)
            while first > 0 and group.near(waiting[first - 1], TOGETHER_SECONDS):
                first -= 1
            group.add(waiting[first:])
            del waiting[first:]
        else:
            waiting.append(burst)
    if group is not None:
        yield group
    for fault in dict.fromkeys(burst.fault for burst in waiting):
        alike = [burst for burst in waiting if burst.fault == fault]
        group = BurstGroup(alike[0])
        group.add(alike[1:])
        yield group


def _reach(group: BurstGroup) -> float:
    return LOST_SECONDS if not _DEAD.isdisjoint(group.faults) else TOGETHER_SECONDS


def _across_gpus(groups: list[BurstGroup]) -> list[BurstGroup]:
    """Merge the groups that are one event of a node; they are in the order of the log."""
    return _refused(_fabric(_lost(_stated(groups))))


def _stated(groups: list[BurstGroup]) -> list[BurstGroup]:
    """Give a group with a number the statements around it that name no GPU and are not worse: the driver
    prints several before and after an XID."""
    causes = [group for group in groups if _is_numbered(group)]
    kept: list[BurstGroup] = []
    for group in groups:
        cause = None
        if not group.gpus and all(burst.statement is not None for burst in group.bursts):
            near = (one for one in causes if one.near(group.head, TOGETHER_SECONDS))
            cause = next((one for one in near if _rank(one) <= _rank(group)), None)
        if cause is None or "driver_hung" in group.faults:
            kept.append(group)
        else:
            cause.add(group.bursts)
    return kept


def _is_numbered(group: BurstGroup) -> bool:
    return any(burst.statement is None and _is_cause(burst) for burst in group.bursts)


def _rank(group: BurstGroup) -> int:
    return min(burst.severity.rank for burst in group.bursts)


def _lost(groups: list[BurstGroup]) -> list[BurstGroup]:
    """Give a lost GPU the link errors of its neighbours, and the hung tasks that wait for it."""
    kept: list[BurstGroup] = []
    dead: BurstGroup | None = None
    for group in groups:
        if not _DEAD.isdisjoint(group.faults):
            if dead is not None and (
                (group.gpus <= dead.gpus and dead.near(group.head, LOST_SECONDS)) or _at_once(dead, group)
            ):
                dead.add(group.bursts)  # also: without its address, behind the line that has it
                continue
            dead = group
        elif dead is not None and _follows(dead, group):
            dead.add(group.bursts)
            continue
        kept.append(group)
    return kept


def _at_once(dead: BurstGroup, group: BurstGroup) -> bool:
    """Return whether several GPUs were lost together; without times nobody knows."""
    same = dead.faults & group.faults & _DEAD
    return bool(same) and group.head.first.axis != "" and dead.near(group.head, TOGETHER_SECONDS)


def _follows(dead: BurstGroup, group: BurstGroup) -> bool:
    faults = group.faults
    if "driver_hung" in faults or group.gpus & dead.gpus:
        return dead.near(group.head, LOST_SECONDS)
    linked = faults & {*_SWITCH, "nvswitch_noise", "nvlink_errors", "nvlink_noise"}
    return (
        linked == faults - {"application"}
        and bool(linked)
        and "gpu_lost" in dead.faults
        and (dead.near(group.head, TOGETHER_SECONDS))
    )


def _fabric(groups: list[BurstGroup]) -> list[BurstGroup]:
    """Merge NVLink errors and recovery actions of several GPUs within seconds."""
    kept: list[BurstGroup] = []
    open_one: BurstGroup | None = None
    for group in groups:
        faults = group.faults - {"application", "nvlink_noise"}
        if faults and faults <= _FABRIC:
            if open_one is not None and open_one.near(group.head, TRAY_SECONDS):
                open_one.add(group.bursts)
                continue
            open_one = group
        elif open_one is not None and not faults.isdisjoint(_SWITCH) and open_one.near(group.head, TOGETHER_SECONDS):
            open_one.add(group.bursts)
            continue
        kept.append(group)
    return kept


def _refused(groups: list[BurstGroup]) -> list[BurstGroup]:
    """Merge XIDs 137 and 94 of many GPUs in one second, without a memory error beside them."""
    runs: list[list[BurstGroup]] = []
    for group in groups:
        if group.xids & {94, 137} and not group.xids & _MEMORY_PROOF:
            if runs and runs[-1][-1].near(group.head, SAME_SECOND):
                runs[-1].append(group)
            else:
                runs.append([group])
    merged: set[int] = set()
    for run in runs:
        if len({gpu for group in run for gpu in group.gpus}) >= MANY_GPUS:
            for group in run[1:]:
                run[0].add(group.bursts)
                merged.add(id(group))
            for burst in run[0].bursts:
                if burst.xid in {94, 137}:
                    burst.fault, burst.severity = "nvlink_application", XidSeverity.TICKET
            run[0].faults = {burst.fault for burst in run[0].bursts}
    return [group for group in groups if id(group) not in merged]
