"""A receiver shaped like PagerDuty's Events API v2, that can be ill in all the ways of the real one.

It keeps incidents by their dedup key as PagerDuty does: a trigger opens one or joins the one that is
open, and only the first of these calls a person.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web

from tests.brokers import free_port

KEY = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Behaviour:
    """How it treats one request."""

    status: int = 202
    after: str | None = None
    """A `Retry-After`."""
    seconds: float = 0.0
    """Before it answers."""
    drops: bool = False
    """Takes the event, and drops the connection instead of answering."""
    hangs: bool = False
    """Takes nothing, and never answers."""


ACCEPTS = Behaviour()
FAILS = Behaviour(status=500)
DROPS = Behaviour(drops=True)
HANGS = Behaviour(hangs=True)


class Call(NamedTuple):
    """One request that came in."""

    at: float
    """Monotonic seconds."""
    action: str
    key: str
    body: dict[str, Any]
    status: int
    """What was answered; 0 when nothing was."""


@dataclass
class Pager:
    """One integration."""

    port: int = field(default_factory=free_port)
    behave: Callable[[], Behaviour] | None = None
    """Asked for each request, once `script` is used up; it accepts all by itself."""
    script: deque[Behaviour] = field(default_factory=deque)
    calls: list[Call] = field(default_factory=list)
    opened: Counter[str] = field(default_factory=Counter)
    """How often an incident of a key was opened: how often a person was called."""
    state: dict[str, str] = field(default_factory=dict)
    """`triggered`, `acknowledged` or `resolved`, by dedup key."""
    at_once: int = 0
    """Requests under way."""
    most_at_once: int = 0
    received: Callable[[Call], Awaitable[object]] | None = None
    """Awaited when an event was taken, before it is answered."""
    answered: Callable[[], None] | None = None

    @property
    def url(self) -> str:
        """Where events go."""
        return f"http://127.0.0.1:{self.port}/v2/enqueue"

    def settings(self, folder: Path, **more: Any) -> dict[str, Any]:
        """A channel that leads here."""
        file = folder / "pagerduty.key"
        file.write_text(KEY + "\n")
        return {"type": "pagerduty", "key_file": str(file), "url": self.url, **more}

    def accepted(self, key: str) -> list[str]:
        """The actions of an incident that it has taken, in their order."""
        return [call.action for call in self.calls if call.key == key and call.status == 202]

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Pager]:
        """Answer on the port, until the end of the block; again on the same port if need be."""
        app = web.Application(client_max_size=2**20)
        app.router.add_post("/v2/enqueue", self._enqueue)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port, reuse_address=True).start()
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _enqueue(self, request: web.Request) -> web.StreamResponse:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        try:
            return await self._answer(request)
        finally:
            self.at_once -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        raw = await request.read()
        behaviour = self.script.popleft() if self.script else (self.behave or (lambda: ACCEPTS))()
        if behaviour.hangs:
            await asyncio.Event().wait()
        body = json.loads(raw)
        problems = _problems(body, len(raw))
        status = behaviour.status if not problems else 400
        if behaviour.status >= 500 or behaviour.status == 429:
            status = behaviour.status
        if status == 202:
            self._take(body["event_action"], body["dedup_key"])
        dropped = behaviour.drops
        call = Call(
            time.monotonic(), str(body.get("event_action")), str(body.get("dedup_key")), body, 0 if dropped else status
        )
        self.calls.append(call)
        if self.received is not None:
            await self.received(call)
        if behaviour.seconds:
            await asyncio.sleep(behaviour.seconds)
        if dropped:
            assert request.transport is not None
            request.transport.abort()
        headers = {"Retry-After": behaviour.after} if behaviour.after is not None else {}
        response = web.json_response(
            {"status": "success" if status == 202 else "invalid event", "errors": problems},
            status=status,
            headers=headers,
        )
        if self.answered is not None and not dropped:
            await response.prepare(request)
            await response.write_eof()
            self.answered()
        return response

    def _take(self, action: str, key: str) -> None:
        state = self.state.get(key)
        open_now = state in {"triggered", "acknowledged"}
        if action == "trigger" and not open_now:
            self.opened[key] += 1
            self.state[key] = "triggered"
        elif action == "acknowledge" and open_now:
            self.state[key] = "acknowledged"
        elif action == "resolve" and open_now:
            self.state[key] = "resolved"

    def take_calls(self) -> list[Call]:
        """Return the requests since the last time it was asked."""
        taken, self.calls = self.calls, []
        return taken


def _problems(body: dict[str, Any], size: int) -> list[str]:
    """What the documentation of the Events API v2 refuses."""
    found = []
    if size > 512_000:
        found.append("the event is larger than 512 KB")
    if body.get("routing_key") != KEY:
        found.append("'routing_key' is invalid")
    if body.get("event_action") not in {"trigger", "acknowledge", "resolve"}:
        found.append("'event_action' is invalid")
    if not 0 < len(body.get("dedup_key", "")) <= 255:
        found.append("'dedup_key' is invalid")
    if body.get("event_action") == "trigger":
        payload = body.get("payload", {})
        if not 0 < len(payload.get("summary", "")) <= 1024:
            found.append("'payload.summary' is missing or too long")
        if not payload.get("source"):
            found.append("'payload.source' is missing")
        if payload.get("severity") not in {"critical", "error", "warning", "info"}:
            found.append("'payload.severity' is invalid")
    places = [link.get("href", "") for link in body.get("links", [])]
    if not all(place.startswith(("http://", "https://")) for place in places):
        found.append("'links.href' is invalid")
    return found
