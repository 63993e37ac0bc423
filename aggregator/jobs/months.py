"""Use of a job in one month, from the sums at the edges of months. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aggregator.jobs.edges import grown, seconds_of, until
from aggregator.jobs.summary import summarize
from aggregator.jobs.usage import SUMS, GpuAccount
from api.jobs import EnergyFrom, JobSummary

COUNTED = ("joules", "wall", "cost")
"""Sums that follow from the counter of a GPU where it is known."""


def is_split(accounts: Iterable[GpuAccount]) -> bool:
    """Return whether the sums at the edges of months are known of accounts."""
    return all(each.first or not any(_totals(each).values()) for each in accounts)


def month_summary(
    accounts: Sequence[GpuAccount], held: Mapping[tuple[str, str], float], month: str, after: str, currency: str
) -> JobSummary:
    """Return the summary of a job in a month, without what is no sum. `held`: seconds in it by node and
    UUID; `after`: the name of the next month."""
    return summarize([month_account(each, month, after) for each in accounts], held, {}, currency)


def month_account(account: GpuAccount, month: str, after: str) -> GpuAccount:
    """Return what was counted of an account in a month. `after`: the name of the next month."""
    begin, end = _sums_at(account, month), _sums_at(account, after)
    counted = {name: max(0.0, end[name] - begin[name]) for name in SUMS}
    return msgspec.structs.replace(GpuAccount(node=account.node, gpu=account.gpu, shared=account.shared), **counted)


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
    reached, totals = 0.0, _totals(account)
    for name in sorted({*account.edges, *begins} - {first}):
        sums = _sums_at(account, name)
        its = until(spans, begins[name]) if name in begins else spans if name > last else ()
        before = grown(its, counters)
        if before is None:
            # Samples that began in a later month say nothing of that part.
            sampled = account.joules > 0 and account.first <= first
            share = sums["joules"] / account.joules if sampled else seconds_of(its) / seconds
            before = joules * share
        reached = min(max(reached, before), joules)
        edges[name] = sums | _of_counters(sums, reached, seconds_of(its), totals)
    return msgspec.structs.replace(
        account,
        **_of_counters(totals, joules, seconds, totals),
        first=first if is_split([account]) else "",
        month=max(account.month, last),
        edges=edges,
        counters=dict(counters),
        energy_from=EnergyFrom.COUNTERS,
    )


def _of_counters(
    sums: Mapping[str, float], joules: float, seconds: float, totals: Mapping[str, float]
) -> dict[str, float]:
    """Return the sums that follow from the energy of a GPU by its counter in some seconds. At the wall, what else its
    node drew is added, as in the time of which it is known: of these seconds, else of all; without such a time it stays what
    was sampled."""
    found = {"joules": round(joules, 3), "joule_seconds": seconds}
    its = next((its for its in (sums, totals) if its["beside_seconds"] > 0 and its["wall"] > 0), None)
    if its is None:
        return found
    wall = max(0.0, joules + its["beside"] / its["beside_seconds"] * seconds)
    return found | {"wall": round(wall, 3), "cost": round(its["cost"] * wall / its["wall"], 9)}


def counted_by_month(account: GpuAccount) -> dict[tuple[str, str], float]:
    """Return what was counted in each month of each sum that follows from the counter, by month and name."""
    found: defaultdict[tuple[str, str], float] = defaultdict(float)
    month, before = account.first, dict.fromkeys(COUNTED, 0.0)
    for after, sums in [(name, _sums_at(account, name)) for name in sorted(account.edges)] + [("", _totals(account))]:
        for name in COUNTED:
            found[month, name] += sums[name] - before[name]
        month, before = after, sums
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
    first = min((each.first for each in counted), default="") if split else ""
    # Whoever counted from a later month on has noted no edge at its begin, and neither has who counted until then.
    months = {month for each in accounts for month in each.edges} | {each.first for each in counted}
    peaks = [each.memory_peak for each in accounts if each.memory_peak is not None]
    return msgspec.structs.replace(
        newest,
        **{name: sum(getattr(each, name) for each in accounts) for name in SUMS},
        memory_peak=max(peaks, default=None),
        limits=dict(limits),
        use=dict(use),
        shared=any(each.shared for each in accounts),
        first=first,
        month=max(each.month for each in accounts),
        edges={
            month: {name: sum(its[name] for its in edge) for name in SUMS}
            for month in sorted(months - {first} if split else ())
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
