"""Polling of one meter: each round has a deadline, and no failure leaves this module."""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import Callable

from power.meters.meter_record import MeterRecord
from power.meters.sample import MeterSample
from telemetry.errors import KilowattError, WireError
from telemetry.runtime.backoff import STEADY, Backoff

log = logging.getLogger(__name__)

LONGEST_PAUSE = 60.0
"""Longest pause before a meter that does not answer is polled again, seconds."""


class PollError(KilowattError):
    """A wrong or missing answer of a meter; the message has the remedy."""


class Poller:
    """Base of meters that must be polled."""

    def __init__(self, record: MeterRecord, timeout: float, now: Callable[[], float]) -> None:
        self.record = record
        self._timeout = timeout
        self._now = now
        self.partial = ""
        """Errors of some parts in a round that succeeded for others."""

    async def ask(self) -> list[MeterSample]:
        """Return the samples of one round. Raises `PollError`, `WireError` or `OSError`."""
        raise NotImplementedError

    async def leave(self) -> None:
        """Close the connection; must not hang."""

    async def run(self) -> None:
        """Poll until cancelled."""
        period = self.record.meter.config.period
        # Spread the meters over the period.
        await asyncio.sleep(period / 10 * (zlib.crc32(self.record.meter.name.encode()) % 100) / 100)
        backoff = Backoff(period, max(period, LONGEST_PAUSE), STEADY)
        loop = asyncio.get_running_loop()
        try:
            while True:
                began = loop.time()
                if await self._round():
                    backoff.reset()
                    pause = period
                else:
                    pause = backoff.next()
                await asyncio.sleep(max(0.1, began + pause - loop.time()))
        finally:
            await self.leave()

    async def _round(self) -> bool:
        record, name = self.record, self.record.meter.name
        try:
            async with asyncio.timeout(self._timeout):
                samples = await self.ask()
        except TimeoutError:
            first = record.failed(f"no answer within {self._timeout:g} s")
        except WireError as error:
            first = record.malformed(error.reason, f"{error}")
        except (PollError, OSError) as error:
            first = record.failed(f"{error}" or type(error).__name__)
        except Exception:  # a fault in here must not stop the other meters
            log.exception("meter %s: this round failed", name)
            record.failed("a fault of kilowatch; see its log")
            first = False
        else:
            for message in record.add(samples, self._now()):
                log.warning("meter %s: %s", name, message)
            self._report_partial()
            return True
        await self.leave()
        if first:
            log.warning("meter %s (%s): %s", name, record.state.where, record.state.message)
        return False

    def _report_partial(self) -> None:
        partial, self.partial = self.partial, ""
        if partial and self.record.malformed(partial, partial):
            log.warning("meter %s: %s", self.record.meter.name, partial)
