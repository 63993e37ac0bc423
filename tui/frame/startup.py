"""A dashboard that is small and there at once: what Python would load, count or keep for nothing.

Measured on 10,000 GPUs: 8 MB of 68, and pauses of 50 ms in which all that was imported is looked
through for garbage.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import sys
from contextlib import suppress

AFTER = 3.0
"""Seconds after the first picture at which all is loaded."""
_MMAP_THRESHOLD, _LARGE = -3, 128 * 1024
"""`M_MMAP_THRESHOLD` of mallopt(3), and bytes above which a block is given back when it is free: by
itself the C library raises this to the largest message that ever came, and keeps as much."""


def prepare(url: str) -> None:
    """Call before anything is loaded."""
    gc.disable()  # until `settle`: nothing of what is loaded is garbage
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # else one a core, each with its memory
    if not url.startswith("https"):
        _without_tls()
    _tell_libc("mallopt", _MMAP_THRESHOLD, _LARGE)


def _without_tls() -> None:
    """Load asyncio as on a Python that was built without OpenSSL: 5 MB, and nothing is encrypted
    here. Whoever asks for it later still gets it."""
    hidden = [name for name in ("ssl", "_hashlib") if name not in sys.modules]
    sys.modules.update(dict.fromkeys(hidden))  # type: ignore[arg-type]  # None: there is no such
    try:
        for name in ("asyncio", "hashlib"):
            importlib.import_module(name)
    finally:
        for name in hidden:
            del sys.modules[name]


def settle() -> None:
    """Call when all is loaded: it stays, so that nobody need look through it again; and what only
    loading took goes back."""
    gc.freeze()
    gc.enable()
    _tell_libc("malloc_trim", 0)


def _tell_libc(function: str, *arguments: int) -> None:
    with suppress(OSError, AttributeError):  # another C library has none of this
        getattr(ctypes.CDLL(None), function)(*arguments)
