"""`kilowatch replay`: what a recording comes to; which notifications would have been sent, and when."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

import msgspec

from aggregator.config import AggregatorConfig
from alerts.incidents.quality_summary import quality
from alerts.rules.rule import Rule
from api.alerts import Action, Incident, Severity
from api.quality import QualityReply
from collector.recording.file import RecordedMessage, Skipped
from kilowatch.replay.player import Player


class ReplayedNotice(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that would have been sent."""

    at: int
    """Recorded time, ns since 1970."""
    action: Action
    severity: Severity
    reason: str
    incident: str
    title: str


class ReplayOutcome(msgspec.Struct, frozen=True, kw_only=True, rename={"notices": "told"}):
    """Notifications and incidents of a recording."""

    messages: int
    unreadable: int
    """Messages that could not be read."""
    skipped: str = ""
    """Parts of the file that could not be read: damaged blocks, messages with an impossible time."""
    seconds_skipped: int = 0
    """Recorded seconds without a message for long; the rules were not evaluated in them."""
    nodes: int
    gpus: int
    first: int
    """ns since 1970."""
    last: int
    pages: int
    tickets: int
    quality: QualityReply = QualityReply()
    """By rule, what was sent, and what resolved by itself or flapped."""
    notices: list[ReplayedNotice]
    """In the order of time; `told` in JSON."""
    incidents: list[Incident]
    """The last state of each, worst first; those without a notification too."""


def replay(
    path: Path,
    entries: Iterable[RecordedMessage],
    rules: Sequence[Rule],
    config: AggregatorConfig,
    skipped: Skipped | None = None,
) -> ReplayOutcome:
    """Play a recording, with the rules every `rule_seconds` of the settings, a second at least. `skipped` is
    that of the reader of its entries. Raises `SourceError` when there is nothing in it."""
    with tempfile.TemporaryDirectory(prefix="kilowatch-replay-") as folder:
        player = Player(path, entries, config, rules, Path(folder), max(1.0, config.rule_seconds))
        for at in player.play():
            player.router.drain_batch(at)
            player.router.stored()
        player.settle()
    return _outcome(player, "" if skipped is None else str(skipped))


def _outcome(player: Player, skipped: str) -> ReplayOutcome:
    notices = [
        ReplayedNotice(
            at=one.at,
            action=one.action,
            severity=one.incident.severity,
            reason=one.reason,
            incident=one.incident.key,
            title=one.incident.title,
        )
        for one in player.notices
    ]
    again = {"repeat", "escalated"}
    new = [one for one in notices if one.action is Action.TRIGGER and one.reason not in again]
    order = tuple(Severity)
    return ReplayOutcome(
        messages=player.messages,
        unreadable=sum(player.stats.dropped.values()),
        skipped=skipped,
        seconds_skipped=player.skipped,
        nodes=len(player.fleet.nodes),
        gpus=len(player.fleet.by_uuid),
        first=player.began,
        last=player.last,
        pages=sum(one.severity is Severity.PAGE for one in new),
        tickets=sum(one.severity is Severity.TICKET for one in new),
        quality=quality(
            player.pipeline.quality, [rule.name for rule in player.pipeline.engine.rules], player.began, player.at
        ),
        notices=notices,
        incidents=sorted(player.incidents.values(), key=lambda one: (order.index(one.severity), one.began)),
    )
