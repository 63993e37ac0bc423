"""What only shows over a day: memory errors that come again, and programs that fail alike."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

from alerts.diagnosis.burst import Burst
from alerts.diagnosis.cluster import Cluster

DAY = 86400.0
JOBS = 3
"""So many programs failing at one place are no longer the programs' fault."""


def separate_memory_errors(clusters: Iterable[Cluster]) -> int:
    """Count the uncorrectable errors of one GPU within a day of one another, or after a reset.

    Each cluster is one error. A contained error (94) counts only beside a sign of the memory
    itself: an XID 48, or a row that was marked or could not be replaced.
    """
    errors = [cluster for cluster in clusters if _is_memory_error(cluster)]
    most = 0
    for kind in {(error.head.first.file, error.head.first.axis) for error in errors}:
        alike = [e for e in errors if (e.head.first.file, e.head.first.axis) == kind]
        count = 1
        for before, after in pairwise(alike):
            since = before.head.first.before(after.head.first)
            again = since is None or since <= DAY  # None: the node was rebooted in between
            count = count + 1 if again else 1
            most = max(most, count)
        most = max(most, count)
    return most


def _is_memory_error(cluster: Cluster) -> bool:
    xids = cluster.xids
    return 48 in xids or (94 in xids and bool(xids & {63, 64, 171, 172}))


def program_repeats(clusters: Iterable[Cluster]) -> set[tuple[str | None, str | None]]:
    """Return the GPUs (node, address) on which XID 13 came at one unit, or 31 at all, from three
    programs within a day, and on no other GPU of the node likewise: that would be the program."""
    seen: dict[tuple[int, str | None], dict[str | None, bool]] = {}
    bursts: dict[tuple[int, str | None, str | None, str], list[Burst]] = {}
    for cluster in clusters:
        for burst in cluster.bursts:
            if burst.xid not in {13, 31} or cluster.faults != {"application"}:
                continue
            for site in burst.sites if burst.xid == 13 else ("",):
                if burst.xid == 31 or site:
                    bursts.setdefault((burst.xid, burst.node, burst.gpu, site), []).append(burst)
    for (xid, node, gpu, site), group in bursts.items():
        if _jobs_within_a_day(group, site if xid == 13 else None):
            seen.setdefault((xid, node), {})[gpu] = True
    return {(node, next(iter(gpus))) for (_, node), gpus in seen.items() if len(gpus) == 1}


def _jobs_within_a_day(bursts: list[Burst], site: str | None) -> bool:
    oldest = 0
    for newest, burst in enumerate(bursts):
        while True:
            since = bursts[oldest].first.before(burst.last)
            if oldest == newest or (since is not None and since <= DAY):
                break
            oldest += 1
        pids: set[int] = set()
        for one in bursts[oldest : newest + 1]:
            for place, programs in one.sites.items():
                if site is None or place == site:
                    pids |= programs
        if len(pids) >= JOBS:
            return True
    return False
