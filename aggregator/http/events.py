"""`/api/v1/events` and `/api/v1/alerts`: what happened, and what is wrong now."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from aggregator.http.errors import bad, unknown
from aggregator.http.reply import VIEW, query, send_json
from aggregator.http.times import between
from aggregator.model import StoredEvent
from alerts.alert import Alert, Severity, State

USUAL, MOST = 1000, 10_000
PATIENCE = 20.0
"""Seconds that the store may take."""


class EventsReply(msgspec.Struct, frozen=True):
    """Events, newest first."""

    start: int
    """ns since 1970."""
    end: int
    limit: int
    more: bool
    """True when there are as many as the limit: there may be more."""
    events: list[StoredEvent]


class AlertsReply(msgspec.Struct, frozen=True):
    """Alerts, worst first."""

    at: int
    """ns since 1970."""
    alerts: list[Alert]


async def events(request: web.Request) -> web.Response:
    """What happened: XIDs, GPUs lost and back, driver reloads."""
    asked = query(request, "from", "to", "node", "kind", "limit")
    view = request.app[VIEW]
    start, end = between(asked.get("from"), asked.get("to"), view.wall(), "-24h")
    text = asked.get("limit", str(USUAL))
    if not text.isdecimal() or not 1 <= int(text) <= MOST:
        raise bad(
            "limit", f"{text!r} is not a number from 1 to {MOST}", f"Leave it out for {USUAL}."
        )
    async with asyncio.timeout(PATIENCE):
        found = await view.ask_store(
            "events", start, end, asked.get("node"), asked.get("kind"), int(text)
        )
    if not isinstance(found, list):
        raise TypeError(f"the store answered events with {type(found).__name__}")
    body = EventsReply(start, end, int(text), len(found) == int(text), found)
    return await send_json(request, body, values=10 * len(found))


async def alerts(request: web.Request) -> web.Response:
    """What is wrong now, worst first."""
    asked = query(request, "state", "severity", "node", "gpu")
    for name, members in (("state", State), ("severity", Severity)):
        if name in asked and asked[name] not in {member.value for member in members}:
            raise unknown(name, asked[name], [member.value for member in members], status=400)
    view = request.app[VIEW]
    found = [
        alert
        for alert in view.alerts()
        if all(getattr(alert, name) == value for name, value in asked.items())
    ]
    return await send_json(request, AlertsReply(view.wall(), found), values=10 * len(found))
