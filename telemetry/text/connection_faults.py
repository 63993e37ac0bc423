"""Why a connection can't be made, in words with a cure: names, addresses, TLS, clocks and rights. Pure.

Python has OpenSSL's words, errno's and the broker's, which say neither who is wrong nor what to do; they stay in the
exception that is the cause.
"""

from __future__ import annotations

import errno
import re
import socket
from typing import NamedTuple


class ConnectionFault(NamedTuple):
    """Reason why a connection can't be made."""

    what: str
    """Predicate of the peer: `nothing listens there`, `it refuses our certificate: ...`."""
    cure: str = ""
    """Act that mends it, in the imperative; "" where none is known."""

    def __str__(self) -> str:
        """Return both as the end of a sentence."""
        return f"{self.what}. {self.cure}" if self.cure else self.what


NOBODY = "nothing listens there"
UNTRUSTED = "its certificate is not from an authority that is trusted here"
_RENEW = "Renew it: kilowatch pki renew NAME."
_CLOCK = "Set the clock of this machine, or renew the certificate."
_PORT = "Check port, tls and certificate: so a port with TLS refuses who comes without, and one without TLS who comes with it."
_TEXTS: tuple[tuple[str, ConnectionFault], ...] = (
    # What we find wrong with its certificate.
    ("certificate has expired", ConnectionFault("its certificate has expired, by the clock here", _CLOCK)),
    ("certificate is not yet valid", ConnectionFault("its certificate is not valid yet, by the clock here", _CLOCK)),
    ("certificate is not valid for '([^']*)'", ConnectionFault("its certificate is for other names than {}", "Connect by a name that it has, or make one with this name.")),
    ("self.signed certificate|unable to get (?:local )?issuer", ConnectionFault(UNTRUSTED, "Name that authority's certificate: ca_file.")),
    ("certificate revoked", ConnectionFault("it refuses our certificate, which was revoked", "Make a new one: kilowatch pki node NAME.")),
    # What it finds wrong with ours: an alert of TLS.
    ("alert certificate expired", ConnectionFault("it refuses our certificate, which has expired", _RENEW)),
    ("certificate required|did not return a certificate|alert handshake failure", ConnectionFault("it asks for a certificate, and we have none", "Name ours: cert_file and key_file.")),
    ("alert unknown ca|alert (?:bad certificate|certificate unknown)|alert decrypt error", ConnectionFault("it refuses our certificate: it is from another authority than the one that it trusts", "Take one of its own authority: kilowatch pki node NAME.")),
    ("wrong version number|record layer failure|packet length too long|http request", ConnectionFault("it does not speak TLS on this port", "Name its port with TLS (8883 is usual for MQTT), or leave TLS out.")),
    ("unsupported protocol|alert protocol version|no protocols available", ConnectionFault("it speaks another version of TLS", "Update it: TLS 1.2 is the least here.")),
    ("unexpected.eof|eof occurred in violation", ConnectionFault("it closed the connection in the middle of TLS' handshake", _PORT)),
    # What a broker answers.
    ("bad user ?name or password", ConnectionFault("it refuses user and password", "Check username and password_file against the broker's.")),
    ("not authori[sz]ed", ConnectionFault("it does not let this user in", "Add the user to its access list, or name another.")),
    ("(?:client )?identifier (?:rejected|not valid)", ConnectionFault("it refuses our client id")),
    ("server unavailable|broker unavailable|server busy", ConnectionFault("it says that it is not available", "Look at its log.")),
    # Names.
    ("name or service not known|nodename nor servname|no address associated", ConnectionFault("no address is known for this name", "Check the name: getent hosts NAME asks the same.")),
    ("temporary failure in name resolution", ConnectionFault("the name server does not answer", "Check /etc/resolv.conf and the network, or write the address.")),
)  # fmt: skip
"""Words of a library, small, and what they mean; the first row that fits counts."""
_NUMBERS = {
    errno.ECONNREFUSED: ConnectionFault(NOBODY, "Start it, or check host and port."),
    errno.ECONNRESET: ConnectionFault("it closed the connection", _PORT),
    errno.EPIPE: ConnectionFault("it closed the connection", _PORT),
    errno.EHOSTUNREACH: ConnectionFault(
        "there is no way to it in the network", "Is the machine on, and the address right?"
    ),
    errno.ENETUNREACH: ConnectionFault("there is no way to its network", "Check the network of this machine."),
    errno.ETIMEDOUT: ConnectionFault("it does not answer", "Is the machine on, and does a firewall drop what it gets?"),
    errno.EMFILE: ConnectionFault("this process has no file descriptor left", "Raise LimitNOFILE of its unit."),
}
_ERRNO = re.compile(r"\[errno (\d+)\]")


def connection_fault(error: BaseException) -> ConnectionFault:
    """Return what an error of a connection means; its own words where that is not known."""
    text = str(error) or str(error.__cause__ or "") or type(error).__name__
    small = text.lower().replace("_", " ")
    for pattern, fault in _TEXTS:
        if found := re.search(pattern, small):
            return fault._replace(what=fault.what.format(*found.groups()))
    number = getattr(error, "errno", None)
    if number is None and (named := _ERRNO.search(small)):
        number = int(named[1])
    if isinstance(error, TimeoutError) and not isinstance(error, socket.gaierror):
        number = errno.ETIMEDOUT
    if number in _NUMBERS:
        return _NUMBERS[number]
    return ConnectionFault(getattr(error, "strerror", None) or text)
