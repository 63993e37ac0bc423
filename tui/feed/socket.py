"""The client side of a WebSocket (RFC 6455): whole messages in, short texts out."""

from __future__ import annotations

import asyncio
import os
import struct

GUID = "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
"""Constant of RFC 6455 by which a server proves that it speaks WebSocket."""
_MORE, _TEXT, _BINARY, _CLOSE, _PING, _PONG = 0, 1, 2, 8, 9, 10


class SocketClosedError(ConnectionError):
    """The server closed the WebSocket, or broke its protocol."""


class Socket:
    """An open WebSocket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, most: int) -> None:
        """`most`: bytes of a message."""
        self._reader, self._writer, self._most = reader, writer, most

    async def receive(self) -> tuple[bool, bytes]:
        """Return whether the next message is text, and the message. Raises `SocketClosedError`."""
        kind, length = 0, 0
        parts: list[bytes] = []
        while True:
            try:
                final, code, part = await self._frame(self._most - length)
            except asyncio.IncompleteReadError as error:
                raise SocketClosedError("the aggregator closed the stream") from error
            if code == _PING:
                self._send(_PONG, part)
            elif code == _CLOSE:
                self._send(_CLOSE, part[:2])
                raise SocketClosedError("the aggregator closed the stream")
            elif code in {_TEXT, _BINARY, _MORE}:
                if (code == _MORE) != bool(kind):
                    raise SocketClosedError("the stream is broken: a message within another")
                kind = kind or code
                parts.append(part)
                length += len(part)
                if final:
                    return kind == _TEXT, parts[0] if len(parts) == 1 else b"".join(parts)

    async def _frame(self, most: int) -> tuple[bool, int, bytes]:
        first, second = await self._reader.readexactly(2)
        length = second & 0x7F
        if length == 126:
            (length,) = struct.unpack("!H", await self._reader.readexactly(2))
        elif length == 127:
            (length,) = struct.unpack("!Q", await self._reader.readexactly(8))
        if second & 0x80 or first & 0x70 or length > most:
            raise SocketClosedError("the stream is broken: no frame of a WebSocket server")
        return bool(first & 0x80), first & 0x0F, await self._reader.readexactly(length)

    def send(self, text: str) -> None:
        """Send a text, without waiting until it is gone."""
        self._send(_TEXT, text.encode())

    def _send(self, code: int, payload: bytes) -> None:
        size = len(payload)
        head = bytes([0x80 | code])
        if size < 126:
            head += bytes([0x80 | size])
        elif size < 1 << 16:
            head += bytes([0x80 | 126]) + struct.pack("!H", size)
        else:
            head += bytes([0x80 | 127]) + struct.pack("!Q", size)
        mask = os.urandom(4)
        key = (mask * (size // 4 + 1))[:size]
        masked = int.from_bytes(payload) ^ int.from_bytes(key)
        self._writer.write(head + mask + masked.to_bytes(size))

    def close(self) -> None:
        """Close the WebSocket."""
        if not self._writer.is_closing():
            self._send(_CLOSE, b"\x03\xe8")
            hang_up(self._writer)


def hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection at once: the goodbye of TLS would outlast the loop of a single request."""
    if writer.get_extra_info("sslcontext") is None:
        writer.close()
    else:
        writer.transport.abort()
