"""The few bytes of MQTT 3.1.1 that a load generator needs: so that it needs little CPU."""

from __future__ import annotations

import socket
from collections.abc import Iterator

from telemetry.wire.mqtt import BrokerConfig

PINGREQ = b"\xc0\x00"
PUBLISH = 3
KEEPALIVE = 60
"""Seconds; rumqttd refuses 0."""


def text(value: str) -> bytes:
    """Return a string as MQTT writes it: its length in two bytes, then UTF-8."""
    encoded = value.encode()
    return len(encoded).to_bytes(2, "big") + encoded


def length(count: int) -> bytes:
    """Return a remaining length: seven bits a byte, the lowest first."""
    found = bytearray()
    while True:
        count, low = count >> 7, count & 0x7F
        found.append(low | (0x80 if count else 0))
        if not count:
            return bytes(found)


def publish_head(topic: str, payload_bytes: int, *, retain: bool = False) -> bytes:
    """Return the bytes of a QoS 0 PUBLISH before its payload."""
    name = text(topic)
    return bytes([0x30 | retain]) + length(len(name) + payload_bytes) + name


def publish(topic: str, payload: bytes, *, retain: bool = False) -> bytes:
    """Return a QoS 0 PUBLISH."""
    return publish_head(topic, len(payload), retain=retain) + payload


def connect(host: str, port: int, client: str) -> socket.socket:
    """Open a session. Raises `OSError` when the broker is not there or refuses."""
    connection = socket.create_connection((host, port), 30)
    try:
        _log_in(connection, host, port, client)
    except BaseException:
        connection.close()
        raise
    return connection


def _log_in(connection: socket.socket, host: str, port: int, client: str) -> None:
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    user, password = BrokerConfig(host=host, port=port).login()  # the embedded broker asks for one
    flags, login = b"\x02", b""
    if user is not None and password is not None:
        flags, login = b"\xc2", text(user) + text(password)
    body = text("MQTT") + b"\x04" + flags + KEEPALIVE.to_bytes(2, "big") + text(client) + login
    connection.sendall(b"\x10" + length(len(body)) + body)
    answer = b""
    while len(answer) < 4:
        more = connection.recv(4 - len(answer))
        if not more:
            raise ConnectionRefusedError(f"{host}:{port} hung up on {client}")
        answer += more
    if answer != b"\x20\x02\x00\x00":
        raise ConnectionRefusedError(f"{host}:{port} answered {answer.hex()} to {client}")


def subscribe(pattern: str) -> bytes:
    """Return a SUBSCRIBE to one filter at QoS 0."""
    body = b"\x00\x01" + text(pattern) + b"\x00"
    return b"\x82" + length(len(body)) + body


def messages(buffer: bytearray) -> Iterator[tuple[str, bytes]]:
    """Remove the complete QoS 0 messages from a buffer and yield topic and payload."""
    while len(buffer) >= 2:
        count, at = 0, 1
        while True:
            if at >= len(buffer):
                return
            byte = buffer[at]
            count |= (byte & 0x7F) << (7 * (at - 1))
            at += 1
            if byte < 0x80:
                break
        if len(buffer) < at + count:
            return
        kind, body = buffer[0] >> 4, bytes(buffer[at : at + count])
        del buffer[: at + count]
        if kind == PUBLISH:
            name = int.from_bytes(body[:2], "big")
            yield body[2 : 2 + name].decode(), body[2 + name :]
