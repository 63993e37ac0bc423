"""Alerts, incidents, silences, rules and deliveries as text for people. Pure: values in, lines out."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence

from alerts.message.text import clean
from api.alerts import AlertRow, AlertState, ChannelRow, DeliveryRow, Incident, RuleRow, Severity, Silence
from api.alerts import DeliveryOutcome as Outbound
from kilowatch.replay.outcome import ReplayOutcome
from kilowatch.text.table import WIDTH, columns
from present.alert.incident import (
    acknowledged,
    all_firing,
    inhibited_row,
    marked_false,
    matchers_words,
    notified_row,
    silence_kind,
    silence_row,
    value_row,
    value_words,
)
from telemetry.text import counted, duration, timestamp

COLOURS = {Severity.PAGE: "red", Severity.TICKET: "yellow", Severity.INFO: "cyan"}
_SECOND = 1_000_000_000
_FEW_SILENCES = 5


def incident_lines(incidents: Sequence[Incident], now: int) -> Iterator[str]:
    """Return incidents, each with key, duration, number of alerts, and state."""
    for incident in incidents:
        yield from _wrapped(f"{incident.severity.upper():6} ", incident.title)
        facts = [f"since {_age(incident.onset, now)}" if incident.ended is None else _over(incident)]
        facts += _lead_facts(incident)
        facts.append(all_firing(incident.firing, incident.total))
        inhibited = inhibited_row(incident)
        if inhibited.value:
            facts.append(f"{inhibited.value} {inhibited.label}")
        if incident.acknowledged is not None:
            facts.append(acknowledged(incident.acknowledged, timestamp))
        if incident.false is not None:
            facts.append(marked_false(incident.false))
        yield from _wrapped(" " * 7, ", ".join(facts))
        yield f"{' ' * 7}key {clean(incident.key)}"


def alert_lines(alerts: Sequence[AlertRow], now: int) -> list[str]:
    """Return alerts, a line each."""
    if not alerts:
        return []
    head = ("STATE", "SEVERITY", "SINCE", "VALUE", "NOTIFIED", "SUMMARY")
    rows = [
        (alert.state, alert.severity, _age(alert.since, now), value_row(alert).value, notified_row(alert).value,
         alert.summary or alert.key)
        for alert in alerts
    ]  # fmt: skip
    return columns([head, *rows])


def silence_lines(silences: Sequence[Silence], now: int) -> list[str]:
    """Return silences and maintenance windows, a line each."""
    head = ("ID", "KIND", "STATE", "BY", "MATCHERS AND REASON")
    rows = [
        (one.id, silence_kind(one), silence_row(one, now).text, clean(one.who, 16), f"{matchers_words(one)}: {one.why}")
        for one in silences
    ]
    return columns([head, *rows]) if rows else ["no silence"]


def silenced_lines(silences: Sequence[Silence], now: int) -> list[str]:
    """Return the silences in force, those that end last first, a few of them: nobody hides a page unseen."""
    found = sorted((one for one in silences if one.starts <= now < one.ends), key=lambda one: -one.ends)
    if not found:
        return []
    lines = silence_lines(found[:_FEW_SILENCES], now)[1:]
    more = len(found) - _FEW_SILENCES
    return ["silenced:", *lines, *([f"and {more} more: kilowatch silence --list"] if more > 0 else [])]


def rule_lines(rules: Sequence[RuleRow]) -> list[str]:
    """Return rules, a line each."""
    head = ("RULE", "ID", "TABLE", "SEVERITY", "REMEDY", "FIRES AFTER", "NOW", "SUMMARY")
    rows = [
        (one.name, one.id, one.subject, one.severity,
         "" if one.remediation is None else one.remediation.text,
         f"{one.hold:g} s" if one.hold else "at once", _counts(one), one.summary)
        for one in rules
    ]  # fmt: skip
    return columns([head, *rows])


def channel_lines(channels: Sequence[ChannelRow], now: int) -> list[str]:
    """Return channels with their state, a line each."""
    if not channels:
        return ["no channel is in force: alerts are shown, but not notified (docs/alerts.md)"]
    head = ("CHANNEL", "KIND", "SENT", "WAITING", "LAST", "STATE")
    rows = [
        (one.name, one.kind, one.delivered, _waiting(one),
         "never" if one.last_delivered is None else f"{_age(one.last_delivered, now)} ago",
         f"FAILING: {one.failing}" if one.failing else one.last_error or "ok")
        for one in channels
    ]  # fmt: skip
    return columns([head, *rows])


def delivery_lines(deliveries: Sequence[DeliveryRow], now: int) -> list[str]:
    """Return deliveries, newest first, a line each."""
    head = ("AGE", "CHANNEL", "OUTCOME", "TRIES", "REASON", "TITLE")
    rows = [
        (_age(one.created, now), one.channel, _outcome(one, now), one.tries,
         one.reason or one.action,
         f"{one.title} {f'({one.error})' if one.error else ''}")
        for one in deliveries
    ]  # fmt: skip
    return columns([head, *rows]) if rows else []


def replay_lines(outcome: ReplayOutcome) -> Iterator[str]:
    """Return the notifications of a recording."""
    span = duration((outcome.last - outcome.first) // _SECOND)
    yield (
        f"{counted(outcome.messages, 'message')} of {counted(outcome.nodes, 'node')} "
        f"with {counted(outcome.gpus, 'GPU')}, "
        f"{span} from {timestamp(outcome.first)}"
    )
    if outcome.unreadable:
        yield f"{outcome.unreadable} messages could not be read"
    if outcome.skipped:
        yield f"{outcome.skipped} of the file left out"
    if outcome.seconds_skipped:
        yield f"{duration(outcome.seconds_skipped)} without a message skipped"
    rows = [
        (f"+{duration((one.at - outcome.first) // _SECOND)}", one.severity.upper(), one.action, one.reason, one.title)
        for one in outcome.notices
    ]
    yield from columns([("AT", "SEVERITY", "ACTION", "REASON", "INCIDENT"), *rows]) if rows else []
    yield f"{counted(outcome.pages, 'page')}, {counted(outcome.tickets, 'ticket')}"


def _wrapped(head: str, text: str) -> Iterable[str]:
    return textwrap.wrap(
        clean(text), WIDTH, initial_indent=head, subsequent_indent=" " * len(head), break_on_hyphens=False
    )


def _age(since: int, now: int) -> str:
    return duration(max(0, (now - since) // _SECOND))


def _over(incident: Incident) -> str:
    ended = incident.ended or incident.changed
    return f"{timestamp(incident.onset)}, over after {_age(incident.onset, ended)}"


def _lead_facts(incident: Incident) -> Iterator[str]:
    if incident.alerts:
        lead = incident.alerts[0]
        if lead.state is AlertState.FIRING and lead.value_text:
            yield value_words(lead)
    if incident.owner:
        yield f"owner {incident.owner}"


def _counts(rule: RuleRow) -> str:
    each = ((rule.firing, "firing"), (rule.pending, "pending"))
    found = [f"{n} {word}" for n, word in each if n]
    return ", ".join(found)


def _outcome(delivery: DeliveryRow, now: int) -> str:
    """Return the outcome; for a delivery that waits for working hours, the time until it is due."""
    if delivery.outcome is not Outbound.WAITING or delivery.due - now < 60 * _SECOND:
        return delivery.outcome
    return f"in {_age(now, delivery.due)}"


def _waiting(channel: ChannelRow) -> str:
    age = channel.oldest_seconds
    return f"{channel.waiting}" + (f" ({duration(age)})" if channel.waiting and age else "")
