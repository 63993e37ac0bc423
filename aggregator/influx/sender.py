"""From the spool to the server, in a thread of its own: nobody waits for it, whatever it does.

`step` does one thing and says when to come again; the thread only waits. What the server refuses for
good is counted by reason; what it can't take now stays in the spool.
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
from aggregator.influx.config import InfluxConfig
from aggregator.influx.response import (
    CONFIG_WAIT,
    WriteAction,
    WriteReply,
    WriteVerdict,
    judge,
)
from aggregator.influx.segments import SpoolRecord
from aggregator.influx.setup import prepare
from aggregator.influx.spool import Spool, SpoolPosition
from telemetry.backoff import Backoff
from telemetry.errors import StoreError

log = logging.getLogger(__name__)

FIRST_WAIT, LONGEST_WAIT = 1.0, 60.0
"""Seconds between two tries of a request."""
SPREAD = (0.75, 1.25)
IDLE = 0.2
"""Seconds between two looks at an empty spool."""
HOPELESS = 8
"""After so many answers of 5xx to one request the next is tried: if the server takes that, and the
first one still not, it is the request and not the server."""
MOST_SPLITS = 64
"""Halves that one request may come to; a body with more bad lines than that is given up."""


@dataclass(slots=True)
class SenderMetrics:
    """What the sender says of itself. Counters only grow."""

    requests: int = 0
    failures: int = 0
    """Requests that came to nothing, and were or will be tried again."""
    delivered: int = 0
    """Points."""
    delivered_bytes: int = 0
    """As sent: gzipped."""
    refused: Counter[str] = field(default_factory=Counter)
    """Points that the server refuses for good, by reason."""
    connected: bool = False
    """Whether the last request was answered as it should."""
    seconds: float = 0.0
    """Spent in requests."""


class _LaterError(Exception):
    """A request is to be tried again."""

    def __init__(self, problem: str, *, wait: float | None = None, fix: bool = False,
                 missing: bool = False, broken: bool = False) -> None:  # fmt: skip
        super().__init__(problem)
        self.wait, self.fix, self.missing, self.broken = wait, fix, missing, broken


class SpoolSender:
    """Delivers one spool to one server."""

    def __init__(
        self,
        config: InfluxConfig,
        spool: Spool,
        *,
        wall: Callable[[], float],
        dice: random.Random | None = None,
    ) -> None:
        self._config = config
        self._client = InfluxClient(config)
        self._spool = spool
        self._wall = wall
        self._backoff = Backoff(FIRST_WAIT, LONGEST_WAIT, SPREAD, dice)
        self._broken = 0
        """Answers of 5xx to the request at the head."""
        self._splits = 0
        self._told: set[str] = set()
        self._thread: threading.Thread | None = None
        self._over = threading.Event()
        self.figures = SenderMetrics()
        self.problem = ""
        """What must be mended, in words; empty while all is well."""

    # -- Life ------------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to deliver."""
        self._thread = threading.Thread(target=self._run, name="influx", daemon=True)
        self._thread.start()

    def stop(self, seconds: float = 2.0) -> None:
        """End; a request under way is broken off, and sent again at the next start."""
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
                log.exception("influxdb: the sender failed; it goes on")
                wait = CONFIG_WAIT
            self._over.wait(wait)
        self._client.close()

    # -- One step --------------------------------------------------------------------------------

    def step(self) -> float:
        """Deliver one request; returns in how many seconds to come again."""
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
            return self._put_off(later)
        finally:
            self._spool.free()
        return 0.0

    def _deliver(self, place: SpoolPosition, record: SpoolRecord) -> None:
        self._splits = 0
        refused = self._send(record.policy, record.body, record.points)
        self._settled(place, record, refused)

    def _settled(self, place: SpoolPosition, record: SpoolRecord, refused: Counter[str]) -> None:
        figures = self.figures
        if self._spool.settle(place):
            figures.refused.update(refused)
            figures.delivered += record.points - refused.total()
            figures.delivered_bytes += len(record.body)
        self._backoff.reset()
        self._broken = 0
        if self.problem:
            log.warning("influxdb: it takes data again; %d points wait", self._spool.points)
        self.problem, figures.connected = "", True

    def _put_off(self, later: _LaterError) -> float:
        self.figures.failures += 1
        self.figures.connected = False
        wait = self._backoff.next()
        if later.missing and self._config.setup and self._made():
            return 0.0
        self._problem(str(later))
        if later.broken:
            self._broken += 1
            if self._broken >= HOPELESS and self._skipped():
                return 0.0
        if later.fix:
            return later.wait or CONFIG_WAIT
        return wait if later.wait is None else later.wait

    def _made(self) -> bool:
        """Make what the server misses; once for each time that it says so."""
        if self._backoff.failures > 1:
            return False
        try:
            prepare(self._client, lambda text: log.warning("influxdb: %s", text))
        except StoreError as error:
            log.warning("influxdb: it can't be set up: %s", error)
            return False
        return True

    def _skipped(self) -> bool:
        """Try the request behind the head: is it the server that fails, or the request?"""
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
                return False  # now it is the server: nobody there, or asked to wait
            # Again, after one that the server took: it is the request.
            if self._spool.settle(place):
                self.figures.refused["server_error"] += record.points
                log.warning("influxdb: %d points are given up: %s", record.points, self.problem)
        self._settled(*behind, refused)
        return True

    # -- Requests --------------------------------------------------------------------------------

    def _send(self, policy: str, body: bytes, points: int) -> Counter[str]:
        """Send lines, in halves if need be; returns what is refused for good. Raises `_LaterError`."""
        answer = self._post(policy, body)
        verdict = judge(answer, points, self._wall())
        match verdict.move:
            case WriteAction.ON:
                self._tell(verdict)
                return verdict.refused
            case WriteAction.SPLIT:
                return self._halves(policy, body, points, verdict)
            case WriteAction.WAIT:
                broken = answer.status >= 500 and answer.status != 503
                broken = broken and "timeout" not in answer.text  # 1.x, when it has too much to do
                raise _LaterError(verdict.problem, wait=verdict.wait, broken=broken)
            case WriteAction.FIX:
                raise _LaterError(verdict.problem, fix=True, missing=verdict.missing)

    def _post(self, policy: str, body: bytes) -> WriteReply:
        figures = self.figures
        figures.requests += 1
        began = time.monotonic()
        try:
            return self._client.write(policy, body)
        except UnreachableError as error:
            raise _LaterError(str(error)) from error
        finally:
            figures.seconds += time.monotonic() - began

    def _halves(self, policy: str, body: bytes, points: int, verdict: WriteVerdict) -> Counter[str]:
        self._splits += 1
        if self._splits > MOST_SPLITS:
            self._tell(verdict)
            return Counter(unparsable=points)
        lines = gzip.decompress(body).splitlines(keepends=True)
        middle = len(lines) // 2
        refused: Counter[str] = Counter()
        for part in (lines[:middle], lines[middle:]):
            if part:
                refused += self._send(policy, gzip.compress(b"".join(part), 1), len(part))
        return refused

    def _tell(self, verdict: WriteVerdict) -> None:
        """Say once in a while why lines are refused, not for every request."""
        for reason in verdict.refused:
            if reason not in self._told:
                self._told.add(reason)
                log.error("influxdb: refuses lines (%s), told once: %s", reason, verdict.problem)

    def _problem(self, text: str) -> None:
        if text != self.problem:
            if not self.problem and not self._over.is_set():
                log.error("influxdb: %s. What comes waits in the spool", text.rstrip("."))
            self.problem = text
