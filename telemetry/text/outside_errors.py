"""Errors whose cause lies outside kilowatch, in one line: a file, a disk, a name, a network, TLS, a broker, a server.

A traceback says where in the program somebody stood when the world said no, which helps nobody who reads a log at
night; of a fault of ours it is what mends it.
"""

from __future__ import annotations

import errno
import logging
import os
import traceback

from telemetry.errors import KilowattError

OURS = {errno.EBADF, errno.EFAULT, errno.EINVAL, errno.ENOTSOCK, errno.EDOM, errno.ERANGE}
"""Numbers of `OSError` that a program brings about itself: a descriptor that it closed, an argument that is none."""
OWN = {"telemetry", "api", "present", "power", "alerts", "collector", "aggregator", "tui", "kilowatch"}
"""kilowatch's packages."""
_LIBRARIES = {"aiohttp", "aiomqtt", "nats", "urllib"}
"""Packages that speak to brokers and servers: an exception of their own is what these did."""


def outside_line(error: BaseException | None) -> str | None:
    """Return an error from outside as one line: its type, its words, and where in kilowatch it was met; None for a
    fault of ours. A group is from outside where each of its errors is."""
    if error is None or not _is_outside(error):
        return None
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    return f"{type(first).__name__}: {' '.join(_words(first).split())}{_where(first)}"


def logged_line(error: BaseException | None) -> str | None:
    """Return what a log has of an error in place of its traceback; None where it keeps that: a fault of ours, and any
    with `-vv`."""
    if logging.getLogger().isEnabledFor(logging.DEBUG):
        return None
    return outside_line(error)


def _is_outside(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return all(map(_is_outside, error.exceptions))
    if isinstance(error, OSError):
        return error.errno not in OURS
    if isinstance(error, KilowattError):
        return True
    return any(kind.__module__.partition(".")[0] in _LIBRARIES for kind in type(error).__mro__)


def _words(error: BaseException) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        name = error.filename
        return f"{os.fsdecode(name) if isinstance(name, bytes) else name}: {error.strerror}"
    return str(error) or "it says nothing else"


def _where(error: BaseException) -> str:
    """Return the innermost place in kilowatch's own packages."""
    found = ""
    for frame, line in traceback.walk_tb(error.__traceback__):
        module = str(frame.f_globals.get("__name__"))
        if module.partition(".")[0] in OWN:
            found = f" ({module}:{line})"
    return found
