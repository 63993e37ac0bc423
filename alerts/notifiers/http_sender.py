"""The door to the outside: one HTTP client for all channels, and what its answers mean."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

import aiohttp

from alerts.message.text import clean
from alerts.notifiers.result import Answer, Delivered, Later, Refused
from telemetry.http_outcome import HttpOutcome, outcome_of, retry_after

CONNECT_SECONDS = 5.0
LONGEST_WAIT = 3600.0
"""A receiver that asks for more is asked again after an hour."""
_READ = 4096
"""Bytes of an answer that are looked at."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """What a receiver answered."""

    status: int
    text: str
    after: float | None
    """Seconds of its `Retry-After`."""
    location: str


class HttpSender:
    """Posts and asks, and never follows a redirect: it would carry a secret to somewhere else."""

    def __init__(self, session: aiohttp.ClientSession, proxy: str = "") -> None:
        self._session = session
        self._proxy = proxy or None

    async def post(
        self,
        url: str,
        body: bytes,
        headers: Mapping[str, str] | None = None,
        *,
        seconds: float,
        now: float | None = None,
    ) -> HttpAnswer | Later | Refused:
        """Send a body and return the answer, or why there is none. `now`: seconds since 1970, for
        a `Retry-After` that is a date."""
        return await self._ask(
            "POST",
            url,
            body,
            {"Content-Type": "application/json", **(headers or {})},
            seconds,
            now,
        )

    async def get(self, url: str, *, seconds: float) -> HttpAnswer | Later | Refused:
        """Ask for a page and return the answer, or why there is none."""
        return await self._ask("GET", url, None, {}, seconds, None)

    async def _ask(
        self,
        method: str,
        url: str,
        body: bytes | None,
        headers: Mapping[str, str],
        seconds: float,
        now: float | None,
    ) -> HttpAnswer | Later | Refused:
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=seconds, sock_connect=CONNECT_SECONDS),
                allow_redirects=False,
                proxy=self._proxy,
            ) as answer:
                text = (await answer.content.read(_READ)).decode("utf-8", "replace")
                after = retry_after(answer.headers.get("Retry-After", ""), now, LONGEST_WAIT)
                where = answer.headers.get("Location", "")
                return HttpAnswer(answer.status, text, after, where)
        except TimeoutError:
            return Later(f"no answer within {seconds:g} s")
        except aiohttp.InvalidURL:
            return Refused("its URL can't be used")
        except aiohttp.ClientConnectorCertificateError as error:
            return Later(f"its certificate is not valid: {error.certificate_error}")
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            return Later(clean(str(error), 200) or type(error).__name__)
        except ValueError as error:  # a header with a line break in it, from a secret's file
            return Refused(f"it can't be sent: {clean(str(error), 200)}")


def judge(reply: HttpAnswer | Later | Refused) -> Answer:
    """Return what most receivers mean by an answer."""
    if not isinstance(reply, HttpAnswer):
        return reply
    status = reply.status
    outcome = outcome_of(status)
    if outcome is HttpOutcome.DELIVERED:
        return Delivered()
    said = clean(reply.text, 200)
    words = f"HTTP {status}" + (f": {said}" if said else "")
    if 300 <= status < 400:
        where = clean(reply.location.partition("?")[0], 120)
        return Refused(f"HTTP {status}: it redirects to {where!r}; write that URL instead", status)
    return Later(words, reply.after) if outcome is HttpOutcome.RETRY else Refused(words, status)


@asynccontextmanager
async def doors(proxy: str = "", version: str = "") -> AsyncIterator[HttpSender]:
    """Open a client for as long as something is sent."""
    agent = f"kilowatch/{version}" if version else "kilowatch"
    async with aiohttp.ClientSession(
        headers={"User-Agent": agent},
        cookie_jar=aiohttp.DummyCookieJar(),
        connector=aiohttp.TCPConnector(limit=128, limit_per_host=0, ttl_dns_cache=60),
    ) as session:
        yield HttpSender(session, proxy)
