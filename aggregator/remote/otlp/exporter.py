"""The push of readings and events to a receiver of OTLP, every few seconds."""

from __future__ import annotations

import asyncio
import logging
from typing import NamedTuple

from aggregator.remote.otlp.gather import OtlpGatherer
from aggregator.remote.otlp.names import exported
from aggregator.remote.otlp.transport import Sender, Signal, sender_of
from aggregator.remote.otlp.wire import refused
from aggregator.remote.recipient import Recipient
from aggregator.settings.otlp import OtlpConfig
from aggregator.view import AggregatorView
from telemetry.runtime.http_outcome import HttpOutcome
from telemetry.wire.protobuf import ProtobufError

log = logging.getLogger(__name__)


class Request(NamedTuple):
    """A request that waits."""

    signal: Signal
    body: bytes
    points: int
    """Or records."""


class Exporter:
    """The push to one receiver; `run` it once."""

    def __init__(self, view: AggregatorView, config: OtlpConfig) -> None:
        self._view, self._config = view, config
        self._gatherer = OtlpGatherer(view, exported(config.more))
        self._receiver = Recipient[Request](
            log, f"OTLP: {config.url}", config.waiting_bytes, lambda each: len(each.body)
        )

    async def run(self) -> None:
        """Push until cancelled."""
        async with sender_of(self._config) as sender:
            while True:
                await self._gather(sender)
                await self._send(sender)
                await asyncio.sleep(self._config.every_seconds)

    async def _gather(self, sender: Sender) -> None:
        readings = await self._gatherer.readings()
        events = self._gatherer.events() if self._config.events else []
        at = self._view.wall()

        def requests() -> list[Request]:
            metrics, records = self._gatherer.metrics(readings), self._gatherer.records(events, at)
            return [
                Request(signal, sender.packed(body), count)
                for signal, found in ((Signal.METRICS, metrics), (Signal.LOGS, records))
                for body, count in found
            ]

        for request in await asyncio.to_thread(requests):
            for gone in self._receiver.add(request):
                self._view.stats.otlp_dropped += gone.points

    async def _send(self, sender: Sender) -> None:
        """Send the queue, the oldest first, until a request is to be retried."""
        stats = self._view.stats
        while (request := self._receiver.first) is not None:
            answer = await sender.send(request.signal, request.body)
            if answer.outcome is HttpOutcome.RETRY:
                stats.otlp_errors += 1
                self._receiver.refuses(answer.why)
                return
            self._receiver.pop()
            lost, why = request.points, answer.why
            if answer.outcome is HttpOutcome.DELIVERED:
                lost, why = _lost_of(answer.body)
                lost = min(lost, request.points)
            stats.otlp_sent += request.points - lost
            stats.otlp_dropped += lost
            if lost:
                self._receiver.refuses(why or "it gives no reason")
            else:
                self._receiver.accepts()


def _lost_of(body: bytes) -> tuple[int, str]:
    """Return what a receiver refused of a request that it accepted, and why; none where it answers in a form of its own."""
    try:
        return refused(body)
    except ProtobufError:
        return 0, ""
