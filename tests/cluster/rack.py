"""Nodes of breakers that publish what a test wants, with rings of their own, and a webhook that counts what is
paged."""

from __future__ import annotations

import select
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from bench import wire
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import CollectorStatus, Command, CommandKind, CommandReply, FrameSpan, NodeState
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA
from telemetry.wire.topics import Topic, parse, pattern, topic
from tests.aggregator.node import inventory

GPUS = 8
_POWER = SCHEMA.blocks[GPU_FAST].names.index("gpu_power_watts")
_NOTHING = [[float("nan")] * len(SCHEMA.blocks[NODE_FAST].names)]
CHUNK_FRAMES = 32
SILENCE_SECONDS = 3.0
"""Seconds without an answer of a server after which another one is taken."""


class Rack:
    """Samples all its nodes once a second, whatever happens, publishes to a server that answers, and sends
    frames again on request."""

    def __init__(
        self,
        cluster: str,
        ports: Sequence[int],
        nodes: Sequence[str],
        watts: float,
        gpus: Mapping[str, int] | None = None,
    ) -> None:
        """`watts`: of each GPU, at first; `gpus`: of the nodes that don't have eight."""
        self.cluster, self.nodes = cluster, list(nodes)
        self.gpus = dict.fromkeys(nodes, GPUS) | dict(gpus or {})
        self.watts = dict.fromkeys(nodes, watts)
        """Of each GPU, by node."""
        self.first_at: dict[str, int] = {}
        """By node, when the first frame with its present watts was sampled, ns since 1970."""
        self._ring: list[tuple[int, dict[str, float]]] = []
        """By number: when it was sampled, and the watts."""
        self._ports = list(ports)
        self._session = time.time_ns() & 0x7FFFFFFF
        self._live, self._lock = True, threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rack", daemon=True)

    def start(self) -> None:
        """Begin to publish."""
        self._thread.start()

    def set(self, watts: float, nodes: Sequence[str]) -> None:
        """Have each GPU of some nodes draw so much from the next frame on."""
        with self._lock:
            for node in nodes:
                self.first_at.pop(node, None)
            self.watts = self.watts | dict.fromkeys(nodes, watts)

    def wait(self, seconds: float) -> None:
        """Return when so many more frames have been sampled, one a second."""
        end = len(self._ring) + seconds
        while len(self._ring) < end:
            time.sleep(0.1)

    def rest(self) -> None:
        """Sample no more, but answer requests."""
        self._live = False

    def end(self) -> None:
        """Publish no more."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(10)

    def sampled(self) -> list[int]:
        """Return when the frames of each node were sampled."""
        return [at for at, _ in self._ring]

    def _run(self) -> None:
        turn = 0
        while not self._stop.is_set():
            turn += 1
            try:
                self._publish(self._ports[turn % len(self._ports)])
            except OSError:  # a server was killed: the next one
                self._sample()
                self._stop.wait(0.2)

    def _publish(self, port: int) -> None:
        with wire.connect("127.0.0.1", port, f"rack-{time.monotonic_ns()}") as connection:
            connection.settimeout(SILENCE_SECONDS)
            connection.sendall(wire.subscribe(pattern(self.cluster, kind=Topic.COMMAND)))
            self._introduce(connection)
            inbox, heard, pinged = bytearray(), time.monotonic(), time.monotonic()
            while not self._stop.is_set():
                number = self._sample()
                if number is not None:
                    watts = self._ring[number][1]
                    connection.sendall(b"".join(self._live_frame(node, number) for node in watts))
                if time.monotonic() - pinged > 1.0:
                    pinged = time.monotonic()
                    connection.sendall(wire.PINGREQ)
                if select.select([connection], [], [], 0.1)[0]:
                    got = connection.recv(1 << 20)
                    if not got:
                        raise ConnectionResetError
                    heard = time.monotonic()
                    inbox += got
                    for name, payload in wire.messages(inbox):
                        self._answer(connection, name, messages.decode(payload, Command))
                elif time.monotonic() - heard > SILENCE_SECONDS:
                    raise TimeoutError

    def _introduce(self, connection: socket.socket) -> None:
        ring = (FrameSpan(self._session, 0, len(self._ring) - 1),) if self._ring else ()
        status = CollectorStatus(state=NodeState.ONLINE, session=self._session, interval=1.0, ring=ring)
        for node in self.nodes:
            found = inventory(node, self.gpus[node], self._session)
            for kind, body in ((Topic.STATUS, status), (Topic.INVENTORY, found)):
                connection.sendall(wire.publish(topic(self.cluster, node, kind), messages.encode(body), retain=True))

    def _sample(self) -> int | None:
        """Sample where a second has passed; return the number of what was sampled."""
        now = time.time_ns()
        if not self._live or (self._ring and now - self._ring[-1][0] < 10**9):
            return None
        with self._lock:
            self._ring.append((now, self.watts))
            for node in self.watts:
                self.first_at.setdefault(node, now)
        return len(self._ring) - 1

    def _frame(self, node: str, number: int) -> bytes:
        at, watts = self._ring[number]
        row = [float("nan")] * len(SCHEMA.blocks[GPU_FAST].names)
        row[_POWER] = watts[node]
        readings = {GPU_FAST: [row] * self.gpus[node], NODE_FAST: _NOTHING}
        return frames.encode(frames.build(self._session, number, at, readings))

    def _live_frame(self, node: str, number: int) -> bytes:
        return wire.publish(topic(self.cluster, node, Topic.FRAME), self._frame(node, number))

    def _answer(self, connection: socket.socket, name: str, command: Command) -> None:
        address = parse(name)
        if address is None or address.node not in self.gpus or command.kind is not CommandKind.RESEND:
            return
        node, sent = address.node, 0
        if command.about == self._session:
            last = min(command.last, len(self._ring) - 1)
            for first in range(command.first, last + 1, CHUNK_FRAMES):
                old = [self._frame(node, one) for one in range(first, min(last + 1, first + CHUNK_FRAMES))]
                sent += len(old)
                connection.sendall(wire.publish(topic(self.cluster, node, Topic.BACKFILL), frames.encode_many(old)))
        reply = CommandReply(about=command.about, first=command.first, last=command.last, sent=sent)
        connection.sendall(wire.publish(topic(self.cluster, node, Topic.REPLY), messages.encode(reply)))


class Pager(ThreadingHTTPServer):
    """A webhook receiver in Alertmanager's form: each request with its time."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.received: list[tuple[float, dict[str, Any]]] = []
        self.held = ""
        """The circuit whose pages get no answer now; "" for none."""

    @property
    def url(self) -> str:
        """Where to send."""
        return f"http://127.0.0.1:{self.server_address[1]}/page"

    def pages(self, rule: str, circuit: str) -> list[tuple[float, dict[str, Any]]]:
        """Return the requests that say that a rule fires on a circuit, with their times."""
        return [
            (at, body)
            for at, body in self.received
            if body["status"] == "firing"
            and any(
                (alert["labels"]["alertname"], alert["labels"].get("name"), alert["status"])
                == (rule, circuit, "firing")
                for alert in body["alerts"]
            )
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Pager

    def do_POST(self) -> None:
        body = msgspec.json.decode(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.received.append((time.time(), body))
        while self.server.held and repr(self.server.held) in str(body):
            time.sleep(0.05)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def paging() -> Iterator[Pager]:
    """Receive pages while the block runs."""
    server = Pager()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.held = ""
        server.shutdown()
        server.server_close()
