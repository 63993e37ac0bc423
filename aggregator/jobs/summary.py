"""A summary of a job from its allocations and the accounts of its GPUs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from aggregator.jobs.usage import BINS, GpuAccount
from api.jobs import PARTIAL_BELOW, AllocationRow, EnergyFrom, GpuUse, JobSummary

IDLE_BELOW = 0.01
"""Mean utilisation below which a GPU counts as idle."""


def held_seconds(rows: Iterable[AllocationRow], until: int) -> float:
    """Return for how long a job had a GPU, in any of its allocations, up to a time, ns since 1970."""
    total, reached = 0, 0
    for begin, end in sorted((row.begin, until if row.end is None else row.end) for row in rows):
        first = max(begin, reached)
        if end > first:
            total += end - first
            reached = end
    return total / 1e9


def summarize(
    accounts: Sequence[GpuAccount], held: Mapping[tuple[str, str], float], faults: Mapping[str, int], currency: str
) -> JobSummary:
    """Return the summary of a job. `held`: seconds by node and UUID. Jobs that share a GPU share its hours as its energy."""
    seconds = sum(held.values())
    parts = {(each.node, each.gpu): each.its_part / each.held for each in accounts if each.held > 0}
    idle = [each.idle_seconds * parts.get((each.node, each.gpu), 1.0) for each in accounts]
    use: Counter[int] = Counter()
    limits: Counter[str] = Counter()
    for account in accounts:
        use.update(account.use)
        limits.update(account.limits)
    known = sum(account.known for account in accounts)
    coverage = _share(known, seconds)
    energy_coverage = _share(sum(each.joule_seconds for each in accounts), seconds)
    wall_coverage = _share(sum(each.wall_seconds for each in accounts), seconds)
    peaks = [each.memory_peak for each in accounts if each.memory_peak is not None]
    counted = [each for each in accounts if each.known > 0]
    idle_known = sum(each.idle_known for each in accounts)
    shares = [coverage, energy_coverage]
    return JobSummary(
        gpu_hours=sum(its * parts.get(place, 1.0) for place, its in held.items()) / 3600,
        coverage=coverage,
        partial=any(share is None or share < PARTIAL_BELOW for share in shares),
        utilization_ratio=sum(each.busy for each in accounts) / known if known else None,
        utilization_p10_ratio=quantile(use, 0.1),
        utilization_p90_ratio=quantile(use, 0.9),
        energy_joules=_sum(accounts, "joules", "joule_seconds"),
        energy_coverage=energy_coverage,
        energy_from=_worst(each.energy_from for each in accounts),
        wall_joules=_sum(accounts, "wall", "wall_seconds"),
        wall_coverage=wall_coverage,
        cost=_sum(accounts, "cost", "cost_seconds"),
        currency=currency,
        memory_peak_bytes=max(peaks, default=None),
        sm_active_ratio=_mean(accounts, "sm_active", "activity_seconds"),
        sm_occupancy_ratio=_mean(accounts, "sm_occupancy", "occupancy_seconds"),
        tensor_active_ratio=_mean(accounts, "tensor_active", "activity_seconds"),
        dram_active_ratio=_mean(accounts, "dram_active", "activity_seconds"),
        activity_coverage=_share(sum(each.activity_seconds for each in accounts), seconds),
        pcie_bytes_per_second=_mean(accounts, "pcie_bytes", "pcie_seconds"),
        nvlink_bytes_per_second=_mean(accounts, "nvlink_bytes", "nvlink_seconds"),
        pcie_coverage=_share(sum(each.pcie_seconds for each in accounts), seconds),
        nvlink_coverage=_share(sum(each.nvlink_seconds for each in accounts), seconds),
        idle_gpu_hours=sum(idle) / 3600 if idle_known else None,
        idle_coverage=_share(idle_known, seconds),
        idle_cost=_sum(accounts, "idle_cost", "cost_seconds") if idle_known else None,
        clock_limit_seconds=dict(limits),
        faults=dict(faults),
        gpus_idle=sum(each.busy / each.known < IDLE_BELOW for each in counted) if counted else None,
        gpus=[_of_gpu(each, held.get((each.node, each.gpu), 0.0)) for each in accounts],
    )


def _worst(found: Iterable[EnergyFrom]) -> EnergyFrom:
    """Return the basis of the energy of all GPUs together: the least of those of each."""
    kinds = set(found)
    order = (EnergyFrom.PROVISIONAL, EnergyFrom.SAMPLES, EnergyFrom.COUNTERS)
    return next((kind for kind in order if kind in kinds), EnergyFrom.SAMPLES)


def quantile(seconds: Mapping[int, float], share: float) -> float | None:
    """Return a quantile of utilisation from seconds by bin, interpolated within the bin; None without
    any."""
    total = sum(seconds.values())
    if total <= 0:
        return None
    left = share * total
    for number in sorted(seconds):
        if left <= seconds[number]:
            return (number + left / seconds[number]) / BINS
        left -= seconds[number]
    return 1.0


def _of_gpu(account: GpuAccount, held: float) -> GpuUse:
    return GpuUse(
        node=account.node,
        gpu=account.gpu,
        held_seconds=held,
        known_seconds=account.known,
        utilization_ratio=account.busy / account.known if account.known else None,
        energy_joules=account.joules if account.joule_seconds else None,
        memory_peak_bytes=account.memory_peak,
        shared=account.shared,
    )


def _sum(accounts: Sequence[GpuAccount], name: str, seconds: str) -> float | None:
    """Return a sum over the accounts; None where it is known for none."""
    if not any(getattr(each, seconds) for each in accounts):
        return None
    return float(sum(getattr(each, name) for each in accounts))


def _mean(accounts: Sequence[GpuAccount], name: str, seconds: str) -> float | None:
    """Return the mean of a sum over the time in which it was read; None without any."""
    known = sum(getattr(each, seconds) for each in accounts)
    return float(sum(getattr(each, name) for each in accounts) / known) if known else None


def _share(part: float, whole: float) -> float | None:
    return min(1.0, part / whole) if whole > 0 else None
