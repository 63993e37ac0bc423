"""Asks a Redfish service for power: named parts, or the chassis that has the supplies.

What to ask is found out once and kept until something of it is gone; a round then asks only that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Any

from aggregator.meters.poller import Poller, PollError
from aggregator.meters.redfish_service import GoneError, Service
from power.meters.book import Book
from power.meters.redfish import (
    EQUIPMENT,
    ROOT,
    Redfish,
    link,
    members,
    of_resource,
    of_supplies,
    path_of,
    type_of,
)
from power.meters.sample import WHOLE, Sample
from telemetry.errors import WireError

_WAYS = {
    "PowerDistribution": ("Metrics",),
    "PowerSupply": ("Metrics",),
    "PowerSubsystem": (),
    "ComputerSystem": (),
}
"""Resources that tell nothing themselves, and the link that leads to what does."""
MOST_CHASSIS = 200


@dataclass(frozen=True, slots=True)
class Chassis:
    """What tells a chassis' power: its supplies, and what stands in for them."""

    path: str
    supplies: tuple[str, ...] = ()
    fallbacks: tuple[str, ...] = ()
    """EnvironmentMetrics, then the old Power."""
    contained: bool = False


class RedfishPoller(Poller):
    """One service."""

    def __init__(self, config: Redfish, book: Book, now: Callable[[], float]) -> None:
        super().__init__(book, config.timeout, now)
        self._config = config
        self._service = Service(book.meter.name, config)
        self._chassis: Chassis | None = None
        self._inlet: str | None = None
        on_node = [put.kind == "node" for put in book.meter.puts]
        self._is_unit = not any(on_node)

    async def ask(self) -> list[Sample]:
        """One round."""
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
            self._chassis = self._inlet = None  # found out anew next time
            raise

    async def leave(self) -> None:
        """End the session."""
        await self._service.close()

    async def _parts(self) -> list[Sample]:
        """Ask for all parts; what one of them does not tell is no fault of the others."""
        asked = {part: path_of("", part) for part in self._config.map}
        answers = await _all([self._resource(part, path) for part, path in asked.items()])
        good = [sample for answer in answers if not isinstance(answer, Exception) for sample in answer]  # fmt: skip
        bad = [answer for answer in answers if isinstance(answer, Exception)]
        if bad and not good:
            raise bad[0]
        self.partial = "; ".join(str(error) for error in bad)
        return good

    async def _resource(self, channel: str, path: str) -> list[Sample]:
        body = await self._service.get(path)
        kind = type_of(body)
        if kind == "Chassis":
            return await self._read_chassis(self._describe(path, body, await self._supplies(body)), channel)  # fmt: skip
        for key in _WAYS.get(kind, ()):
            onward = link(body, key)
            if onward is None:
                raise WireError("no_metrics", f"{path} has no {key}")
            body = await self._service.get(onward)
        return of_resource(channel, body)

    # -- A server ----------------------------------------------------------------------------------

    async def _find_chassis(self) -> Chassis:
        """Return the chassis with the supplies; it is the one around all others."""
        root = await self._service.get(ROOT)
        collection = link(root, "Chassis")
        if collection is None:
            raise PollError("it has no Chassis; set path to what tells its power")
        paths = members(await self._service.get(collection))[:MOST_CHASSIS]
        found = [one for one in await _all([self._look(path) for path in paths]) if isinstance(one, Chassis)]  # fmt: skip
        telling = [one for one in found if one.supplies] or [one for one in found if one.fallbacks]
        outer = [one for one in telling if not one.contained] or telling
        if len(outer) != 1:
            names = ", ".join(one.path for one in outer) or "none"
            raise PollError(
                f"which chassis tells the whole machine's power? {names}: set path to it"
            )
        return outer[0]

    async def _look(self, path: str) -> Chassis:
        body = await self._service.get(path)
        return self._describe(path, body, await self._supplies(body))

    @staticmethod
    def _describe(path: str, body: dict[str, Any], supplies: tuple[str, ...]) -> Chassis:
        others = (link(body, "EnvironmentMetrics"), link(body, "Power"))
        return Chassis(
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

    async def _read_chassis(self, chassis: Chassis, channel: str = WHOLE) -> list[Sample]:
        """Return the input of its supplies, else what the chassis says of itself."""
        whole = Sample(channel=channel)
        if chassis.supplies:
            bodies = await _all([self._service.get(path) for path in chassis.supplies])
            supplies = [body for body in bodies if isinstance(body, dict)]
            metrics = await _all([self._supply(body) for body in supplies])
            told = [one if isinstance(one, list) else [] for one in metrics]
            whole = of_supplies(channel, supplies, told)
            if whole.watts is not None and len(supplies) == len(chassis.supplies):
                return [whole]
        for path in chassis.fallbacks:
            samples = of_resource(channel, await self._service.get(path))
            if samples and samples[0].watts is not None:
                flags = tuple(dict.fromkeys((*samples[0].flags, *whole.flags)))
                return [replace(samples[0], flags=flags)]
        raise PollError(f"{chassis.path} tells no power; set path to what does")

    async def _supply(self, body: dict[str, Any]) -> list[Sample]:
        path = link(body, "Metrics")
        return [] if path is None else of_resource(WHOLE, await self._service.get(path))

    # -- A distribution unit -----------------------------------------------------------------------

    async def _find_inlet(self) -> str:
        """Return the only inlet of the only unit; more must be named."""
        if self._inlet is None:
            units = await self._members_of(
                await self._service.get(EQUIPMENT), "RackPDUs", "FloorPDUs"
            )
            inlets = [
                inlet
                for unit in units
                for inlet in await self._members_of(await self._service.get(unit), "Mains")
            ]
            if len(inlets) != 1:
                names = ", ".join(path.removeprefix(f"{EQUIPMENT}/") for path in inlets) or "none"
                raise PollError(f"which inlet is it? {names}: say it in map")
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
    """Return every answer, errors of the service among them."""
    answers = await asyncio.gather(*questions, return_exceptions=True)
    for answer in answers:
        if isinstance(answer, BaseException) and not isinstance(answer, PollError | WireError | OSError):  # fmt: skip
            raise answer
    return answers
