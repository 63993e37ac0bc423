"""Alert quality: `/api/v1/alerts/quality`, and suggested changes of rules."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from math import ceil

from aiohttp import hdrs, web

from aggregator.access.tokens import AccessScope
from aggregator.http.errors import RequestError
from aggregator.http.operation import Operation, Parameter
from aggregator.http.parameters import WHEN, moment, query
from aggregator.http.reply import STORE_SECONDS, VIEW, send_json
from aggregator.load.shedding import RETRY_AFTER
from aggregator.view import AggregatorView
from alerts.engine.suggestion import LOOK_AHEAD, MOST_FALSE, MOST_TRUE, AlertHistory, lookback, suggest
from alerts.incidents.quality_record import QualityRecord, SentAlert
from alerts.incidents.quality_summary import quality as quality_of
from alerts.rules.names import home
from alerts.rules.rule import Rule
from api.alerts import Subject
from api.quality import QualityReply, RuleSuggestion, SuggestionsReply
from telemetry.runtime.worker_threads import WorkerThreads

USUAL = "-30d"
MOST_READINGS = 600
"""Readings of one metric that are played for one alert; of a longer time they are means."""
PLAY_SECONDS = 20.0
"""Longest time for playing in one answer; each rule has its share of what is left."""
SECOND = 1_000_000_000
SUGGESTION_TURN = web.AppKey("suggestion turn", asyncio.Lock)
"""Held while suggestions are made: much work, of which there is one at a time."""


async def quality(request: web.Request) -> web.Response:
    """Answer with the quality of each rule's notifications."""
    asked = query(request, "from")
    view = request.app[VIEW]
    at = view.wall()
    pipeline = view.pipeline
    rules = [rule.name for rule in (*pipeline.engine.rules, *pipeline.monitor.rules)]
    since = moment("from", asked.get("from", USUAL), at)
    found = quality_of(pipeline.quality, rules, since, at)
    return await send_json(request, found, values=20 * len(found.rules))


async def suggestions(request: web.Request) -> web.Response:
    """Answer with the changes that would have avoided what was marked as false."""
    asked = query(request, "from")
    view = request.app[VIEW]
    at = view.wall()
    since = moment("from", asked.get("from", USUAL), at)
    turn = request.app[SUGGESTION_TURN]
    if turn.locked():
        raise RequestError(
            503,
            "path",
            "suggestions are being made for another request",
            "Try again later.",
            headers={hdrs.RETRY_AFTER: str(RETRY_AFTER)},
        )
    async with turn:
        found = await _suggestions(view, since)
    return await send_json(request, SuggestionsReply(at=at, since=since, suggestions=found))


async def _suggestions(view: AggregatorView, since: int) -> list[RuleSuggestion]:
    """Return a suggestion for each rule with a mark. Played in a thread of its own: those that pages and
    the journal use stay free."""
    sent = view.pipeline.quality.sent(since)
    rules = {rule.name: rule for rule in view.pipeline.engine.rules}
    marked = sorted({one.rule for one in sent if one.false is not None})
    found, played = [], 0.0
    threads, gone = WorkerThreads(1, "suggestions"), threading.Event()
    try:
        for number, name in enumerate(marked):
            rule = rules.get(name)
            if rule is None:
                reason = "it is no rule in force that reads the fleet"
                found.append(RuleSuggestion(rule=name, reason=reason))
                continue
            if rule.table.table is None:
                reason = "the past of circuits, budgets and supplies is not stored by reading"
                found.append(RuleSuggestion(rule=name, reason=reason))
                continue
            mine = [one for one in sent if one.rule == name]
            async with asyncio.timeout(STORE_SECONDS):
                histories = [await _history(view, rule, alert, false=false) for alert, false in _played(mine)]
            began = time.monotonic()
            end = began + (PLAY_SECONDS - played) / (len(marked) - number)
            found.append(await threads.run(suggest, rule, histories, _over(end, gone)))
            played += time.monotonic() - began
    finally:
        gone.set()
        threads.close(cancel=True)
    return found


def _over(end: float, gone: threading.Event) -> Callable[[], bool]:
    """Return a function that says whether a monotonic time has passed, or nobody waits any more."""
    return lambda: gone.is_set() or time.monotonic() >= end


def _played(records: list[QualityRecord]) -> Iterator[tuple[SentAlert, bool]]:
    """Yield the alerts of a rule that are reviewed, the newest ones, and whether they were false."""
    for false, most in ((True, MOST_FALSE), (False, MOST_TRUE)):
        reviewed = [
            alert
            for record in reversed(records)
            if (record.false is not None) is false and (false or record.acknowledged is not None)
            for alert in record.alerts
            if alert.rule == record.rule
        ]
        for alert in reviewed[:most]:
            yield alert, false


async def _history(view: AggregatorView, rule: Rule, alert: SentAlert, *, false: bool) -> AlertHistory:
    """Return the stored readings of an alert's device from before it began until long after."""
    _, node, device = alert.key.split("/", 2)
    start = min(alert.since or alert.fired, alert.fired) - round(lookback(rule) * SECOND)
    end = min(alert.fired + LOOK_AHEAD * SECOND, view.wall())
    span = (end - start) / SECOND
    known = view.fleet.nodes.get(node)
    every = max(1.0 if known is None else known.interval, float(ceil(span / MOST_READINGS)))
    readings = {}
    for metric in dict.fromkeys(rule.when.metrics()):
        key = {Subject.NODE: node, Subject.GPU: device.partition("/")[0]}.get(home(metric), device)
        series = await view.store.history(key, metric, start, end, 0.0)
        readings[metric] = _on_grid(series.at, series.mean, start, every, span)
    return AlertHistory(false, every, readings)


def _on_grid(at: list[int], values: list[float | None], start: int, every: float, span: float) -> list[float | None]:
    """Return the last reading before each moment of a grid, None where it is older than a minute."""
    found: list[float | None] = []
    place, last, seen = 0, None, start - 3600 * SECOND
    for step in range(int(span / every) + 1):
        now = start + round(step * every * SECOND)
        while place < len(at) and at[place] <= now:
            last, seen = values[place], at[place]
            place += 1
        found.append(last if now - seen <= 60 * SECOND else None)
    return found


OPERATIONS = (
    Operation(
        "/api/v1/alerts/quality",
        quality,
        "alertQuality",
        "How the pages and tickets of each rule served the people who received them: acknowledged how "
        "fast, resolved by themselves, silenced, flapping, marked as false. A figure that nobody "
        "knows is null, never 0.",
        QualityReply,
        (Parameter("from", f"Start of the time; -30d if absent. {WHEN}", "-30d"),),
        scope=AccessScope.READ,
    ),
    Operation(
        "/api/v1/alerts/quality/suggestions",
        suggestions,
        "alertSuggestions",
        "For each rule of which something was marked as false: the smallest change of its level or hold "
        "time that the stored readings of those alerts no longer make fire, while those that were "
        "acknowledged and not marked still do.",
        SuggestionsReply,
        (Parameter("from", f"Start of the time; -30d if absent. {WHEN}", "-30d"),),
        (503,),
        scope=AccessScope.READ,
    ),
)
