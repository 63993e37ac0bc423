"""The HTTP client of all channels, which returns delivery results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import aiohttp

from alerts.message.text import clean
from alerts.notifiers.result import Answer, Delivered, Later, Refused
from telemetry.runtime.http_outcome import HttpOutcome, outcome_of, retry_after
from telemetry.text.connection_faults import connection_fault

CONNECT_SECONDS = 5.0
LONGEST_WAIT = 3600.0
"""Seconds: the longest `Retry-After` that is honoured."""
_READ = 4096
"""Bytes of an answer that are read."""


class HttpSender:
    """Sends requests without following redirects, which would carry a secret to another host."""

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
    ) -> Answer:
        """Post a body and return the result. `now`: seconds since 1970, for a `Retry-After` that is
        a date."""
        headers = {"Content-Type": "application/json", **(headers or {})}
        return await self._request("POST", url, body, headers, seconds, now)

    async def get(self, url: str, *, seconds: float) -> Answer:
        """Get a URL and return the result."""
        return await self._request("GET", url, None, {}, seconds, None)

    async def _request(
        self, method: str, url: str, body: bytes | None, headers: Mapping[str, str], seconds: float, now: float | None
    ) -> Answer:
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
                return _result(answer.status, text, after, where)
        except TimeoutError:
            return Later(f"no answer within {seconds:g} s")
        except aiohttp.InvalidURL:
            return Refused("its URL can't be used")
        except aiohttp.ClientConnectorCertificateError as error:
            return Later(f"its certificate is not valid: {error.certificate_error}")
        except (aiohttp.ClientError, OSError, asyncio.IncompleteReadError) as error:
            return Later(clean(connection_fault(error).what, 200))
        except ValueError as error:  # a header with a line break in it, from a secret's file
            return Refused(f"it can't be sent: {clean(str(error), 200)}")


def _result(status: int, text: str, after: float | None, location: str) -> Answer:
    outcome = outcome_of(status)
    if outcome is HttpOutcome.DELIVERED:
        return Delivered()
    text = clean(text, 200)
    reason = f"HTTP {status}" + (f": {text}" if text else "")
    if 300 <= status < 400:
        where = clean(location.partition("?")[0], 120)
        return Refused(f"HTTP {status}: it redirects to {where!r}; write that URL instead", status)
    return Later(reason, after) if outcome is HttpOutcome.RETRY else Refused(reason, status)


@asynccontextmanager
async def open_sender(proxy: str = "", version: str = "") -> AsyncIterator[HttpSender]:
    """Open an HTTP client for the duration of the block."""
    agent = f"kilowatch/{version}" if version else "kilowatch"
    async with aiohttp.ClientSession(
        headers={"User-Agent": agent},
        cookie_jar=aiohttp.DummyCookieJar(),
        connector=aiohttp.TCPConnector(limit=128, limit_per_host=0, ttl_dns_cache=60),
    ) as session:
        yield HttpSender(session, proxy)
