"""The user of this machine behind a connection over loopback, by the kernel's word (sock_diag(7)).

An exact question costs 15 us, however many sockets there are; /proc/net/tcp would be read whole, and be as long as whoever
opens sockets likes.
"""

from __future__ import annotations

import ipaddress
import socket
import struct

_SOCK_DIAG, _SOCK_DIAG_BY_FAMILY, _REQUEST = 4, 20, 1
"""NETLINK_SOCK_DIAG, SOCK_DIAG_BY_FAMILY, NLM_F_REQUEST (linux/netlink.h, linux/sock_diag.h)."""
_HEADER = struct.Struct("=IHHII")
_REQUEST_HEAD = struct.Struct("=BBBBI")
"""inet_diag_req_v2: family, protocol, extensions, padding, states."""
_SOCKET_ID = struct.Struct(">HH16s16s")
"""inet_diag_sockid: ports and addresses; interface and cookie follow."""
_ANY = struct.pack("=III", 0, 0xFFFFFFFF, 0xFFFFFFFF)
_USER = struct.Struct("=II")
"""User and inode, behind 64 bytes of inet_diag_msg."""
_USER_AT = _HEADER.size + 64


def local_user(peer: tuple[str, int], own: tuple[str, int]) -> int | None:
    """Return the id of the user whose process has the other end of a TCP connection on this machine; None where the
    kernel does not say: it is another machine's, or its process has closed it. `peer`, `own`: address and port."""
    try:
        addresses = [_plain(host) for host, _ in (peer, own)]
        if not addresses[0].is_loopback:
            return None
        family = socket.AF_INET if addresses[0].version == 4 else socket.AF_INET6
        ends = [each.packed.ljust(16, b"\0") for each in addresses]
        body = _REQUEST_HEAD.pack(family, socket.IPPROTO_TCP, 0, 0, 0xFFFFFFFF)
        body += _SOCKET_ID.pack(peer[1], own[1], *ends) + _ANY
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _SOCK_DIAG) as kernel:
            kernel.settimeout(1.0)
            kernel.send(_HEADER.pack(_HEADER.size + len(body), _SOCK_DIAG_BY_FAMILY, _REQUEST, 1, 0) + body)
            answer = kernel.recv(4096)
    except (AttributeError, OSError, ValueError, struct.error):  # not on Linux, or not permitted
        return None
    if len(answer) < _USER_AT + _USER.size or _HEADER.unpack_from(answer)[1] != _SOCK_DIAG_BY_FAMILY:
        return None
    user, inode = _USER.unpack_from(answer, _USER_AT)
    return int(user) if inode else None


def _plain(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address:
    found = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return found.ipv4_mapped
    return found
