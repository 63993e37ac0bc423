"""Health in a thread of its own: what judges the event loop does not wait for it.

The thread accepts the connections of the listener. A plain request for `/healthz` or `/readyz` it answers
itself, all other connections go to the loop, which answers them as if it had accepted them. So a supervisor has
its answer while the loop works through a burst, and learns that the loop stands still from an answer
rather than from silence. Under TLS the loop answers all: what a connection asks for is not seen before.
"""

from __future__ import annotations

import contextlib
import logging
import re
import selectors
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from email.utils import formatdate
from http import HTTPStatus
from typing import NamedTuple

from aggregator.access.guests import neighbourhood
from aggregator.http.auth import SECURITY_HEADERS

log = logging.getLogger(__name__)

LONGEST_HEAD = 8192
"""Bytes of a request that are looked at."""
FIRST_SECONDS = 0.2
"""Seconds in which a new connection must ask for health; then it goes to the loop."""
MOST_HELD, MOST_HELD_EACH = 128, 16
"""Connections that the thread keeps, in all and for each address; others go to the loop."""
MOST_PASSED = 256
"""Connections that may wait for the loop; further ones wait in the kernel."""
REST_SECONDS = 0.05
"""Pause in accepting, where no further connection can be taken."""
SEND_SECONDS = 10.0
"""Seconds in which an answer must be read."""
SWITCH_SECONDS = 0.001
"""For which a busy thread keeps the interpreter while this one waits for it, which an answer does about five
times. Python's own five milliseconds made some answers take over 100 ms under twice the load that is carried."""
PLAIN_HEADERS = frozenset((b"host", b"user-agent", b"accept", b"accept-encoding", b"connection", b"cache-control"))
"""Headers that change nothing about an answer of health; a request with any other goes to the loop."""

_LINES = re.compile(rb"[\x20-\x7e]+(?:\r\n[\x20-\x7e]+)*")
"""Lines as HTTP has them: a CR or LF alone, which some parsers take as the end of a line, is in none."""

_READ, _WRITE = selectors.EVENT_READ, selectors.EVENT_WRITE


class HealthRequest(NamedTuple):
    """A plain request for health."""

    path: str
    size: int
    """Bytes of the request."""
    last: bool
    """Whether the connection ends with its answer."""


def plain_request(data: bytes, called: Callable[[str], bool]) -> HealthRequest | None:
    """Return the request that `data` begins with; None where it is not whole, or not plain.

    `called`: whether the listener has the name in the header Host.
    """
    head, whole, _ = data.partition(b"\r\n\r\n")
    line, *fields = head.split(b"\r\n")
    words = line.split(b" ")
    if not whole or _LINES.fullmatch(head) is None or len(words) != 3 or words[0] != b"GET":
        return None
    if words[1] not in {b"/healthz", b"/readyz"} or words[2] not in {b"HTTP/1.1", b"HTTP/1.0"}:
        return None
    headers: dict[bytes, str] = {}
    for field in fields:
        name, colon, value = field.partition(b":")
        name = name.lower()
        if not colon or name not in PLAIN_HEADERS or name in headers:
            return None
        headers[name] = value.decode().strip()
    connection = headers.get(b"connection", "").lower()
    if not called(headers.get(b"host", "")) or connection not in {"", "close", "keep-alive"}:
        return None
    last = connection != "keep-alive" if words[2] == b"HTTP/1.0" else connection == "close"
    return HealthRequest(words[1].decode(), len(head) + 4, last)


@dataclass(slots=True)
class _Held:
    """A connection that the thread keeps."""

    guest: str
    until: float
    """Monotonic seconds at which it goes to the loop, or ends once it was answered."""
    answered: bool = False
    unsent: bytes = b""
    last: bool = False
    """Whether it ends when all is sent."""


