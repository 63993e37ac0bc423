"""Polling of a Redfish service: configured parts, or the chassis with the power supplies.

The resources to read are discovered once and kept until one of them is gone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import aiohttp

from aggregator.meters.poller import Poller, PollError
from aggregator.meters.secrets import secret, trust
from power.meters.meter_record import MeterRecord
from power.meters.redfish import EQUIPMENT, Redfish, of_resource, of_supplies, path_of
from power.meters.sample import WHOLE, MeterSample, parse, table
from telemetry.errors import WireError
from telemetry.notations.redfish import ROOT, SESSIONS, link, members, session_path, type_of
from telemetry.text.connection_faults import connection_fault

# One Redfish service over HTTP: get a resource, bounded in time, size and where it may lead.

LARGEST = 1 << 20
"""Bytes of one resource."""
AT_ONCE = 4
"""Concurrent requests: management controllers are small machines."""


class GoneError(PollError):
    """There is no such resource."""


class Service:
    """Reader of one service's resources; logs in once where sessions are configured."""

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
                raise PollError(f"{path}: it refuses us ({status}): check username and password_file")
            case 404 | 410:
                raise GoneError(f"there is no {path}")
            case _:
                raise PollError(f"{path}: it answers {status}")

    async def close(self) -> None:
        """End the session, within a second."""
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
        """Begin a session in place of `ended`, unless another request has done so meanwhile."""
        async with self._entering:
            if self._token != ended:
                return
            self._token = self._session_path = None
            password = secret(self._place, self._config.password_file)
            name = {"UserName": self._config.username, "Password": password}
            with _our_words():
                async with self._open().post(f"{self._base}{SESSIONS}", json=name, allow_redirects=False) as answer:
                    status, headers = answer.status, answer.headers
            self._token = headers.get("X-Auth-Token") if status in {200, 201} else None
            if not self._token:
                raise PollError(
                    f'it gives us no session ({status}): check username and password_file, or set login = "basic"'
                )
            self._session_path = session_path(headers.get("Location", ""))

    async def _request(self, method: str, path: str) -> tuple[int, bytes]:
        with _our_words():
            return await self._send(self._open(), method, path)

    async def _send(self, http: aiohttp.ClientSession, method: str, path: str) -> tuple[int, bytes]:
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._token is not None:
            headers["X-Auth-Token"] = self._token
        # A redirect could carry our password elsewhere.
        async with http.request(method, f"{self._base}{path}", headers=headers, allow_redirects=False) as answer:
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
    """Turn errors of the HTTP client into messages that an operator can act on."""
    try:
        yield
    except aiohttp.ClientSSLError as error:
        raise PollError(
            f"its certificate is not trusted ({type(error).__name__}): set ca_file, or verify = false"
        ) from error
    except aiohttp.ClientConnectionError as error:
        raise PollError(f"it can't be reached: {connection_fault(error).what}") from error
    except aiohttp.ClientError as error:
        raise WireError("bad_http", f"{type(error).__name__}: {error}"[:200]) from error


_WAYS = {"PowerDistribution": ("Metrics",), "PowerSupply": ("Metrics",), "PowerSubsystem": (), "ComputerSystem": ()}
"""Resources without power readings of their own, and the link to those that have them."""
MOST_CHASSIS = 200


@dataclass(frozen=True, slots=True)
class RedfishChassis:
    """Resources with a chassis' power: its supplies, and the fallbacks for them."""

    path: str
    supplies: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    """EnvironmentMetrics, then the old Power."""
    contained: bool = False


