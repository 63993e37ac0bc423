"""Synchronisation of the clock, from the kernel's time discipline (adjtimex)."""

from __future__ import annotations

import ctypes
import functools
import os
from typing import NamedTuple

_MICRO = 1e-6
_UNSYNCHRONISED = 0x40
_ERROR = 5  # returned by adjtimex while the clock is not synchronised


class ClockState(NamedTuple):
    """Synchronisation of this machine's clock."""

    synchronised: bool
    """Whether a time service (chrony, ntpd) disciplines the clock."""
    estimated_error: float
    """Seconds."""


class _Timex(ctypes.Structure):
    """`struct timex` of <sys/timex.h>; with `modes` 0 the kernel fills it in and sets nothing."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_long * 32),  # more than the rest of the structure on any platform
    )


@functools.cache
def _library() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def read_clock() -> ClockState:
    """Return the state of the clock. Raises `PermissionError` where a container forbids it."""
    timex = _Timex()
    state: int = _library().adjtimex(ctypes.byref(timex))
    if state < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    synchronised = state != _ERROR and not timex.status & _UNSYNCHRONISED
    return ClockState(synchronised, timex.esterror * _MICRO)