class HealthThread:
    """Accepts connections, answers those that ask for health, and passes on the others."""

    def __init__(
        self,
        listening: Sequence[socket.socket],
        answer: Callable[[str], tuple[int, bytes]],
        called: Callable[[str], bool],
        pass_on: Callable[[], None],
        idle_seconds: float,
    ) -> None:
        """`answer`: status and body of a path; what it raises makes the loop answer. `called`: as of
        `plain_request`. `pass_on` is called in the thread when there are connections in `passed`.
        `idle_seconds`: how long an answered connection is kept."""
        self.passed: deque[socket.socket] = deque()
        """Connections for the loop, the oldest first."""
        self.answered = 0
        """Requests answered since the start."""
        self._listening = listening
        self._answer = answer
        self._called = called
        self._pass_on = pass_on
        self._idle_seconds = idle_seconds
        self._held: dict[socket.socket, _Held] = {}
        self._selector: selectors.BaseSelector
        self._accept_at: float | None = None
        """When accepting goes on, monotonic seconds; None while it does."""
        self._over = False
        self._serving = threading.Lock()
        """Held by the one thread that serves: one that was started beside it waits for its end."""
        self._wake, self._waker = socket.socketpair()
        for each in (*listening, self._wake, self._waker):
            each.setblocking(False)

    @property
    def held(self) -> list[str]:
        """Addresses of the connections that the thread keeps; from any thread."""
        return [each.guest for each in list(self._held.values())]

    def ended(self) -> bool:
        """Whether it was stopped."""
        return self._over

    def stop(self) -> None:
        """End `serve` and close what is open; waits until it has ended."""
        self._over = True
        with contextlib.suppress(BlockingIOError):
            self._waker.send(b"x")
        ended = self._serving.acquire(timeout=SEND_SECONDS)
        for each in (*self._listening, self._wake, self._waker, *self.passed):
            each.close()
        if ended:
            self._serving.release()

    def serve(self) -> None:
        """Serve until stopped. After a fault it can be called again: connections of before are closed."""
        with self._serving:
            if self._over:
                return
            before = sys.getswitchinterval()
            sys.setswitchinterval(SWITCH_SECONDS)
            try:
                with selectors.DefaultSelector() as self._selector:
                    self._selector.register(self._wake, _READ)
                    self._accept_at = time.monotonic()
                    while not self._over:
                        self._turn()
            finally:
                sys.setswitchinterval(before)
                for sock in self._held:
                    sock.close()
                self._held = {}

    def _turn(self) -> None:
        for key, events in self._selector.select(self._pause()):
            sock = key.fileobj
            assert isinstance(sock, socket.socket)  # noqa: S101 - no others are registered
            if sock is self._wake:
                self._wake.recv(LONGEST_HEAD)
            elif sock in self._held:
                self._attend(sock, events)
            else:
                self._accept(sock)
        now = time.monotonic()
        for sock, held in list(self._held.items()):
            if held.until <= now:
                if held.answered:
                    self._end(sock)
                else:
                    self._pass(sock)
        if self._accept_at is not None and self._accept_at <= now:
            self._accept_at = None
            for each in self._listening:
                self._selector.register(each, _READ)

    def _pause(self) -> float | None:
        """Return the seconds until something is due; None where only an event can be."""
        due = [held.until for held in self._held.values()]
        if self._accept_at is not None:
            due.append(self._accept_at)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _accept(self, listening: socket.socket) -> None:
        try:
            if len(self.passed) >= MOST_PASSED:
                raise OSError("the loop takes no connection")  # noqa: TRY301 - as if there were no more
            sock, peer = listening.accept()
        except (BlockingIOError, ConnectionAbortedError):
            return
        except OSError:  # no more file descriptors, or the loop stands still: not to spin meanwhile
            if self._accept_at is None:
                for each in self._listening:
                    self._selector.unregister(each)
            self._accept_at = time.monotonic() + REST_SECONDS
            return
        sock.setblocking(False)
        guest = neighbourhood(str(peer[0]))
        self._held[sock] = _Held(guest, time.monotonic() + FIRST_SECONDS)
        self._selector.register(sock, _READ)
        if len(self._held) > MOST_HELD or self.held.count(guest) > MOST_HELD_EACH:
            self._pass(sock)

    def _attend(self, sock: socket.socket, events: int) -> None:
        held = self._held[sock]
        try:
            if events & _WRITE:
                self._send(sock, held)
            elif (data := sock.recv(LONGEST_HEAD, socket.MSG_PEEK)) == b"":
                self._end(sock)
            else:
                self._reply(sock, held, data)
        except BlockingIOError:
            return
        except OSError:  # the peer is gone
            self._end(sock)

    def _reply(self, sock: socket.socket, held: _Held, data: bytes) -> None:
        request = plain_request(data, self._called)
        if request is None:
            self._pass(sock)
            return
        try:
            status, body = self._answer(request.path)
        except Exception:  # the loop changed what was being read, or there is a fault: it answers
            log.debug("http: health is answered by the loop", exc_info=True)
            self._pass(sock)
            return
        sock.recv(request.size)
        headers = {
            "Content-Type": "application/json",
            "Content-Length": len(body),
            "Date": formatdate(usegmt=True),
            "Connection": "close" if request.last else "keep-alive",
            **SECURITY_HEADERS,
        }
        lines = (f"{name}: {value}\r\n" for name, value in headers.items())
        head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n{''.join(lines)}\r\n"
        held.unsent, held.last, held.answered = head.encode() + body, request.last, True
        self.answered += 1
        held.until = time.monotonic() + SEND_SECONDS
        self._send(sock, held)

    def _send(self, sock: socket.socket, held: _Held) -> None:
        """Send what can be sent. Raises `OSError`."""
        with contextlib.suppress(BlockingIOError):
            held.unsent = held.unsent[sock.send(held.unsent) :]
        if held.unsent:
            self._selector.modify(sock, _WRITE)
        elif held.last:
            self._end(sock)
        else:
            self._selector.modify(sock, _READ)
            held.until = time.monotonic() + self._idle_seconds

    def _pass(self, sock: socket.socket) -> None:
        """Leave a connection to the loop, with all that it has sent."""
        self._selector.unregister(sock)
        del self._held[sock]
        self.passed.append(sock)
        self._pass_on()

    def _end(self, sock: socket.socket) -> None:
        self._selector.unregister(sock)
        del self._held[sock]
        sock.close()
