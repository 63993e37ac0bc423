"""How wrong the clock may be, from the kernel's own time discipline (adjtimex)."""

from __future__ import annotations

import ctypes
import os

_MICRO = 1e-6
_UNSYNCHRONISED = 0x40
_ERROR = 5  # what adjtimex returns while the clock is not synchronised


class _Timex(ctypes.Structure):
    """`struct timex` of <sys/timex.h>; with `modes` 0 it is only filled in, nothing is set."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),  # more than the rest of the structure on any platform
    )


def estimated_error() -> float:
    """Return the clock's estimated error in seconds.

    Raises `FileNotFoundError` while nobody keeps the clock (no chrony, no ntpd): then there is no
    estimate; `PermissionError` where a container forbids the question.
    """
    library = ctypes.CDLL(None, use_errno=True)
    timex = _Timex()
    state: int = library.adjtimex(ctypes.byref(timex))
    if state < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    if state == _ERROR or timex.status & _UNSYNCHRONISED:
        raise FileNotFoundError("the clock is not synchronised")
    return float(timex.esterror) * _MICRO
