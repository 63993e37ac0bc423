"""The dead-man switch: pings a service outside, which pages when the pings end.

The service must not be on the aggregator's machine. A ping means that the rules were evaluated and
the store was written just now; a process that hangs does not ping.
"""

from __future__ import annotations

import asyncio
import logging

from alerts.config import HeartbeatConfig
from alerts.delivery.channel_stats import ChannelStats
from alerts.delivery.clock import DeliveryClock
from alerts.notifiers import secret
from alerts.notifiers.http_sender import HttpSender, open_sender
from alerts.notifiers.result import Delivered
from telemetry.errors import ConfigError
from telemetry.runtime.isolation import Isolation, PartKind

log = logging.getLogger(__name__)

PARTS = ("rules", "store")
_LEAST_LIMIT = 30.0
_TIMEOUT = 10.0


class Heartbeat:
    """Pings while all parts make progress; `run` it once."""

    def __init__(
        self,
        config: HeartbeatConfig,
        *,
        parts: tuple[str, ...] = PARTS,
        proxy: str = "",
        version: str = "",
        clock: DeliveryClock | None = None,
    ) -> None:
        self._config = config
        self._proxy = proxy
        self._version = version
        self._clock = clock or DeliveryClock()
        self._limit = config.limit or max(config.every, _LEAST_LIMIT)
        self._last = dict.fromkeys(parts, self._clock.monotonic())
        """When each part last made progress. The start counts as progress: it may take a while."""
        self.stats = ChannelStats()
        """`delivered` counts the pings."""
        self._stuck = ""
        self.aside = Isolation(PartKind.DELIVERY)
        """`heartbeat` where the last ping could not be made, by a fault of kilowatch's own."""

    def progress(self, part: str) -> None:
        """Note that a part has made progress: the rules were evaluated, the store has committed."""
        self._last[part] = self._clock.monotonic()

    def stuck(self) -> str:
        """Return the part that makes no progress, or "" while all do."""
        now = self._clock.monotonic()
        return next((part for part, at in self._last.items() if now - at > self._limit), "")

    async def run(self) -> None:
        """Ping until cancelled."""
        async with open_sender(self._proxy, self._version) as sender:
            while True:
                with self.aside.attempt("heartbeat"):
                    await self._beat(sender)
                for reason in self.aside.reasons().values():
                    self._failed(reason)
                await self._clock.wait(asyncio.Event(), self._config.every)

    async def _beat(self, sender: HttpSender) -> None:
        stuck = self.stuck()
        if stuck != self._stuck:
            if stuck:
                log.error("heartbeat: no pings are sent, because there is no progress of: %s", stuck)
            else:
                log.info("heartbeat: pings are sent again")
            self._stuck = stuck
        if stuck:
            return
        config = self._config
        try:
            url = config.url or secret.read("alerts.heartbeat", config.url_file, config.url_env)
        except ConfigError as error:
            self._failed(str(error))
            return
        answer = await sender.get(url, seconds=min(_TIMEOUT, config.every))
        if isinstance(answer, Delivered):
            if self.stats.add_delivered(self._clock.wall()):
                log.info("heartbeat: pings are accepted again")
        else:
            self._failed(answer.reason)

    def _failed(self, reason: str) -> None:
        if self.stats.add_failure(reason, self._clock.monotonic()):
            log.warning("heartbeat: a ping failed: %s", reason)
