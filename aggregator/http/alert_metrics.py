"""Alerts, incidents, deliveries and the journal on `/metrics`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from aggregator.alerting.delivery_view import AlertStats
from aggregator.alerting.pipeline import AlertPipeline
from aggregator.impairments import MOST_PARTS, Impairments
from aggregator.view import AggregatorView
from alerts.incidents.manager import IncidentManager
from alerts.incidents.quality_ledger import OUTCOMES
from api.alerts import Alert, AlertState, ChannelRow, NotificationState, Severity
from telemetry.runtime.isolation import Isolation
from telemetry.wire.exposition import COUNTER, GAUGE, PREFIX, SUMMARY, Family, Sample, labels

_SHOWN = (AlertState.PENDING, AlertState.FIRING)
_OUTCOMES = ("delivered", "failed", "refused", "expired", "superseded")


def _family(name: str, text: str, kind: str, samples: Iterable[Sample]) -> Family:
    return Family(PREFIX + name, text, kind, list(samples))


def alert_families(view: AggregatorView) -> list[Family]:
    """Return the metrics of alerts, incidents, channels and the journal."""
    its, pipeline, now = {"cluster": view.cluster}, view.pipeline, view.wall()
    return [
        *_alerts(view.alerts(), pipeline.manager, its),
        *_impairments(view.impairments, view.pages_aside, its),
        *_incidents(pipeline.manager, its, now),
        *_quality(pipeline, its),
        *_channels(view.delivery.channels(), now),
        *_machinery(view.delivery.alert_stats(), pipeline),
    ]


def _alerts(alerts: Sequence[Alert], manager: IncidentManager, its: Mapping[str, str]) -> list[Family]:
    counts = Counter((alert.rule, alert.severity.value, alert.state.value) for alert in alerts if alert.state in _SHOWN)
    held = Counter(
        found.state.value
        for alert in alerts
        if alert.state is AlertState.FIRING and (found := manager.status(alert.key)) is not None
    )
    return [
        _family("alerts", "Alerts by rule, severity and state; only those that exist.", GAUGE,
                [(labels({**its, "rule": rule, "severity": severity, "state": state}), float(count))
                 for (rule, severity, state), count in sorted(counts.items())]),
        _family("alerts_standing", "Firing alerts by notification state.", GAUGE,
                [(labels({**its, "standing": one.value}), float(held[one.value]))
                 for one in NotificationState]),
    ]  # fmt: skip


def _impairments(impairments: Impairments, aside: Isolation, its: Mapping[str, str]) -> list[Family]:
    found = impairments.current()
    return [
        _family(
            "impaired",
            "1 for each part of the aggregator that does not work now.",
            GAUGE,
            [(labels({**its, "rule": one.rule, "part": one.part}), 1.0) for one in found],
        ),
        _family(
            "impairments_unlisted_total",
            f"Reports of nodes that kilowatch_impaired has no room for: it has {MOST_PARTS} at most.",
            COUNTER,
            [(labels(its), float(impairments.unlisted))],
        ),
        _family(
            "aggregator_page_faults_total",
            "Times that a page, or a part of a page, push or report, could not be made.",
            COUNTER,
            [("", float(aside.failures))],
        ),
    ]


def _incidents(manager: IncidentManager, its: Mapping[str, str], now: int) -> list[Family]:
    found = Counter((one.severity.value, one.acknowledged is not None) for one in manager.incidents())
    silences = Counter(one.maintenance for one in manager.silences() if one.starts <= now < one.ends)
    return [
        _family(
            "incidents_open",
            "Open incidents.",
            GAUGE,
            [
                (
                    labels({**its, "severity": severity.value, "acknowledged": "true" if taken else "false"}),
                    float(found[severity.value, taken]),
                )
                for severity in (Severity.PAGE, Severity.TICKET)
                for taken in (False, True)
            ],
        ),
        _family(
            "silences_active",
            "Silences in force.",
            GAUGE,
            [
                (labels({**its, "kind": word}), float(silences[maintenance]))
                for word, maintenance in (("silence", False), ("maintenance", True))
            ],
        ),
    ]


def _quality(pipeline: AlertPipeline, its: Mapping[str, str]) -> list[Family]:
    known = pipeline.quality.totals
    rules = {one.name for one in (*pipeline.engine.rules, *pipeline.monitor.rules) if one.severity is not Severity.INFO}
    # From 0 on, for every rule: increase() does not see the first value of a counter.
    totals = [(rule, known.get(rule, Counter[str]())) for rule in sorted(rules | known.keys())]
    sent = (("page", "pages"), ("ticket", "tickets"))
    return [
        _family(
            "alerts_sent_total",
            "New pages and tickets by rule, without reminders.",
            COUNTER,
            [
                (labels({**its, "rule": rule, "severity": severity}), float(counts[word]))
                for rule, counts in totals
                for severity, word in sent
            ],
        ),
        _family(
            "alerts_outcomes_total",
            "What came of pages and tickets, by rule: acknowledged, "
            "self_resolved (over within five minutes), flapping, marked_false; and alerts that "
            "were silenced.",
            COUNTER,
            [
                (labels({**its, "rule": rule, "outcome": word}), float(counts[word]))
                for rule, counts in totals
                for word in OUTCOMES
            ],
        ),
    ]


def _channels(channels: Sequence[ChannelRow], now: int) -> list[Family]:
    wall = now / 1e9

    def each(value: str) -> list[Sample]:
        return [(_named(one), float(getattr(one, value))) for one in channels]

    return [
        _family("deliveries_total", "Deliveries by outcome, and failed tries.",
                COUNTER,
                [(labels({"channel": one.name, "kind": one.kind, "outcome": outcome}),
                  float(getattr(one, outcome)))
                 for one in channels for outcome in _OUTCOMES]),
        _family("deliveries_waiting", "Deliveries that wait.", GAUGE, each("waiting")),
        _family("deliveries_oldest_timestamp_seconds",
                "When the oldest waiting delivery was created.", GAUGE,
                [(_named(one), wall - one.oldest_seconds)
                 for one in channels if one.oldest_seconds is not None]),
        _family("deliveries_last_timestamp_seconds", "When a delivery last arrived.", GAUGE,
                [(_named(one), one.last_delivered / 1e9)
                 for one in channels if one.last_delivered is not None]),
        _family("channel_failing", "1 while a channel fails.", GAUGE,
                [(_named(one), float(bool(one.failing))) for one in channels]),
    ]  # fmt: skip


def _named(channel: ChannelRow) -> str:
    return labels({"channel": channel.name, "kind": channel.kind})


def _machinery(stats: AlertStats, pipeline: AlertPipeline) -> list[Family]:
    last = stats.heartbeat_at
    return [
        _family("aggregator_journal_commit_seconds", "Time to write the journal of alerts.", SUMMARY,
                [("_count", float(stats.commits)), ("_sum", stats.commit_seconds)]),
        _family("aggregator_journal_errors_total",
                "Commits of the journal that did not reach the disk at once.", COUNTER,
                [("", float(stats.commit_errors))]),
        _family("aggregator_journal_ok", "1 while all changes are on disk.", GAUGE,
                [("", float(stats.journal_ok))]),
        _family("aggregator_alerts_fired_total", "Alerts that began to fire.", COUNTER,
                [("", float(pipeline.fired))]),
        _family("aggregator_events_unplaced_total", "Events of unknown nodes.", COUNTER,
                [("", float(pipeline.engine.events_unplaced))]),
        _family("heartbeat_last_timestamp_seconds",
                "When the last ping of the heartbeat was answered.", GAUGE,
                [] if last is None else [("", last / 1e9)]),
        _family("heartbeat_failed_total", "Pings of the heartbeat that were not answered.", COUNTER,
                [] if stats.heartbeat_failed is None
                else [("", float(stats.heartbeat_failed))]),
    ]  # fmt: skip
