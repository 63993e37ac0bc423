"""The folder that belongs to one running collector alone."""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
from collections.abc import Iterator
from pathlib import Path

from telemetry.errors import ConfigError

log = logging.getLogger(__name__)


@contextlib.contextmanager
def claim(folder: Path) -> Iterator[None]:
    """Hold the folder's lock meanwhile. Raises `ConfigError` when another collector holds it.

    The kernel lets go of the lock when the process ends, however it ends. A folder that can't be
    written is not claimed: the collector then runs without a ring, and says so.
    """
    path = folder / "collector.lock"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    except OSError as error:
        log.warning("%s can't be written: %s", folder, error.strerror)
        yield
        return
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            owner = os.pread(descriptor, 20, 0).decode(errors="replace").strip() or "unknown"
            raise ConfigError(
                "collector.state_dir",
                f"{folder} is in use by the collector with process id {owner}",
                "Stop that one, or give this one a folder of its own.",
            ) from error
        except OSError as error:  # a file system without locks
            log.warning("%s can't be locked: %s", path, error.strerror)
        with contextlib.suppress(OSError):
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)
