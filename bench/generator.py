"""A fleet of collectors in one process of very little CPU, as the load of other benchmarks.

    python -m bench.generator --port 1883 --nodes 1250 --gpus 8 --seconds 60

It connects, publishes inventories and statuses, prints `ready`, waits for a line on standard input,
and sends every node's frame once a second at the node's own time. A frame carries the time at which
it was due, so that a late generator shows as latency instead of hiding it. It answers requests for
frames from an endless ring, and prints its figures at the end, as JSON.
"""

from __future__ import annotations

import argparse
import json
import resource
import select
import sys
import time
from collections import deque

from bench import wire
from bench.load import CLUSTER, SECOND, SLOTS, Load, head, make_load
from telemetry.wire import frame as frames
from telemetry.wire import inventory as messages
from telemetry.wire.inventory import Command, CommandKind, CommandReply
from telemetry.wire.topics import Topic, parse, pattern, topic

CHUNK_FRAMES = 32
PING_SECONDS = 15.0


class Generator:
    """Nodes of a fleet. Live frames use many connections, replies to requests a separate one."""

    def __init__(self, load: Load, host: str, port: int, connections: int, backlog: int) -> None:
        self._load = load
        self._backlog = backlog
        count = min(connections, load.nodes)
        self._live = [wire.connect(host, port, f"bench-{number}") for number in range(count)]
        self._old = wire.connect(host, port, "bench-backfill")
        self._old.sendall(wire.subscribe(pattern(CLUSTER, kind=Topic.COMMAND)))
        self._inbox = bytearray()
        self._outbox: deque[memoryview] = deque()
        self._groups: list[list[tuple[int, list[tuple[int, bytes]]]]] = []
        for slot in range(SLOTS):
            by_connection: dict[int, list[tuple[int, bytes]]] = {}
            for node in range(slot, load.nodes, SLOTS):
                packet = node, load.publish_head(node)
                by_connection.setdefault(node % count, []).append(packet)
            self._groups.append(list(by_connection.items()))
        self._began = 0
        """When frame 0 of the first slot was due, ns since 1970."""
        self._end = 0
        """The first number that was not sent at one frame a second."""
        self._eased = 0, 1
        """Further frames of each node, and the seconds between them."""
        self._pinged = time.monotonic()
        self.sent = 0
        self.resent = 0
        self.latest = 0.0
        """Seconds by which the latest slot was late."""

    def introduce(self) -> None:
        """Publish all statuses and inventories, retained."""
        for node in range(self._load.nodes):
            name, connection = self._load.name(node), self._live[node % len(self._live)]
            status = self._load.status(node)
            packets = wire.publish(topic(CLUSTER, name, Topic.STATUS), status, retain=True)
            inventory = self._load.inventory(node)
            packets += wire.publish(topic(CLUSTER, name, Topic.INVENTORY), inventory, retain=True)
            connection.sendall(packets)
            if node % 100 == 99:
                self._serve(time.time() + 0.05)  # a broker queues only so much for the aggregator

    def run(self, seconds: int) -> None:
        """Send frames for `seconds`."""
        self._began = time.time_ns() + SECOND // 10 - self._backlog * SECOND
        self._run(range(self._backlog, self._backlog + seconds))

    def ease(self, every: int) -> None:
        """Send a frame of each node only every so many seconds, as its status then says, until a line
        comes on standard input."""
        for node in range(self._load.nodes):
            self._publish_status(node, self._load.status(node, interval=every))
        rounds = 0
        while not select.select([sys.stdin], [], [], 0)[0]:
            for second in range(every):
                for slot in range(SLOTS):
                    at = self._end + rounds * every + second
                    due = self._began + at * SECOND + slot * (SECOND // SLOTS)
                    self._serve(due / 1e9)
                    self._send(slot, self._end + rounds, due, second, every)
            rounds += 1
        sys.stdin.readline()
        self._eased = rounds, every

    def _run(self, numbers: range) -> None:
        self._end = numbers.stop
        for seq in numbers:
            for slot in range(SLOTS):
                due = self._began + seq * SECOND + slot * (SECOND // SLOTS)
                self._serve(due / 1e9)
                self.latest = max(self.latest, (time.time_ns() - due) / 1e9)
                self._send(slot, seq, due)

    def announce(self) -> None:
        """Publish what the rings hold, as a collector does before it ends."""
        frames, interval = self._eased
        for node in range(self._load.nodes):
            status = self._load.status(node, self._end + frames - 1, interval)
            self._publish_status(node, status)

    def _publish_status(self, node: int, status: bytes) -> None:
        where = topic(CLUSTER, self._load.name(node), Topic.STATUS)
        connection = self._live[node % len(self._live)]
        connection.sendall(wire.publish(where, status, retain=True))

    def linger(self) -> None:
        """Answer requests until a line comes on standard input."""
        while not select.select([sys.stdin], [], [], 0)[0]:
            self._serve(time.time() + 0.05)

    def _send(self, slot: int, seq: int, due: int, turn: int = 0, every: int = 1) -> None:
        """Send the frames of a slot, of every so many nodes those whose `turn` it is."""
        load = self._load
        for connection, packets in self._groups[slot]:
            parts: list[bytes] = []
            among = packets if every == 1 else [one for one in packets if one[0] % every == turn]
            for node, start in among:
                parts += (start, head(load.session(node), seq, due), load.body(node, seq))
            self._live[connection].sendall(b"".join(parts))
            self.sent += len(among)

    def _serve(self, until: float) -> None:
        """Answer requests until the next slot is due."""
        while True:
            wait = until - time.time()
            writers = [self._old] if self._outbox else []
            readable, writable, _ = select.select([self._old], writers, [], max(0.0, wait))
            if readable:
                self._inbox += self._old.recv(1 << 20)
                for name, payload in wire.messages(self._inbox):
                    self._answer(name, messages.decode(payload, Command))
            if writable:
                self._drain()
            if time.monotonic() - self._pinged > PING_SECONDS:
                self._pinged = time.monotonic()
                self._outbox.append(memoryview(wire.PINGREQ))
                for connection in self._live:
                    connection.sendall(wire.PINGREQ)
            if wait <= 0:
                return

    def _drain(self) -> None:
        self._old.setblocking(False)
        try:
            sent = self._old.send(self._outbox[0])
        except BlockingIOError:
            return
        finally:
            self._old.setblocking(True)
        rest = self._outbox.popleft()[sent:]
        if rest:
            self._outbox.appendleft(rest)

    def _answer(self, name: str, command: Command) -> None:
        address = parse(name)
        if address is None or command.kind is not CommandKind.RESEND:
            return
        node, load = int(address.node.rpartition("-")[2]), self._load
        parts = []
        offset = node % SLOTS * (SECOND // SLOTS)
        for first in range(command.first, command.last + 1, CHUNK_FRAMES):
            last = min(command.last, first + CHUNK_FRAMES - 1)
            old = [load.frame(node, seq, self._began + seq * SECOND + offset) for seq in range(first, last + 1)]
            where = topic(CLUSTER, address.node, Topic.BACKFILL)
            parts.append(wire.publish(where, frames.encode_many(old)))
            self.resent += len(old)
        reply = CommandReply(
            about=command.about, first=command.first, last=command.last, sent=command.last - command.first + 1
        )
        where = topic(CLUSTER, address.node, Topic.REPLY)
        parts.append(wire.publish(where, messages.encode(reply)))
        self._outbox.append(memoryview(b"".join(parts)))


def main(arguments: list[str]) -> int:
    """Generate."""
    parser = argparse.ArgumentParser(prog="python -m bench.generator", description=__doc__)
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--nodes", type=int, required=True)
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--metrics", type=int)
    parser.add_argument("--seconds", type=int, default=10)
    parser.add_argument("--connections", type=int, default=SLOTS)
    parser.add_argument("--ease-every", type=int, default=0, help="then a frame of each node in so many seconds")
    parser.add_argument("--backlog", type=int, default=0, help="frames of each node in its ring")
    options = parser.parse_args(arguments)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, hard), hard))
    load = make_load(options.nodes, options.gpus, options.metrics)
    generator = Generator(load, options.host, options.port, options.connections, options.backlog)
    generator.introduce()
    print("ready", flush=True)
    sys.stdin.readline()
    generator.run(options.seconds)
    if options.ease_every:
        print("eased", flush=True)
        generator.ease(options.ease_every)
    print("done", flush=True)
    generator.announce()
    generator.linger()
    found = {
        "sent": generator.sent,
        "resent": generator.resent,
        "latest_seconds": generator.latest,
        "metrics": load.metrics,
    }
    print(json.dumps(found), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
