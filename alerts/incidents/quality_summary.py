"""Alert quality by rule over a time: counts, times to acknowledge, precision."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from alerts.incidents.quality_ledger import QualityLedger, self_resolved
from alerts.incidents.quality_record import QualityRecord
from api.alerts import Severity
from api.quality import QualityReply, RuleQuality


def quality(ledger: QualityLedger, rules: Iterable[str], since: int, at: int) -> QualityReply:
    """Return the quality of the rules from `since` to `at` (ns since 1970). `rules`: all that are in
    force; those that sent and silenced nothing are named in `quiet`."""
    sent = [one for one in ledger.sent(since) if one.at <= at]
    silenced = ledger.silenced(since)
    by_rule: dict[str, list[QualityRecord]] = {rule: [] for rule in silenced}
    for record in sent:
        by_rule.setdefault(record.rule, []).append(record)
    found = [_rule(rule, records, silenced[rule]) for rule, records in by_rule.items()]
    found.sort(key=lambda one: (-one.pages, -one.tickets, one.rule))
    return QualityReply(
        at=at, since=since, recorded_since=ledger.began, rules=found, quiet=sorted(set(rules) - by_rule.keys())
    )


def overall(ledger: QualityLedger, since: int, at: int) -> RuleQuality:
    """Return the quality of all rules together, under the name `all`."""
    sent = [one for one in ledger.sent(since) if one.at <= at]
    return _rule("all", sent, ledger.silenced(since).total())


def _rule(rule: str, records: Sequence[QualityRecord], silenced: int) -> RuleQuality:
    waits = sorted((one.acknowledged - one.at) / 1e9 for one in records if one.acknowledged is not None)
    false = sum(one.false is not None for one in records)
    true = sum(one.false is None and one.acknowledged is not None for one in records)
    return RuleQuality(
        rule=rule,
        pages=sum(one.severity is Severity.PAGE for one in records),
        tickets=sum(one.severity is Severity.TICKET for one in records),
        acknowledged=len(waits),
        acknowledged_median_seconds=_quantile(waits, 0.5),
        acknowledged_p90_seconds=_quantile(waits, 0.9),
        self_resolved=sum(map(self_resolved, records)),
        silenced=silenced,
        flapping=sum(one.flapping for one in records),
        marked_false=false,
        reviewed=true + false,
        precision=true / (true + false) if false else None,
    )


def _quantile(values: Sequence[float], share: float) -> float | None:
    """Return the smallest value that at least `share` of all do not exceed; None of no value."""
    if not values:
        return None
    return values[max(0, -int(-share * len(values) // 1) - 1)]
