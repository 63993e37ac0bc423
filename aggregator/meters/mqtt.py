"""Meters that publish over MQTT: one connection to each broker, messages dispatched by topic."""

from __future__ import annotations

import asyncio
import functools
import logging
import secrets
from collections.abc import Callable, Sequence
from typing import Any

import aiomqtt

from power.meters.base import MqttConfig
from power.meters.meter_record import MeterRecord
from telemetry.errors import BusError, WireError
from telemetry.runtime.backoff import Backoff
from telemetry.runtime.supervision import Supervisor
from telemetry.wire.mqtt import FIRST_PAUSE, LONGEST_PAUSE, BrokerConfig, client_id, connect, pause

log = logging.getLogger(__name__)

LARGEST = 1 << 16
"""Bytes of a message; no meter sends more."""
KEPT = 3 * LARGEST
"""Bytes that are kept of a message with its topic, which takes a third of them at most."""
_FILTERS_AT_ONCE = 64
_ROUTES = 20_000
_UNANSWERED = 3
"""Requests without an answer after which a warning is logged."""


class _Member:
    """One meter on this broker."""

    def __init__(self, record: MeterRecord, reply: str) -> None:
        config = record.meter.config
        assert isinstance(config, MqttConfig)  # noqa: S101 - the hub sorts them
        self.record = record
        self.decoder = config.decoder()
        self.reply = reply
        self.polls = self.decoder.polls(reply)
        self.filters = (*self.decoder.filters(), *([f"{reply}/rpc"] if self.polls else []))
        self.unanswered = 0


class MeterBus:
    """The meters of one broker."""

    def __init__(self, broker: BrokerConfig, records: Sequence[MeterRecord], now: Callable[[], float]) -> None:
        self._broker = broker
        self._now = now
        own = f"kilowatch-meters/{secrets.token_hex(4)}"
        self._members = [_Member(record, f"{own}/{place}") for place, record in enumerate(records)]
        self._filters: dict[str, list[tuple[str, _Member]]] = {}
        """Filters by the part before their wildcard, so that a topic is looked up, not matched against all."""
        for member in self._members:
            for one in member.filters:
                self._filters.setdefault(one.partition("+")[0], []).append((one, member))
        self._routes: dict[str, list[_Member]] = {}

    async def run(self, name: str, supervisor: Supervisor) -> None:
        """Stay connected until cancelled; `supervisor` runs the polling, named after `name`."""
        backoff = Backoff(FIRST_PAUSE, LONGEST_PAUSE)
        loop = asyncio.get_running_loop()
        while True:
            began = loop.time()
            try:
                await self._session(name, supervisor)
            except BusError as error:
                for member in self._members:
                    # Partial states may have been missed meanwhile: what is known is void.
                    member.decoder.forget()
                    member.record.disconnected()
                    member.record.failed(str(error))
                backoff.lasted(loop.time() - began)
                await pause(backoff, f"meters: {error}")

    async def _session(self, name: str, supervisor: Supervisor) -> None:
        async with connect(self._broker, client_id("kilowatch-meters"), longest=KEPT) as client:
            for member in self._members:
                member.record.note("")
            await self._subscribe(client)
            log.info("meters: MQTT broker %s: connected", client.address)
            what = f"polling of {name}"
            work = functools.partial(self._ask, client)
            asking = asyncio.create_task(supervisor.run(what, work, over=lambda: True), name=what)
            try:
                async for message in client.messages:
                    payload = message.payload
                    if isinstance(payload, bytes | bytearray):
                        self.dispatch(str(message.topic), bytes(payload), retained=message.retain)
            finally:
                asking.cancel()
                await asyncio.gather(asking, return_exceptions=True)

    async def _subscribe(self, client: Any) -> None:
        wanted = sorted({one for member in self._members for one in member.filters})
        for start in range(0, len(wanted), _FILTERS_AT_ONCE):
            some = wanted[start : start + _FILTERS_AT_ONCE]
            granted = await client.subscribe([(one, 0) for one in some])
            refused = [one for one, qos in zip(some, granted, strict=True) if int(getattr(qos, "value", qos)) >= 0x80]
            if refused:
                log.error(
                    "MQTT broker %s refuses to let us read %s: allow this user to.", client.address, ", ".join(refused)
                )
            for member in self._members:
                if not set(member.filters).isdisjoint(refused):
                    member.record.note("we may not read its topics: allow this user to at the broker")

    async def _ask(self, client: Any) -> None:
        """Poll each meter in its period, except those that report themselves offline, until the
        connection breaks."""
        loop = asyncio.get_running_loop()
        due = {member.reply: loop.time() for member in self._members if member.polls}
        while due:
            for member in self._members:
                if due.get(member.reply, float("inf")) > loop.time():
                    continue
                due[member.reply] = loop.time() + member.record.meter.config.period
                if member.record.state.online is False:
                    continue
                try:
                    await self._question(client, member)
                except aiomqtt.MqttError:  # the connection is gone; whoever listens on it reports that
                    return
            await asyncio.sleep(max(0.05, min(due.values()) - loop.time()))

    async def _question(self, client: Any, member: _Member) -> None:
        if member.unanswered == _UNANSWERED:
            topic = member.polls[0][0]
            member.record.note(
                f"it does not answer on {topic}: let the device take RPC over MQTT and this user write there, or set poll = false"
            )
            log.warning("meter %s: %s", member.record.meter.name, member.record.state.message)
        member.unanswered += 1
        for topic, payload in member.polls:
            await client.publish(topic, payload, qos=0)

    def dispatch(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        """Dispatch a message to the meters that subscribed to its topic. Never raises."""
        for member in self._route(topic):
            name = member.record.meter.name
            try:
                self._decode(member, topic, payload, retained=retained)
            except WireError as error:
                if member.record.malformed(error.reason, f"{topic}: {error}"):
                    log.warning("meter %s: %s: %s; more of this kind are only counted", name, topic, error)
            except Exception:  # one meter's payload must not stop the others
                log.exception("meter %s: %s could not be read", name, topic)
                member.record.malformed("fault", f"{topic}: a fault of kilowatch; see its log")

    def _decode(self, member: _Member, topic: str, payload: bytes, *, retained: bool) -> None:
        name, now = member.record.meter.name, self._now()
        if len(payload) > LARGEST:
            raise WireError("too_long", f"more than {LARGEST} bytes")
        online = member.decoder.presence(topic, payload)
        if online is not None:
            if not online:
                member.decoder.forget()
            if member.record.presence(online, now):
                log.info("meter %s: %s", name, "online" if online else "offline")
            return
        if retained:
            return  # its age is not known
        if topic == f"{member.reply}/rpc":
            member.unanswered = 0
        for message in member.record.add(member.decoder.samples(topic, payload), now):
            log.warning("meter %s: %s", name, message)

    def _route(self, topic: str) -> list[_Member]:
        found = self._routes.get(topic)
        if found is None:
            if len(self._routes) >= _ROUTES:
                self._routes.clear()
            ends = [place + 1 for place, one in enumerate(topic) if one == "/"]
            near = [pair for end in [*ends, len(topic)] for pair in self._filters.get(topic[:end], [])]
            found = list(dict.fromkeys(member for one, member in near if matches(one, topic)))
            self._routes[topic] = found
        return found


def matches(pattern: str, topic: str) -> bool:
    """Return whether a topic matches a filter with `+` (no filter here has `#`)."""
    if "+" not in pattern:
        return pattern == topic
    want, have = pattern.split("/"), topic.split("/")
    return len(want) == len(have) and all(w in {"+", h} for w, h in zip(want, have, strict=True))
