"""The ledger: which frames of each node's sessions are accounted for, and which are missing.

A frame is accounted for when it is in memory on its way to the store, stored, or recorded as lost.
It is missing when it must exist (a higher number came, or the node's ring holds it) and is none of
these. Only committed frames survive a restart: the ledger is then made again from the store, and
frames that were in memory are missing and requested again. Pure: no clock, no I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from aggregator.store.protocol import Hole
from telemetry.wire.intervals import IntervalSet
from telemetry.wire.inventory import FrameSpan


class SessionAccount:
    """The frames of one session of one node."""

    __slots__ = ("_ledger", "end", "have", "missing", "node", "run", "session", "since")

    def __init__(self, ledger: FrameLedger, node: str, session: int, run: int = -1) -> None:
        self._ledger = ledger
        self.node = node
        self.session = session
        self.run = run
        """The number under which the store knows this session; -1 before its first frame."""
        self.since = 0.0
        """When it was begun, monotonic seconds."""
        self.have = IntervalSet()
        """Accounted for: in memory, stored or lost."""
        self.end = -1
        """Highest number that is known to exist."""
        self.missing = 0
        """How many of 0 to `end` are not in `have`."""

    def receive(self, seq: int) -> bool:
        """Account for a frame that came; False when it is accounted for already."""
        if not self.have.add(seq):
            return False
        end = self.end
        if seq == end + 1:
            self.end = seq
        elif seq > end:
            self._open(seq - end - 1)
            self.end = seq
        else:
            self._found(1)
        return True

    def exists(self, last: int) -> None:
        """Note that the frames up to `last` exist somewhere."""
        if last > self.end:
            self._open(last - self.end)
            self.end = last

    def lose(self, first: int, last: int, reason: str) -> list[Hole]:
        """Account for missing frames as lost; return what was not accounted for before."""
        self.exists(last)
        holes = []
        for begin, end in self.have.missing(max(0, first), last):
            self.have.add_span(begin, end)
            self._found(end - begin + 1)
            holes.append(Hole(self.node, self.session, begin, end, reason))
        return holes

    def settle(self, spans: Iterable[tuple[int, int]]) -> None:
        """Account for frames that another aggregator has stored."""
        for first, last in spans:
            self.lose(first, last, "")

    def forget(self, seq: int) -> None:
        """Undo `receive`: the frame was dropped from memory before it was stored."""
        if self.have.remove(seq):
            self._open(1)

    def reopen(self, first: int, last: int) -> None:
        """Note that the store has lost frames: those that were accounted for are missing again."""
        count = self.have.remove_span(first, last)
        if count:
            self._open(count)

    def spans(self) -> list[tuple[int, int]]:
        """Return the missing spans, oldest first."""
        return self.have.missing(0, self.end) if self.missing else []

    def move(self, ledger: FrameLedger) -> None:
        """Make it one of another ledger."""
        self._ledger.missing -= self.missing
        self._ledger = ledger
        ledger.missing += self.missing

    def _open(self, count: int) -> None:
        self.missing += count
        self._ledger.missing += count
        self._ledger.opened.append(self)

    def _found(self, count: int) -> None:
        self.missing -= count
        self._ledger.missing -= count


class FrameLedger:
    """The accounts of all nodes."""

    def __init__(self) -> None:
        self._nodes: dict[str, dict[int, SessionAccount]] = {}
        self.missing = 0
        """Frames that are missing over the fleet."""
        self.opened: list[SessionAccount] = []
        """Accounts in which frames have become missing since this list was last emptied; an
        account may be in it twice."""

    def sessions(self, node: str) -> dict[int, SessionAccount]:
        """Return the accounts of a node, by session."""
        return self._nodes.setdefault(node, {})

    def account(self, node: str, session: int, run: int = -1) -> SessionAccount:
        """Return a session's account, a new one if need be."""
        sessions = self.sessions(node)
        found = sessions.get(session)
        if found is None:
            found = sessions[session] = SessionAccount(self, node, session, run)
        return found

    def remove(self, node: str) -> None:
        """Remove the accounts of a node."""
        other = FrameLedger()
        for account in self._nodes.pop(node, {}).values():
            account.move(other)

    def find(self, node: str, session: int) -> SessionAccount | None:
        """Return a session's account if there is one."""
        return self._nodes.get(node, {}).get(session)

    def of(self, node: str) -> Iterable[SessionAccount]:
        """Return the accounts of a node's sessions."""
        return list(self._nodes.get(node, {}).values())

    def __iter__(self) -> Iterator[SessionAccount]:
        for sessions in self._nodes.values():
            yield from sessions.values()

    def restore(self, account: SessionAccount, stored: IntervalSet) -> None:
        """Begin an account with what the store has committed."""
        account.have = IntervalSet(stored)
        account.end = stored.end
        missing = stored.end + 1 - len(stored)
        self.missing += missing - account.missing
        account.missing = missing
        if account.missing:
            self.opened.append(account)

    def ring(self, node: str, current: int, spans: Mapping[int, FrameSpan]) -> list[Hole]:
        """Compare a node's accounts with what its ring holds, `spans` by session.

        Frames that the ring has not any more and that did not arrive are lost. A session that the ring does not
        name is gone from it altogether, but for the current one, whose first frame may be to come.
        Every session in `spans` must have an account.
        """
        holes: list[Hole] = []
        for account in self.of(node):
            span = spans.get(account.session)
            if span is not None:
                account.exists(span.last)
                holes += account.lose(0, span.first - 1, "ring_overflow")
            elif account.session != current and account.missing:
                holes += account.lose(0, account.end, "ring_overflow")
        return holes
