"""Use of a job in one month, from the sums at the edges of months. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aggregator.jobs.edges import grown, seconds_of, until
from aggregator.jobs.summary import summarize
from aggregator.jobs.usage import SUMS, GpuAccount
from api.jobs import EnergyFrom, JobSummary


def is_split(accounts: Iterable[GpuAccount]) -> bool:
    """Return whether the sums at the edges of months are known of accounts."""
    return all(each.first or not any(_totals(each).values()) for each in accounts)


def month_summary(
    accounts: Sequence[GpuAccount],
    held: Mapping[tuple[str, str], float],
    month: str,
    after: str,
    currency: str,
) -> JobSummary:
    """Return the summary of a job in a month, without what is no sum. `held`: seconds in it by node and
    UUID; `after`: the name of the next month."""
    return summarize([month_account(each, month, after) for each in accounts], held, {}, currency)


def month_account(account: GpuAccount, month: str, after: str) -> GpuAccount:
    """Return what was counted of an account in a month. `after`: the name of the next month."""
    begin, end = _sums_at(account, month), _sums_at(account, after)
    counted = {name: max(0.0, end[name] - begin[name]) for name in SUMS}
    return msgspec.structs.replace(
        GpuAccount(node=account.node, gpu=account.gpu, shared=account.shared), **counted
    )


def counted_account(
    account: GpuAccount,
    joules: float,
    spans: Sequence[tuple[int, int]],
    counters: Mapping[int, float],
    begins: Mapping[str, int],
) -> GpuAccount:
    """Return an account of a job that has ended with its energy by counters, as a whole and at the begin of each month.
    `spans`: when it had the GPU, and `begins`: of the months in which it did, by name, with that of its begin; ns since
    1970. Where the counter at the begin of a month is not known, the samples say which share was before it, else the time.
    """
    seconds, first, last = seconds_of(spans), min(begins), max(begins)
    edges: dict[str, dict[str, float]] = {}
    reached = 0.0
    for name in sorted({*account.edges, *begins} - {first}):
        sums = _sums_at(account, name)
        its = until(spans, begins[name]) if name in begins else spans if name > last else ()
        before = grown(its, counters)
        if before is None:
            share = (
                sums["joules"] / account.joules if account.joules > 0 else seconds_of(its) / seconds
            )
            before = joules * share
        reached = min(max(reached, before), joules)
        edges[name] = sums | {"joules": round(reached, 3), "joule_seconds": seconds_of(its)}
    return msgspec.structs.replace(
        account,
        joules=round(joules, 3),
        joule_seconds=seconds,
        first=first if is_split([account]) else "",
        month=max(account.month, last),
        edges=edges,
        counters=dict(counters),
        energy_from=EnergyFrom.COUNTERS,
    )


def joules_by_month(account: GpuAccount) -> dict[str, float]:
    """Return the energy that was counted in each month, J."""
    found: defaultdict[str, float] = defaultdict(float)
    name, before = account.first, 0.0
    for month in sorted(account.edges):
        joules = _sums_at(account, month)["joules"]
        found[name] += joules - before
        name, before = month, joules
    found[name] += account.joules - before
    return found


def joined_account(accounts: Sequence[GpuAccount]) -> GpuAccount:
    """Return the accounts of one GPU and job that several aggregators counted, one after the other, as one."""
    newest = max(accounts, key=lambda each: each.at)
    counted = [each for each in accounts if any(_totals(each).values())]
    split = is_split(counted)
    limits: Counter[str] = Counter()
    use: Counter[int] = Counter()
    for each in accounts:
        limits.update(each.limits)
        use.update(each.use)
    months = sorted({month for each in accounts for month in each.edges}) if split else ()
    peaks = [each.memory_peak for each in accounts if each.memory_peak is not None]
    return msgspec.structs.replace(
        newest,
        **{name: sum(getattr(each, name) for each in accounts) for name in SUMS},
        memory_peak=max(peaks, default=None),
        limits=dict(limits),
        use=dict(use),
        shared=any(each.shared for each in accounts),
        first=min((each.first for each in counted), default="") if split else "",
        month=max(each.month for each in accounts),
        edges={
            month: {name: sum(its[name] for its in edge) for name in SUMS}
            for month in months
            if (edge := [_sums_at(each, month) for each in accounts])
        },
    )


def _sums_at(account: GpuAccount, month: str) -> dict[str, float]:
    """Return the sums at the begin of a month. A month that was not seen to begin has those of the next
    one that was."""
    if month not in account.edges and month <= account.first:
        return dict.fromkeys(SUMS, 0.0)
    name = min((name for name in account.edges if name >= month), default=None)
    # An older release may have stored fewer sums.
    return _totals(account) if name is None else dict.fromkeys(SUMS, 0.0) | account.edges[name]


def _totals(account: GpuAccount) -> dict[str, float]:
    return {name: getattr(account, name) for name in SUMS}
