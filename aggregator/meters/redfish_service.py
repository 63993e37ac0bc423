"""One Redfish service over HTTP: get a resource, bounded in time, size and where it may lead."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from typing import Any

import aiohttp

from aggregator.meters.poller import PollError
from aggregator.meters.secrets import secret, trust
from power.meters.redfish import ROOT, Redfish
from power.meters.sample import parse, table
from telemetry.errors import WireError

LARGEST = 1 << 20
"""Bytes of one resource."""
AT_ONCE = 4
"""Questions at a time: management controllers are small machines."""
_SESSIONS = f"{ROOT}/SessionService/Sessions"


class GoneError(PollError):
    """There is no such resource."""


class Service:
    """Reads resources; logs in once where sessions are asked for."""

    def __init__(self, name: str, config: Redfish) -> None:
        self._place = f"power: meters.{name}"
        self._config = config
        self._base = config.services()[""]
        self._http: aiohttp.ClientSession | None = None
        self._token: str | None = None
        self._session_path: str | None = None
        self._gate = asyncio.Semaphore(AT_ONCE)
        self._entering = asyncio.Lock()

    async def get(self, path: str) -> dict[str, Any]:
        """Return the resource at a path. Raises `PollError`, `WireError` or `OSError`."""
        async with self._gate:
            if self._config.login == "session" and self._config.username and self._token is None:
                await self._log_in(None)
            token = self._token
            status, body = await self._request("GET", path)
            if status == 401 and token is not None:
                await self._log_in(token)  # sessions end by themselves after a while
                status, body = await self._request("GET", path)
        match status:
            case 200:
                return table(parse(body), path)
            case 401 | 403:
                raise PollError(f"{path}: it refuses us ({status}): check username and password_file")  # fmt: skip
            case 404 | 410:
                raise GoneError(f"there is no {path}")
            case _:
                raise PollError(f"{path}: it answers {status}")

    async def close(self) -> None:
        """End the session, as far as that is quick."""
        http, self._http = self._http, None
        if http is None:
            return
        with contextlib.suppress(aiohttp.ClientError, OSError, TimeoutError, PollError):
            if self._token is not None and self._session_path is not None:
                async with asyncio.timeout(1.0):
                    await self._send(http, "DELETE", self._session_path)
        self._token = self._session_path = None
        await http.close()

    async def _log_in(self, ended: str | None) -> None:
        """Begin a session in place of `ended`, unless another question has done so meanwhile."""
        async with self._entering:
            if self._token != ended:
                return
            self._token = self._session_path = None
            password = secret(self._place, self._config.password_file)
            name = {"UserName": self._config.username, "Password": password}
            with _our_words():
                async with self._open().post(
                    f"{self._base}{_SESSIONS}", json=name, allow_redirects=False
                ) as answer:
                    status, headers = answer.status, answer.headers
            self._token = headers.get("X-Auth-Token") if status in {200, 201} else None
            if not self._token:
                raise PollError(f'it gives us no session ({status}): check username and password_file, or set login = "basic"')  # fmt: skip
            # Some say the whole address: only the path counts, on the host that we know.
            _, found, rest = headers.get("Location", "").partition("/redfish/")
            self._session_path = f"/redfish/{rest}" if found else None

    async def _request(self, method: str, path: str) -> tuple[int, bytes]:
        with _our_words():
            return await self._send(self._open(), method, path)

    async def _send(self, http: aiohttp.ClientSession, method: str, path: str) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._token is not None:
            headers["X-Auth-Token"] = self._token
        # A redirect could carry our password elsewhere.
        async with http.request(
            method, f"{self._base}{path}", headers=headers, allow_redirects=False
        ) as answer:
            body = await answer.content.read(LARGEST + 1)
            while len(body) <= LARGEST and (more := await answer.content.read(LARGEST)):
                body += more
            if len(body) > LARGEST:
                raise WireError("too_long", f"{path}: more than {LARGEST} bytes")
            return answer.status, body

    def _open(self) -> aiohttp.ClientSession:
        if self._http is None:
            config = self._config
            headers = {}
            if config.username is not None and config.login == "basic":
                password = secret(self._place, config.password_file) or ""
                headers["Authorization"] = aiohttp.encode_basic_auth(config.username, password)
            self._http = aiohttp.ClientSession(
                headers=headers,
                connector=aiohttp.TCPConnector(ssl=trust(self._place, config), limit=AT_ONCE),
                timeout=aiohttp.ClientTimeout(total=config.timeout),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._http


@contextlib.contextmanager
def _our_words() -> Iterator[None]:
    """Turn what the HTTP client raises into what an operator can act on."""
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise PollError(f"its certificate is not trusted ({type(error).__name__}): set ca_file, or verify = false") from error  # fmt: skip
    except aiohttp.ClientConnectionError as error:
        raise PollError(f"it can't be reached: {error}") from error
    except aiohttp.ClientError as error:
        raise WireError("bad_http", f"{type(error).__name__}: {error}"[:200]) from error
