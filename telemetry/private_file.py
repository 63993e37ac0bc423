"""Files and folders that their owner alone may read."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def make_folder(path: Path) -> None:
    """Make a folder that its owner alone may enter; parents likewise. One that exists stays as it is."""
    for folder in reversed([path, *path.parents]):
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)


def write(path: Path, text: str) -> int:
    """Write a file of mode 0600 whole or not at all; returns its descriptor, open for reading.

    Root writes it for the owner of the folder: a service of another user reads it then. Raises
    `OSError`.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    handle = os.open(
        fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600
    )
    try:
        os.fchmod(handle, 0o600)  # whatever the umask is
        os.write(handle, text.encode())
        if os.geteuid() == 0:
            owner = path.parent.stat()
            os.fchown(handle, owner.st_uid, owner.st_gid)
        os.fsync(handle)
        fresh.replace(path)
    except BaseException:
        os.close(handle)
        fresh.unlink(missing_ok=True)
        raise
    return handle
