"""Fans, power supplies and log of the node's management controller over Redfish (DSP0266), in its two schemas:
ThermalSubsystem and PowerSubsystem, and the Thermal and Power of before.

A controller takes seconds, and its certificate another; so all requests of a reading share one connection and one
limit of time. The resources are found once, and again when one is gone.
"""

from __future__ import annotations

import ssl
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Any, TypeVar

import msgspec

from collector.config import BmcConfig
from collector.host.bmc import SLOW_FAN, counted_fans, counted_supplies
from collector.host.bmc_log import MOST, BmcLogEntry
from collector.host.parts import PartLog
from collector.host.programs import UnknownError
from collector.http.request import HttpRequestError, HttpRequests, RequestReply
from telemetry.errors import ConfigError
from telemetry.notations.redfish import ROOT, SESSIONS, link, members, part, parts, session_path
from telemetry.text.decoders import of_json

LEAVING = 1.0
"""Seconds for the end of the session."""
MOST_CHASSIS = 64
MOST_PAGES = 32
MOST_SINGLE = 64
"""Entries of a log that are asked for one by one, where its service does not list them whole."""
_LOGS = ("sel", "eventlog", "event_log", "iml", "log1", "systemeventlog", "platformlog", "log")
"""Names of the log of the hardware's events, the best first; others are of users, of jobs and of the service."""
_NO_INPUT = frozenset({"LossOfInput", "OutOfRange"})
_AWAY = frozenset({"Absent", "Disabled"})
_SICK = frozenset({"Warning", "Critical"})
Body = dict[str, Any]
T = TypeVar("T")


class ResourceGoneError(Exception):
    """There is no such resource."""


@dataclass(slots=True)
class RedfishPlaces:
    """The resources of a service that are read."""

    fans: list[str] = field(default_factory=list)
    """Collections of fans."""
    thermals: list[str] = field(default_factory=list)
    """Resources of the older schema."""
    supplies: list[str] = field(default_factory=list)
    powers: list[str] = field(default_factory=list)
    log: str | None = None
    """Collection of the entries."""
    log_size: float | None = None
    """Entries that the log takes before it loses new ones; None where it overwrites old ones, or does not say."""


