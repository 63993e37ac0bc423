"""Use of a job in one month, from the sums at the edges of months. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from aggregator.jobs.summary import summarize
from aggregator.jobs.usage import SUMS, GpuAccount
from api.jobs import JobSummary


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


def _sums_at(account: GpuAccount, month: str) -> dict[str, float]:
    """Return the sums at the begin of a month. A month that was not seen to begin has those of the next
    one that was."""
    if month not in account.edges and month <= account.first:
        return dict.fromkeys(SUMS, 0.0)
    name = min((name for name in account.edges if name >= month), default=None)
    return _totals(account) if name is None else account.edges[name]


def _totals(account: GpuAccount) -> dict[str, float]:
    return {name: getattr(account, name) for name in SUMS}
