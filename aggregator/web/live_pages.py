"""Pages that follow the cluster: each is made once for all who look at it, and only what of it has changed is sent.

A page is sent whole when it is opened. Its script then asks for the same URL as server-sent events (`Accept:
text/event-stream`), with the page that it has in `Last-Event-ID`: every two seconds it gets the parts that differ from
what it got before, as `{key: HTML}` by the keys of `keyed_parts`. The key "" is the page itself, for a script that has
no page or an old one. All viewers of a page are sent the same bytes at the same instants.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import zlib
from collections.abc import Awaitable, Callable
from typing import Any
from weakref import WeakValueDictionary

import msgspec
from aiohttp import hdrs, web

from aggregator.access.guests import GuestCounter
from aggregator.http.auth import CALLER, GUARD, READING
from aggregator.http.errors import RequestError
from aggregator.http.listener import guest_of
from aggregator.http.reply import VIEW, accepts_gzip, gzipped
from aggregator.web.content import PageContent
from aggregator.web.keyed_parts import changes, parts_of
from aggregator.web.made_once import MadeOnce
from telemetry.errors import StoreError

log = logging.getLogger(__name__)

Page = Callable[[web.Request], Awaitable[PageContent]]
EVERY_SECONDS = 2.0
"""Between two looks at a page for its viewers."""
EVENTS = "text/event-stream"
ID = 'data-live=""'
"""Where a page has its identity."""
MOST_VIEWERS, MOST_VIEWERS_EACH = 200, 100
"""Viewers of pages at a time, in all and for each guest: some of the connections that one may have are left."""
_GZIP = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"
"""Head of a stream, before its blocks."""


class LivePage:
    """A page at one instant, for all who may see the same of it."""

    def __init__(self, head: str, body: str) -> None:
        """`body`: from its `body` element on."""
        self.head = head
        """HTML before its body."""
        self.parts = parts_of(body)
        page = head + self.parts.whole()
        self.id = hashlib.sha256(page.encode()).hexdigest()[:16]
        self.html = page.replace(ID, f'data-live="{self.id}"', 1).encode()

    def since(self, before: LivePage | None) -> bytes:
        """Return the event with what differs from an earlier one."""
        if before is None or before.head != self.head:
            found = {"": self.html.decode()}
        else:
            found = changes(self.parts, before.parts)
            if "" in found:
                found = {"": self.html.decode()}
        return b"data: " + msgspec.json.encode(found) + b"\n\n"


class LivePages:
    """The pages that somebody looks at, and the events for those who follow them."""

    SECONDS = 1.0
    """For how long a page is good."""
    MOST = 64

    def __init__(self, frame: Callable[[web.Request, PageContent], tuple[str, str]]) -> None:
        """`frame`: returns the HTML of a page up to its body, and from there on."""
        self._frame = frame
        self._pages = MadeOnce[LivePage](self.SECONDS, self.MOST)
        self._zipped = MadeOnce[tuple[bytes, bool]](EVERY_SECONDS, self.MOST)
        self._sent = MadeOnce[bytes](EVERY_SECONDS, 2 * self.MOST)
        self._alive: WeakValueDictionary[str, LivePage] = WeakValueDictionary()
        """Pages that somebody may have, by identity."""
        self.viewers = GuestCounter(MOST_VIEWERS, MOST_VIEWERS_EACH)
        self._tasks: set[asyncio.Task[Any] | None] = set()

    async def body(self, page: Page, request: web.Request) -> tuple[bytes, bool]:
        """Return a page in its frame for a caller, and whether it is compressed; made anew for a person who
        loads it again. Raises what the page raises."""
        found = await self._read(page, request, anew=hdrs.CACHE_CONTROL in request.headers)
        if not _zips(request):
            return found.html, False
        return await self._zipped.read(found.id, lambda: asyncio.to_thread(gzipped, found.html))

    async def _read(self, page: Page, request: web.Request, *, anew: bool = False) -> LivePage:
        key = (str(request.rel_url), request[CALLER].sees_private)
        return await self._pages.read(key, lambda: self._make(page, request), anew=anew)

    async def _make(self, page: Page, request: web.Request) -> LivePage:
        head, body = self._frame(request, await page(request))
        made = await asyncio.to_thread(LivePage, head, body)
        return self._alive.setdefault(made.id, made)

    async def follow(self, page: Page, request: web.Request) -> web.StreamResponse:
        """Send what changes of a page, for as long as its viewer is there. Raises what the page raises at first."""
        transport = request.transport
        guest = request[CALLER].name or ("" if transport is None else guest_of(transport))
        if problem := self.viewers.full(guest):
            raise RequestError(503, "page", problem, "Close a page, or try again later.")
        before = self._alive.get(request.headers.get("Last-Event-ID", ""))
        now = await self._read(page, request)
        response = web.StreamResponse()
        response.headers[hdrs.CONTENT_TYPE] = EVENTS
        response.headers["X-Accel-Buffering"] = "no"  # nginx would keep events until it has some kilobytes
        if _zips(request):
            response.headers[hdrs.CONTENT_ENCODING] = "gzip"
        task = asyncio.current_task()
        self.viewers.enter(guest)
        self._tasks.add(task)
        try:
            await response.prepare(request)
            if _zips(request):
                await response.write(_GZIP)
            await self._send(response, page, request, before, now)
        except ConnectionError:  # the viewer went away
            pass
        except (RequestError, StoreError, TimeoutError):  # it asks again, and gets that as the answer
            pass
        except Exception:
            log.exception("a page that is followed failed path=%s", request.path)
        finally:
            self._tasks.discard(task)
            self.viewers.leave(guest)
        return response

    async def _send(
        self, response: web.StreamResponse, page: Page, request: web.Request, before: LivePage | None, now: LivePage
    ) -> None:
        view, guard, time = request.app[VIEW], request.app[GUARD], asyncio.get_running_loop().time
        while True:
            await response.write(await self._event(before, now, zipped=_zips(request)))
            before = now
            every = max(EVERY_SECONDS, view.shedding.viewer_seconds)
            await asyncio.sleep(every - time() % every)  # all at once: what they want is made once
            request[CALLER] = guard.admit(request, READING)  # its token may have ended
            await view.refresh()
            now = await self._read(page, request)

    async def _event(self, before: LivePage | None, now: LivePage, *, zipped: bool) -> bytes:
        """Return what a viewer is sent who has an earlier page."""
        key = ("" if before is None else before.id, now.id, zipped)
        return await self._sent.read(key, lambda: asyncio.to_thread(_event, before, now, zipped))

    async def close(self, _: web.Application) -> None:
        """End what all viewers are sent: the server ends."""
        for task in self._tasks:
            if task is not None:
                task.cancel()


def _event(before: LivePage | None, now: LivePage, zipped: bool) -> bytes:
    event = now.since(before)
    if not zipped:
        return event
    # A block that refers to nothing before it is good for every viewer, whatever each was sent before.
    block = zlib.compressobj(1, zlib.DEFLATED, -zlib.MAX_WBITS)
    return block.compress(event) + block.flush(zlib.Z_SYNC_FLUSH)


def _zips(request: web.Request) -> bool:
    return accepts_gzip(request.headers.get(hdrs.ACCEPT_ENCODING, ""))