class RedfishBmc:
    """Reader of one controller. Its methods are called in a thread, one after another; all raise `UnknownError` for
    what the controller does not have, `PermissionError`, `TimeoutError`, `OSError` and `ValueError`."""

    def __init__(self, config: BmcConfig, log: PartLog | None = None) -> None:
        """`log`: takes the events of single fans and supplies."""
        self._config = config
        self._log = log or PartLog()
        self._token: str | None = None
        self._session: str | None = None
        self._places: RedfishPlaces | None = None
        self._expands = False
        self._trust: ssl.SSLContext | None = None

    def fans(self) -> dict[str, float]:
        """Return the fans that are there, and those that stand or are much slower than the others."""
        return self._read(self._fans)

    def supplies(self) -> dict[str, float]:
        """Return the power supplies that are there, and those that failed."""
        return self._read(self._supplies)

    def entries(self) -> tuple[list[BmcLogEntry], float | None]:
        """Return the entries of the log, and the used share of it."""
        return self._read(self._entries)

    def close(self) -> None:
        """End the session, within a second: a controller has few."""
        if self._token is None:
            return
        try:
            with HttpRequests(self._config.url, LEAVING, self._trust) as requests:
                if self._session is not None:
                    requests.ask(self._session, method="DELETE", headers=self._headers())
        except (HttpRequestError, OSError):
            pass  # it ends by itself after a while
        self._token = self._session = None

    def _read(self, what: Callable[[HttpRequests, RedfishPlaces], T]) -> T:
        try:
            with self._connected() as requests:
                if self._places is None:
                    self._places = self._find(requests)
                return what(requests, self._places)
        except ResourceGoneError as error:
            self._places = None  # found again next time
            raise OSError(f"there is no {error}") from error
        except ConfigError as error:  # the file of the password
            raise PermissionError(str(error)) from error
        except HttpRequestError as error:
            if error.late:
                raise TimeoutError(str(error)) from error
            raise OSError(str(error)) from error
        except msgspec.DecodeError as error:
            raise ValueError(f"the controller does not answer in JSON: {error}") from error

    # ---- requests ----

    def _connected(self) -> HttpRequests:
        config = self._config
        if self._trust is None and config.url.startswith("https:"):
            self._trust = ssl.create_default_context(cafile=config.ca_file)
            if not config.verify:
                self._trust.check_hostname = False
                self._trust.verify_mode = ssl.CERT_NONE
        return HttpRequests(config.url, config.timeout, self._trust)

    def _get(self, requests: HttpRequests, path: str, *, whole: bool = False) -> Body:
        """Return a resource; `whole`: a collection with its members in it, where the service can."""
        expanded = f"{path}?$expand=.($levels=1)" if whole and self._expands else path
        if self._token is None and self._config.login == "session" and self._config.username:
            self._log_in(requests)
        answer = requests.ask(expanded, headers=self._headers())
        if answer.status == 401 and self._token is not None:
            self._log_in(requests)  # sessions end by themselves after a while
            answer = requests.ask(expanded, headers=self._headers())
        return self._body(path, answer)

    @staticmethod
    def _body(path: str, answer: RequestReply) -> Body:
        match answer.status:
            case 200:
                return of_json(dict[str, Any]).decode(answer.body)
            case 401 | 403:
                raise PermissionError(f"{path}: it refuses us ({answer.status})")
            case 404 | 410:
                raise ResourceGoneError(path)
            case _:
                raise OSError(f"{path}: it answers {answer.status}")

    def _headers(self) -> dict[str, str]:
        config = self._config
        headers = {"Accept": "application/json", "OData-Version": "4.0"}
        if self._token is not None:
            return headers | {"X-Auth-Token": self._token}
        if config.username and config.login == "basic":
            return headers | {"Authorization": config.basic()}
        return headers

    def _log_in(self, requests: HttpRequests) -> None:
        config = self._config
        name = {"UserName": config.username, "Password": config.password()}
        self._token = self._session = None
        answer = requests.ask(
            SESSIONS,
            method="POST",
            body=msgspec.json.encode(name),
            headers={"Accept": "application/json", "Content-Type": "application/json", "OData-Version": "4.0"},
        )
        token = answer.headers.get("X-Auth-Token")
        if answer.status not in {200, 201} or not token:
            raise PermissionError(f"it gives us no session ({answer.status})")
        self._token, self._session = token, session_path(answer.headers.get("Location", ""))

    def _members(self, requests: HttpRequests, path: str) -> Iterator[Body]:
        """Yield the members of a collection, of all its pages."""
        place: str | None = path
        for _ in range(MOST_PAGES):
            if place is None:
                return
            body = self._get(requests, place, whole=place == path)
            single = 0
            for member in parts(body, "Members"):
                onward = link({"it": member}, "it")
                if len(member) > 1 or onward is None:
                    yield member
                elif single < MOST_SINGLE:
                    single += 1
                    yield self._get(requests, onward)
            following = body.get("Members@odata.nextLink")
            place = link({"it": {"@odata.id": following}}, "it")

    # ---- places ----

    def _find(self, requests: HttpRequests) -> RedfishPlaces:
        root = self._get(requests, ROOT)
        expand = part(part(root, "ProtocolFeaturesSupported"), "ExpandQuery")
        self._expands = expand.get("NoLinks") is True
        places = RedfishPlaces()
        for chassis in self._bodies(requests, root, "Chassis"):
            if (thermal := link(chassis, "ThermalSubsystem")) is not None:
                fans = link(self._get(requests, thermal), "Fans")
                places.fans += [fans] if fans else []
            elif (thermal := link(chassis, "Thermal")) is not None:
                places.thermals.append(thermal)
            if (power := link(chassis, "PowerSubsystem")) is not None:
                supplies = link(self._get(requests, power), "PowerSupplies")
                places.supplies += [supplies] if supplies else []
            elif (power := link(chassis, "Power")) is not None:
                places.powers.append(power)
        self._find_log(requests, root, places)
        return places

    def _find_log(self, requests: HttpRequests, root: Body, places: RedfishPlaces) -> None:
        best = len(_LOGS)
        for kind in ("Managers", "Systems"):
            for owner in self._bodies(requests, root, kind):
                for service in self._bodies(requests, owner, "LogServices"):
                    name = str(service.get("Id", "")).lower()
                    rank = 0 if service.get("LogEntryType") == "SEL" else best
                    rank = _LOGS.index(name) if name in _LOGS else rank
                    entries = link(service, "Entries")
                    if rank < best and entries is not None:
                        best, places.log = rank, entries
                        most = service.get("MaxNumberOfRecords")
                        loses = service.get("OverWritePolicy") == "NeverOverWrites"
                        places.log_size = float(most) if isinstance(most, int) and most > 0 and loses else None

    def _bodies(self, requests: HttpRequests, owner: Body, key: str) -> Iterator[Body]:
        """Yield the members of a collection that a resource links to, at most `MOST_CHASSIS`."""
        collection = link(owner, key)
        if collection is not None:
            for path in members(self._get(requests, collection))[:MOST_CHASSIS]:
                yield self._get(requests, path)

    # ---- readings ----

    def _fans(self, requests: HttpRequests, places: RedfishPlaces) -> dict[str, float]:
        speeds: dict[str, list[float]] = defaultdict(list)
        found: list[tuple[str, bool, str, float | None]] = []
        for body in self._devices(requests, places.fans, places.thermals, "Fans"):
            unit, speed = _speed(body)
            if speed is not None:
                speeds[unit].append(speed)
            sick = part(body, "Status").get("Health") == "Critical"
            found.append((_name(body), sick, unit, speed))
        if not found:
            raise UnknownError("no fan")
        least = {unit: SLOW_FAN * median(each) for unit, each in speeds.items()}
        well = [(name, not sick and (speed is None or speed >= least[unit])) for name, sick, unit, speed in found]
        return counted_fans(well, self._log)

    def _supplies(self, requests: HttpRequests, places: RedfishPlaces) -> dict[str, float]:
        found = [
            (_name(body), not _supply_failed(body))
            for body in self._devices(requests, places.supplies, places.powers, "PowerSupplies")
        ]
        if not found:
            raise UnknownError("no power supply")
        return counted_supplies(found, self._log)

    def _devices(self, requests: HttpRequests, collections: list[str], older: list[str], key: str) -> Iterator[Body]:
        """Yield the devices that are there, of either schema."""
        for path in collections:
            yield from (one for one in self._members(requests, path) if _is_there(one))
        for path in older:
            yield from (one for one in parts(self._get(requests, path), key) if _is_there(one))

    def _entries(self, requests: HttpRequests, places: RedfishPlaces) -> tuple[list[BmcLogEntry], float | None]:
        if places.log is None:
            raise UnknownError("no log of the hardware")
        found: list[BmcLogEntry] = []
        for body in self._members(requests, places.log):
            found.append(_entry(body))
            if len(found) >= MOST:
                break
        share = None if places.log_size is None else min(1.0, len(found) / places.log_size)
        return found, share


