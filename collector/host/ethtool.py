"""Statistics of a network interface, as `ethtool -S` shows them; no privilege is needed.

The driver asks the adapter's firmware for them, which may not answer: only a thread that can be abandoned
calls this.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from typing import NamedTuple

_SIOCETHTOOL = 0x8946
_GSTRINGS, _GSTATS, _GSSET_INFO = 0x1B, 0x1D, 0x37
_SET = 1
"""ETH_SS_STATS."""
_LENGTH = 32
"""Bytes of a name."""
_SPARE = 512
"""Statistics by which an adapter may grow between two calls: the kernel writes all that there are."""
_MOST = 1 << 16


class Statistics(NamedTuple):
    """Statistics of an interface."""

    names: tuple[str, ...]
    values: tuple[int, ...]


class EthtoolReader:
    """Reader of statistics. The names of an interface are read again where their number has changed."""

    def __init__(self) -> None:
        self._names: dict[str, tuple[str, ...]] = {}

    def __call__(self, interface: str) -> Statistics:
        """Return the statistics. Raises `OSError`, also for an interface without any."""
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as channel:
            count = self._count(channel, interface)
            names = self._names.get(interface, ())
            if len(names) != count:
                names = self._names[interface] = self._strings(channel, interface, count)
            buffer = array.array("B", struct.pack("=II", _GSTATS, count))
            buffer.frombytes(bytes(8 * (count + _SPARE)))
            _call(channel, interface, buffer)
            found = struct.unpack_from("=II", buffer)[1]
            if found != count:
                raise OSError(f"{interface}: {found} statistics in place of {count}")
            return Statistics(names, struct.unpack_from(f"={count}Q", buffer, 8))

    @staticmethod
    def _count(channel: socket.socket, interface: str) -> int:
        buffer = array.array("B", struct.pack("=IIQI", _GSSET_INFO, 0, 1 << _SET, 0))
        _call(channel, interface, buffer)
        _, _, mask, count = struct.unpack("=IIQI", buffer)
        if not mask or not 0 < count <= _MOST:
            raise OSError(f"{interface} has no statistics")
        return int(count)

    @staticmethod
    def _strings(channel: socket.socket, interface: str, count: int) -> tuple[str, ...]:
        buffer = array.array("B", struct.pack("=III", _GSTRINGS, _SET, count))
        buffer.frombytes(bytes(_LENGTH * (count + _SPARE)))
        _call(channel, interface, buffer)
        text = buffer.tobytes()[12:]
        words = (text[at : at + _LENGTH] for at in range(0, _LENGTH * count, _LENGTH))
        return tuple(word.split(b"\0")[0].decode("ascii", "replace").strip() for word in words)


def _call(channel: socket.socket, interface: str, buffer: array.array[int]) -> None:
    request = struct.pack("16sP16x", interface.encode()[:15], buffer.buffer_info()[0])
    fcntl.ioctl(channel, _SIOCETHTOOL, request)
