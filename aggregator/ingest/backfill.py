"""Backfill: which missing frames to request now. Decides, and sends nothing itself.

New frames come first: only so many requests are under way at a time, each for so many frames, and
none while the store can't keep up (`paused`). Unanswered requests are repeated with growing pauses. A
frame that a node reports as sent, alone, and that never arrives readable is given up: one bad record
must not hold up the rest forever.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from itertools import count, islice

from aggregator.config import BackfillConfig
from aggregator.ingest.ledger import SessionAccount
from aggregator.store.protocol import Hole
from telemetry.runtime.backoff import STEADY, Backoff
from telemetry.wire.inventory import Command, CommandKind, CommandReply

DENSITY = 4
"""A request spans neighbouring holes while at least one frame in four of it is missing: a frame sent
twice costs less than a request."""
MOST_GONE = 1024
"""Spans of one answer that count: a request is of fewer frames."""
GIVE_UP_AFTER = 12
"""Answers in a row without a new frame, the last ones to requests for a single frame."""


@dataclass(frozen=True, slots=True)
class NodeCommand:
    """A command to send to a node."""

    node: str
    command: Command


@dataclass(slots=True)
class _Request:
    first: int
    last: int
    deadline: float
    missing: int
    """How many of these were missing at the request."""


@dataclass(slots=True)
class _Effort:
    """The state of the requests for one account."""

    due: float
    tries: int = 0
    """Requests in a row without a new frame."""
    barren: int = 0
    """The answered ones among them."""


class BackfillPlanner:
    """Requests under way and to come."""

    def __init__(self, config: BackfillConfig) -> None:
        self._config = config
        self._backoff = Backoff(config.first_wait_seconds, config.longest_wait_seconds, STEADY)
        self._efforts: dict[SessionAccount, _Effort] = {}
        self._asked: dict[SessionAccount, _Request] = {}
        self._heap: list[tuple[float, int, SessionAccount]] = []
        self._order = count()
        self.share = 1.0
        """Share of `nodes_at_once` that may be under way; 0 while the store is behind."""

    @property
    def paused(self) -> bool:
        """Whether nothing is requested."""
        return self.share <= 0

    def wake(self, accounts: Iterable[SessionAccount], now: float) -> None:
        """Schedule accounts that have become incomplete, or whose node is back."""
        for account in accounts:
            if account.missing and account not in self._efforts:
                self._schedule(account, _Effort(0.0), now + self._config.grace_seconds)

    def plan(self, ready: Callable[[str], bool], now: float) -> list[NodeCommand]:
        """Return the requests to send now; `ready`: whether a node can answer and be understood."""
        self._expire(now)
        asks: list[NodeCommand] = []
        most = 0 if self.paused else max(1, round(self.share * self._config.nodes_at_once))
        while self._heap and self._heap[0][0] <= now and len(self._asked) < most:
            due, _, account = heapq.heappop(self._heap)
            effort = self._efforts.get(account)
            if effort is None or effort.due != due or account in self._asked:
                continue
            if not account.missing or not ready(account.node):
                del self._efforts[account]  # `wake` schedules it again
                continue
            first, last = self._range(account, effort)
            missing = _missing(account, first, last)
            self._asked[account] = _Request(first, last, now + self._wait(effort), missing)
            command = Command(kind=CommandKind.RESEND, about=account.session, first=first, last=last)
            asks.append(NodeCommand(account.node, command))
        return asks

    def remove(self, accounts: Iterable[SessionAccount]) -> None:
        """Forget the requests for accounts that are no longer there."""
        for account in accounts:
            self._efforts.pop(account, None)
            self._asked.pop(account, None)

    def replied(self, account: SessionAccount, reply: CommandReply, now: float, most: int = MOST_GONE) -> list[Hole]:
        """Apply a node's answer, which comes after its frames; return the frames that are lost for good.
        `most`: how many spans of `gone` count; the others are requested again."""
        holes: list[Hole] = []
        for span in islice(reply.gone, most):
            if span.session == account.session:
                # No further than the request: a node can't declare its future lost.
                last = min(span.last, reply.last, account.end)
                holes += account.lose(span.first, last, "gone")
        request = self._asked.get(account)
        if request is None or (reply.first, reply.last) != (request.first, request.last):
            return holes
        del self._asked[account]
        effort = self._efforts[account]
        if _missing(account, request.first, request.last) < request.missing:
            self._schedule(account, _Effort(0.0), now)
            return holes
        wait = self._wait(effort)
        effort.tries += 1
        if reply.sent and not self.paused:
            effort.barren += 1
            if effort.barren >= GIVE_UP_AFTER and request.first == request.last:
                holes += account.lose(request.first, request.last, "unreadable")
                effort.tries = effort.barren = 0
                wait = 0.0
        self._schedule(account, effort, now + wait)
        return holes

    def _expire(self, now: float) -> None:
        for account, request in list(self._asked.items()):
            if request.deadline <= now:
                del self._asked[account]
                effort = self._efforts[account]
                left = _missing(account, request.first, request.last)
                effort.tries = 0 if left < request.missing else effort.tries + 1
                self._schedule(account, effort, now)

    def _schedule(self, account: SessionAccount, effort: _Effort, due: float) -> None:
        effort.due = due
        self._efforts[account] = effort
        heapq.heappush(self._heap, (due, next(self._order), account))

    def _wait(self, effort: _Effort) -> float:
        return self._backoff.after(effort.tries + 1)

    def _range(self, account: SessionAccount, effort: _Effort) -> tuple[int, int]:
        """Return the span to request: the oldest missing frames, with neighbours where that saves a
        request."""
        most = max(1, self._config.frames_per_request >> effort.barren)
        spans = account.spans()
        first, last = spans[0]
        last = min(last, first + most - 1)
        wanted = last - first + 1
        for begin, end in spans[1:]:
            stop = min(end, first + most - 1)
            if stop < begin or (stop - first + 1) > DENSITY * (wanted + stop - begin + 1):
                break
            wanted += stop - begin + 1
            last = stop
        return first, last


def _missing(account: SessionAccount, first: int, last: int) -> int:
    return sum(end - begin + 1 for begin, end in account.have.missing(first, last))