def _is_there(body: Mapping[str, Any]) -> bool:
    status = body.get("Status")
    return not (isinstance(status, dict) and status.get("State") in _AWAY)


def _supply_failed(body: Body) -> bool:
    status = part(body, "Status")
    return (
        status.get("Health") in _SICK
        or status.get("State") == "UnavailableOffline"
        or body.get("LineInputStatus") in _NO_INPUT
    )


def _name(body: Body) -> str:
    """Return the name of a part; "" where it has none."""
    return str(body.get("Name") or body.get("FanName") or body.get("MemberId") or "")[:60]


def _speed(body: Body) -> tuple[str, float | None]:
    """Return the unit and the speed of a fan; only speeds of one unit are compared."""
    excerpt = part(body, "SpeedPercent")
    for unit, value in (
        ("RPM", excerpt.get("SpeedRPM")),
        ("Percent", excerpt.get("Reading")),
        (str(body.get("ReadingUnits", "RPM")), body.get("Reading")),
    ):
        if isinstance(value, int | float) and not isinstance(value, bool):
            return unit, float(value)
    return "", None


def _entry(body: Body) -> BmcLogEntry:
    at = str(body.get("Created", ""))[:40]
    text = str(body.get("Message") or body.get("MessageId") or body.get("Name") or "an entry")[:300]
    critical = body.get("Severity") == "Critical" and body.get("Resolved") is not True
    origin = link(part(body, "Links"), "OriginOfCondition") or ""
    return BmcLogEntry(f"{body.get('Id', '')} {at}"[:100], at, text, critical, origin.rpartition("/")[2][:60])
