"""From the spool to the server, in a thread of its own, for which nothing waits.

`step` sends one request and returns when to send the next; the thread only waits. Lines that the server
refuses for good are counted by reason; all others stay in the spool until the server accepts them.
"""

from __future__ import annotations

import gzip
import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from aggregator.influx.client import InfluxClient, UnreachableError
from aggregator.influx.response import CONFIG_WAIT, ServerReply, WriteAction, WriteVerdict, evaluate
from aggregator.influx.segments import SpoolRecord
from aggregator.influx.setup import prepare
from aggregator.influx.spool import Spool, SpoolPosition
from aggregator.settings.influx import InfluxConfig
from telemetry.errors import StoreError
from telemetry.runtime.backoff import Backoff

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds between two tries of a request."""
SPREAD = (0.75, 1.25)
IDLE = 0.2
"""Seconds between two checks of an empty spool."""
HOPELESS = 8
"""After so many replies of 5xx to one request the next is tried: if the server accepts that, and still
not the first, the fault is in the request and not the server."""
MOST_SPLITS = 64
"""Most splits of one request; a body with more bad lines than that is given up."""


@dataclass(slots=True)
class SenderMetrics:
    """Counters of the sender; they only grow."""

    requests: int = 0
    failures: int = 0
    """Requests that failed, and were or will be sent again."""
    delivered: int = 0
    """Points."""
    delivered_bytes: int = 0
    """As sent: gzipped."""
    refused: Counter[str] = field(default_factory=Counter)
    """Points that the server refuses for good, by reason."""
    connected: bool = False
    """Whether the last request was accepted."""
    seconds: float = 0.0
    """Time spent in requests."""


class _LaterError(Exception):
    """A request is to be sent again."""

    def __init__(
        self, problem: str, *, wait: float | None = None, fix: bool = False, missing: bool = False, broken: bool = False
    ) -> None:
        super().__init__(problem)
        self.wait, self.fix, self.missing, self.broken = wait, fix, missing, broken


class SpoolSender:
    """Delivers one spool to one server."""

    def __init__(
        self, config: InfluxConfig, spool: Spool, *, wall: Callable[[], float], dice: random.Random | None = None
    ) -> None:
        self._config = config
        self._client = InfluxClient(config)
        self._spool = spool
        self._wall = wall
        self._backoff = Backoff(FIRST_WAIT, LONGEST_WAIT, SPREAD, dice)
        self._broken = 0
        """Replies of 5xx to the request at the head."""
        self._splits = 0
        self._reported: set[str] = set()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self.metrics = SenderMetrics()
        self.problem = ""
        """The present problem, in words; empty while the server accepts data."""

    # -- Lifecycle -------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="influx", daemon=True)
        self._thread.start()

    def revive(self) -> None:
        """Start the thread again if it has died."""
        if self._thread is None or self._thread.is_alive() or self._over.is_set():
            return
        log.error("influxdb: the sender's thread has died; it is started again")
        self.start()

    def stop(self, seconds: float = 2.0) -> None:
        """End the thread; a request under way is aborted, and sent again at the next start."""
        self._over.set()
        self._client.interrupt()
        if self._thread is None:
            self._client.close()
        else:
            self._thread.join(seconds)

    def _run(self) -> None:
        while not self._over.is_set():
            try:
                wait = self.step()
            except Exception:
                log.exception("influxdb: the sender failed; it continues")
                wait = CONFIG_WAIT
            self._over.wait(wait)
        self._client.close()

    # -- One step --------------------------------------------------------------------------------

    def step(self) -> float:
        """Deliver one request; return in how many seconds to deliver the next."""
        try:
            found = self._spool.head()
        except StoreError as error:
            self._problem(str(error))
            return CONFIG_WAIT
        if found is None:
            return IDLE
        place, record = found
        try:
            self._deliver(place, record)
        except _LaterError as later:
            return self._postpone(later)
        finally:
            self._spool.free()
        return 0.0

    def _deliver(self, place: SpoolPosition, record: SpoolRecord) -> None:
        self._splits = 0
        refused = self._send(record.policy, record.body, record.points)
        self._note_delivered(place, record, refused)

    def _note_delivered(self, place: SpoolPosition, record: SpoolRecord, refused: Counter[str]) -> None:
        metrics = self.metrics
        if self._spool.settle(place):
            metrics.refused.update(refused)
            metrics.delivered += record.points - refused.total()
            metrics.delivered_bytes += len(record.body)
        self._backoff.reset()
        self._broken = 0
        if self.problem:
            log.warning("influxdb: it accepts data again; %d points wait", self._spool.points)
        self.problem, metrics.connected = "", True

    def _postpone(self, later: _LaterError) -> float:
        self.metrics.failures += 1
        self.metrics.connected = False
        wait = self._backoff.next()
        if later.missing and self._config.setup and self._set_up():
            return 0.0
        self._problem(str(later))
        if later.broken:
            self._broken += 1
            if self._broken >= HOPELESS and self._try_next():
                return 0.0
        if later.fix:
            return later.wait or CONFIG_WAIT
        return wait if later.wait is None else later.wait

    def _set_up(self) -> bool:
        """Create a missing database or policy; once each time that the server reports it."""
        if self._backoff.failures > 1:
            return False
        try:
            prepare(self._client, lambda text: log.warning("influxdb: %s", text))
        except StoreError as error:
            log.warning("influxdb: it can't be set up: %s", error)
            return False
        return True

    def _try_next(self) -> bool:
        """Try the request behind the head, to find out whether the server fails or the request."""
        head, behind = self._spool.head(), self._spool.head(1)
        if head is None or behind is None:
            return False
        try:
            refused = self._send(behind[1].policy, behind[1].body, behind[1].points)
        except _LaterError:
            return False
        place, record = head
        try:
            self._deliver(place, record)
        except _LaterError as later:
            if not later.broken:
                return False  # now it is the server: away, or busy
            # It fails again, after one that the server accepted: it is the request.
            if self._spool.settle(place):
                self.metrics.refused["server_error"] += record.points
                log.warning("influxdb: %d points are given up: %s", record.points, self.problem)
        self._note_delivered(*behind, refused)
        return True

    # -- Requests --------------------------------------------------------------------------------

    def _send(self, policy: str, body: bytes, points: int) -> Counter[str]:
        """Send lines, in halves if need be; return those refused for good, by reason. Raises `_LaterError`."""
        reply = self._post(policy, body)
        verdict = evaluate(reply, points, self._wall())
        match verdict.action:
            case WriteAction.ON:
                self._report(verdict)
                return verdict.refused
            case WriteAction.SPLIT:
                return self._halves(policy, body, points, verdict)
            case WriteAction.WAIT:
                broken = reply.status >= 500 and reply.status != 503
                broken = broken and "timeout" not in reply.text  # 1.x, when it has too much to do
                raise _LaterError(verdict.problem, wait=verdict.wait, broken=broken)
            case WriteAction.FIX:
                raise _LaterError(verdict.problem, fix=True, missing=verdict.missing)

    def _post(self, policy: str, body: bytes) -> ServerReply:
        metrics = self.metrics
        metrics.requests += 1
        began = time.monotonic()
        try:
            return self._client.write(policy, body)
        except UnreachableError as error:
            raise _LaterError(str(error)) from error
        finally:
            metrics.seconds += time.monotonic() - began

    def _halves(self, policy: str, body: bytes, points: int, verdict: WriteVerdict) -> Counter[str]:
        self._splits += 1
        if self._splits > MOST_SPLITS:
            self._report(verdict)
            return Counter(unparsable=points)
        lines = gzip.decompress(body).splitlines(keepends=True)
        middle = len(lines) // 2
        refused: Counter[str] = Counter()
        for part in (lines[:middle], lines[middle:]):
            if part:
                refused += self._send(policy, gzip.compress(b"".join(part), 1), len(part))
        return refused

    def _report(self, verdict: WriteVerdict) -> None:
        """Log once by reason why lines are refused, not for every request."""
        for reason in verdict.refused:
            if reason not in self._reported:
                self._reported.add(reason)
                log.error("influxdb: refuses lines (%s), reported once: %s", reason, verdict.problem)

    def _problem(self, text: str) -> None:
        if text != self.problem:
            if not self.problem and not self._over.is_set():
                log.error("influxdb: %s. New data waits in the spool", text.rstrip("."))
            self.problem = text
