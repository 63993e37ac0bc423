"""Bursts that belong together: those of one GPU within a minute, and what a fault drags along.

First each GPU by itself: errors within a minute are one cluster, and what programs suffered at that
time (XIDs 13, 31, 43, 45) goes with it. Then across GPUs: a lost GPU takes the NVSwitch and NVLink
errors with it that follow; NVLink errors of several GPUs within seconds are one; so are refused
NVLink accesses (137, 94) on many GPUs in the same second.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from alerts.diagnosis.burst import Burst
from alerts.diagnosis.log_time import LogTime
from alerts.xid.catalogue import XidSeverity

TOGETHER_SECONDS = 60.0
LOST_SECONDS = 600.0
"""So long does a lost GPU, or one whose firmware died, go on to leave errors of all kinds."""
TRAY_SECONDS = 5.0
"""NVLink errors of several GPUs this close are one event of their fabric."""
SAME_SECOND = 2.0
MANY_GPUS = 3

_SWITCH = ("nvswitch_link", "nvswitch_fatal")
_FABRIC = frozenset({
    "nvlink_errors", "recovery_action", "recovery_action_p2p", "recovery_drain",
})  # fmt: skip
_DEAD = frozenset({"gpu_lost", "gsp_dead"})
_MEMORY_PROOF = frozenset({48, 63, 64, 95, 140, 171, 172})
"""XIDs beside which a contained error (94) is the memory's own."""


class BurstGroup:
    """Bursts of one cause. What they tell together is kept up to date, for clusters grow large."""

    def __init__(self, first: Burst) -> None:
        self.bursts: list[Burst] = []
        self.faults: set[str] = set()
        self.xids: set[int] = set()
        self.gpus: set[str] = set()
        """Not the addresses of NVSwitches."""
        self.end: LogTime = first.last
        self.take([first])

    @property
    def head(self) -> Burst:
        """The burst that the cluster began with: a cause, where there is one."""
        return self.bursts[0]

    def near(self, burst: Burst, seconds: float) -> bool:
        """Whether a burst begins within `seconds` of this cluster, before it or behind."""
        since, until = self.end.before(burst.first), burst.last.before(self.head.first)
        return since is not None and until is not None and max(since, until) <= seconds

    def take(self, bursts: Iterable[Burst]) -> None:
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


def clusters_of(bursts: Iterable[Burst]) -> list[BurstGroup]:
    """Return all clusters, in the order of the log."""
    devices: dict[tuple[str | None, str | None], list[Burst]] = {}
    for burst in bursts:
        device = "switches" if burst.sxid is not None else burst.gpu
        devices.setdefault((burst.node, device), []).append(burst)
    found = [cluster for group in devices.values() for cluster in _of_one_device(group)]
    found.sort(key=lambda cluster: cluster.head.first.order)
    nodes: dict[str | None, list[BurstGroup]] = {}
    for cluster in found:
        nodes.setdefault(cluster.head.node, []).append(cluster)
    return [cluster for group in nodes.values() for cluster in _across_gpus(group)]


def _of_one_device(bursts: list[Burst]) -> Iterator[BurstGroup]:
    """Split the bursts of one device into clusters; what hurt nobody's health comes apart."""
    cluster: BurstGroup | None = None
    waiting: list[Burst] = []
    for burst in bursts:
        if cluster is not None and cluster.near(burst, _reach(cluster)):
            cluster.take([burst])
        elif _is_cause(burst):
            if cluster is not None:
                yield cluster
            cluster = BurstGroup(burst)
            first = len(waiting)
            while first > 0 and cluster.near(waiting[first - 1], TOGETHER_SECONDS):
                first -= 1
            cluster.take(waiting[first:])
            del waiting[first:]
        else:
            waiting.append(burst)
    if cluster is not None:
        yield cluster
    for fault in dict.fromkeys(burst.fault for burst in waiting):
        alike = [burst for burst in waiting if burst.fault == fault]
        cluster = BurstGroup(alike[0])
        cluster.take(alike[1:])
        yield cluster


def _reach(cluster: BurstGroup) -> float:
    return LOST_SECONDS if not _DEAD.isdisjoint(cluster.faults) else TOGETHER_SECONDS


def _across_gpus(clusters: list[BurstGroup]) -> list[BurstGroup]:
    """Merge what is one event of a node; `clusters` are in the order of the log."""
    return _refused(_fabric(_lost(clusters)))


def _lost(clusters: list[BurstGroup]) -> list[BurstGroup]:
    """Give a lost GPU the link errors of its neighbours, and the hung tasks that wait for it."""
    kept: list[BurstGroup] = []
    dead: BurstGroup | None = None
    for cluster in clusters:
        if not _DEAD.isdisjoint(cluster.faults):
            if (
                dead is not None
                and cluster.gpus <= dead.gpus
                and dead.near(cluster.head, LOST_SECONDS)
            ):
                dead.take(cluster.bursts)  # lost without its address, behind the line that has it
                continue
            dead = cluster
        elif dead is not None and _follows(dead, cluster):
            dead.take(cluster.bursts)
            continue
        kept.append(cluster)
    return kept


def _follows(dead: BurstGroup, cluster: BurstGroup) -> bool:
    faults = cluster.faults
    if "driver_hung" in faults or cluster.gpus & dead.gpus:
        return dead.near(cluster.head, LOST_SECONDS)
    linked = faults & {*_SWITCH, "nvswitch_noise", "nvlink_errors", "nvlink_noise"}
    return (
        linked == faults - {"application"}
        and bool(linked)
        and "gpu_lost" in dead.faults
        and (dead.near(cluster.head, TOGETHER_SECONDS))
    )


def _fabric(clusters: list[BurstGroup]) -> list[BurstGroup]:
    """Merge NVLink errors and recovery actions of several GPUs within seconds."""
    kept: list[BurstGroup] = []
    open_one: BurstGroup | None = None
    for cluster in clusters:
        faults = cluster.faults - {"application", "nvlink_noise"}
        if faults and faults <= _FABRIC:
            if open_one is not None and open_one.near(cluster.head, TRAY_SECONDS):
                open_one.take(cluster.bursts)
                continue
            open_one = cluster
        elif (
            open_one is not None
            and not faults.isdisjoint(_SWITCH)
            and open_one.near(cluster.head, TOGETHER_SECONDS)
        ):
            open_one.take(cluster.bursts)
            continue
        kept.append(cluster)
    return kept


def _refused(clusters: list[BurstGroup]) -> list[BurstGroup]:
    """Merge XIDs 137 and 94 of many GPUs in one second, when no memory error stands beside them."""
    runs: list[list[BurstGroup]] = []
    for cluster in clusters:
        if cluster.xids & {94, 137} and not cluster.xids & _MEMORY_PROOF:
            if runs and runs[-1][-1].near(cluster.head, SAME_SECOND):
                runs[-1].append(cluster)
            else:
                runs.append([cluster])
    merged: set[int] = set()
    for run in runs:
        if len({gpu for cluster in run for gpu in cluster.gpus}) >= MANY_GPUS:
            for cluster in run[1:]:
                run[0].take(cluster.bursts)
                merged.add(id(cluster))
            for burst in run[0].bursts:
                if burst.xid in {94, 137}:
                    burst.fault, burst.severity = "nvlink_application", XidSeverity.TICKET
            run[0].faults = {burst.fault for burst in run[0].bursts}
    return [cluster for cluster in clusters if id(cluster) not in merged]
