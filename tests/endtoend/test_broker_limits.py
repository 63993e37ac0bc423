"""The shipped mosquitto.conf bounds what one client costs the broker, with the certificates of the page."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from pathlib import Path

from telemetry.wire.frame import MAX_FRAME_BYTES
from telemetry.wire.mqtt import client_id, connect
from telemetry.wire.topics import Topic, topic
from tests.endtoend.test_stolen_certificate import AGGREGATOR, CLUSTER, STOLEN, Site, listening, pytestmark
from tests.kit.waiting import until

__all__ = ["pytestmark"]
CONF = Path(__file__).parents[2] / "deploy" / "mosquitto" / "kilowatch.conf"
OWN = topic(CLUSTER, STOLEN, Topic.REPLY)


def thrown_out(site: Site, claimed: int, *, sent: int) -> None:
    """Publish a message that claims a length, and see the broker close the connection."""
    context = site.broker(STOLEN).context()
    assert context is not None
    with (
        socket.create_connection(("127.0.0.1", site.port), 20) as raw,
        context.wrap_socket(raw, server_hostname="127.0.0.1") as peer,
    ):
        peer.sendall(b"\x10\x10\x00\x04MQTT\x04\x02\x00\x3c\x00\x04evil")
        assert peer.recv(4) == b"\x20\x02\x00\x00"  # accepted
        length = bytes((claimed >> 7 * part & 0x7F) | (part < 3) << 7 for part in range(4))
        head = len(OWN).to_bytes(2, "big") + OWN.encode()
        with contextlib.suppress(OSError):
            peer.sendall(b"\x30" + length + (head + bytes(sent))[:sent])
        try:
            assert peer.recv(1) == b""
        except OSError:
            return  # closed while our bytes were under way


async def test_a_message_of_5_mb_is_refused_and_the_longest_legal_one_passes(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.start_broker()
    try:
        async with listening(site.broker(AGGREGATOR), OWN) as observer:
            async with connect(site.broker(STOLEN), client_id("legal")) as node:
                longest = bytes(MAX_FRAME_BYTES)
                await node.publish(OWN, longest, qos=1)
                await until(lambda: observer.payloads(OWN) == [longest], "the longest")
            await asyncio.to_thread(thrown_out, site, 5_000_000, sent=5_000_000)
            await asyncio.to_thread(thrown_out, site, 200_000_000, sent=0)
            async with connect(site.broker(STOLEN), client_id("after")) as node:
                await node.publish(OWN, b"after", qos=1)
            await until(lambda: observer.payloads(OWN)[1:] == [b"after"], "what came after")
    finally:
        site.end()


def test_every_limit_says_why() -> None:
    """Each setting of the file stands below a comment of its own."""
    lines = CONF.read_text().splitlines()
    limits = [number for number, line in enumerate(lines) if re.match(r"(max_|memory_|message_size)", line)]
    assert len(limits) == 8
    assert all(lines[number - 1].startswith("# ") for number in limits)
    found = dict(lines[number].split() for number in limits)
    assert int(found["message_size_limit"]) == MAX_FRAME_BYTES
    assert int(found["max_packet_size"]) > MAX_FRAME_BYTES + 5 + 2 + 300 + 2
    assert int(found["max_connections"]) >= 2 * 12_500