class RedfishPoller(Poller):
    """Poller of one Redfish service."""

    def __init__(self, config: Redfish, record: MeterRecord, now: Callable[[], float]) -> None:
        super().__init__(record, config.timeout, now)
        self._config = config
        self._service = Service(record.meter.name, config)
        self._chassis: RedfishChassis | None = None
        self._inlet: str | None = None
        on_node = [attachment.kind == "node" for attachment in record.meter.attachments]
        self._is_unit = not any(on_node)

    async def ask(self) -> list[MeterSample]:
        """Read one round of samples."""
        config = self._config
        try:
            if config.map:
                return await self._parts()
            if config.path is not None:
                return await self._resource(WHOLE, path_of("", config.path))
            if self._is_unit:
                return await self._resource(WHOLE, await self._find_inlet())
            if self._chassis is None:
                self._chassis = await self._find_chassis()
            return await self._read_chassis(self._chassis)
        except GoneError:
            self._chassis = self._inlet = None  # discovered again next time
            raise

    async def leave(self) -> None:
        """End the session."""
        await self._service.close()

    async def _parts(self) -> list[MeterSample]:
        """Read all configured parts; an error of one does not fail the others."""
        asked = {part: path_of("", part) for part in self._config.map}
        answers = await _all([self._resource(part, path) for part, path in asked.items()])
        good = [sample for answer in answers if not isinstance(answer, Exception) for sample in answer]
        bad = [answer for answer in answers if isinstance(answer, Exception)]
        if bad and not good:
            raise bad[0]
        self.partial = "; ".join(str(error) for error in bad)
        return good

    async def _resource(self, channel: str, path: str) -> list[MeterSample]:
        body = await self._service.get(path)
        kind = type_of(body)
        if kind == "Chassis":
            return await self._read_chassis(self._describe(path, body, await self._supplies(body)), channel)
        for key in _WAYS.get(kind, ()):
            onward = link(body, key)
            if onward is None:
                raise WireError("no_metrics", f"{path} has no {key}")
            body = await self._service.get(onward)
        return of_resource(channel, body)

    # -- A server ----------------------------------------------------------------------------------

    async def _find_chassis(self) -> RedfishChassis:
        """Return the chassis with the supplies, the outermost one."""
        root = await self._service.get(ROOT)
        collection = link(root, "Chassis")
        if collection is None:
            raise PollError("it has no Chassis; set path to the resource with its power")
        paths = members(await self._service.get(collection))[:MOST_CHASSIS]
        found = [one for one in await _all([self._look(path) for path in paths]) if isinstance(one, RedfishChassis)]
        candidates = [one for one in found if one.supplies] or [one for one in found if one.fallbacks]
        outer = [one for one in candidates if not one.contained] or candidates
        if len(outer) != 1:
            names = ", ".join(one.path for one in outer) or "none"
            raise PollError(f"which chassis has the whole machine's power? {names}: set path to it")
        return outer[0]

    async def _look(self, path: str) -> RedfishChassis:
        body = await self._service.get(path)
        return self._describe(path, body, await self._supplies(body))

    @staticmethod
    def _describe(path: str, body: dict[str, Any], supplies: tuple[str, ...]) -> RedfishChassis:
        others = (link(body, "EnvironmentMetrics"), link(body, "Power"))
        return RedfishChassis(
            path,
            supplies,
            tuple(other for other in others if other is not None),
            contained=link(body, "Links", "ContainedBy") is not None,
        )

    async def _supplies(self, body: dict[str, Any]) -> tuple[str, ...]:
        subsystem = link(body, "PowerSubsystem")
        if subsystem is None:
            return ()
        collection = link(await self._service.get(subsystem), "PowerSupplies")
        return tuple(members(await self._service.get(collection))) if collection else ()

    async def _read_chassis(self, chassis: RedfishChassis, channel: str = WHOLE) -> list[MeterSample]:
        """Return the sum of its supplies' inputs, else the chassis' own reading."""
        whole = MeterSample(channel=channel)
        if chassis.supplies:
            bodies = await _all([self._service.get(path) for path in chassis.supplies])
            supplies = [body for body in bodies if isinstance(body, dict)]
            metrics = await _all([self._supply(body) for body in supplies])
            inputs = [one if isinstance(one, list) else [] for one in metrics]
            whole = of_supplies(channel, supplies, inputs)
            if whole.watts is not None and len(supplies) == len(chassis.supplies):
                return [whole]
        for path in chassis.fallbacks:
            samples = of_resource(channel, await self._service.get(path))
            if samples and samples[0].watts is not None:
                flags = tuple(dict.fromkeys((*samples[0].flags, *whole.flags)))
                return [replace(samples[0], flags=flags)]
        raise PollError(f"{chassis.path} reports no power; set path to a resource that does")

    async def _supply(self, body: dict[str, Any]) -> list[MeterSample]:
        path = link(body, "Metrics")
        return [] if path is None else of_resource(WHOLE, await self._service.get(path))

    # -- A distribution unit -----------------------------------------------------------------------

    async def _find_inlet(self) -> str:
        """Return the only inlet of the only unit; several must be configured."""
        if self._inlet is None:
            units = await self._members_of(await self._service.get(EQUIPMENT), "RackPDUs", "FloorPDUs")
            inlets = [
                inlet for unit in units for inlet in await self._members_of(await self._service.get(unit), "Mains")
            ]
            if len(inlets) != 1:
                names = ", ".join(path.removeprefix(f"{EQUIPMENT}/") for path in inlets) or "none"
                raise PollError(f"the inlet is ambiguous ({names}): name it in map")
            self._inlet = inlets[0]
        return self._inlet

    async def _members_of(self, body: dict[str, Any], *keys: str) -> list[str]:
        found: list[str] = []
        for key in keys:
            path = link(body, key)
            if path is not None:
                found += members(await self._service.get(path))
        return found


async def _all(questions: list[Awaitable[Any]]) -> list[Any]:
    """Return every answer; errors of the service are among them."""
    answers = await asyncio.gather(*questions, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, PollError | WireError | OSError):
            raise answer
    return answers
