"""`/api/v1/events`: what happened."""

from __future__ import annotations

import asyncio

from aiohttp import web

from aggregator.http.errors import bad
from aggregator.http.reply import VIEW, query, send_json
from aggregator.http.times import between
from api.fleet import EventsReply

USUAL, MOST = 1000, 10_000
PATIENCE = 20.0
"""Seconds that the store may take."""


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
        found = await view.store.events(start, end, asked.get("node"), asked.get("kind"), int(text))
    body = EventsReply(start, end, int(text), len(found) == int(text), found)
    return await send_json(request, body, values=10 * len(found))
