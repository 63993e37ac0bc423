"""Files and folders that their owner alone may read."""

from __future__ import annotations

import contextlib
import logging
import os
import stat
from pathlib import Path

log = logging.getLogger(__name__)

OTHERS = 0o077
"""Rights of the group and of all others."""


def make_folder(path: Path) -> None:
    """Make a folder that its owner alone may enter; parents likewise. One that exists stays as it is.
    Raises `OSError`, `FileExistsError` for a file in its place."""
    for folder in reversed([path, *path.parents]):
        try:
            folder.mkdir(mode=0o700)
        except FileExistsError:
            if not folder.is_dir():
                raise


def claim_folder(path: Path) -> None:
    """Make a folder of our own, or close one of an older release to other users of this machine.

    A folder that is not ours alone (of another owner, /tmp, a home, /var/lib) stays as it is, and the
    log says so. Raises `OSError`.
    """
    make_folder(path)
    its = path.stat()
    mode = stat.S_IMODE(its.st_mode)
    if not mode & OTHERS:
        return
    if its.st_uid != os.geteuid() or mode & stat.S_ISVTX or _is_shared(path.absolute()):
        log.warning(
            "%s: other users of this machine can enter it (mode %04o); name a folder of kilowatch's own", path, mode
        )
        return
    path.chmod(0o700)
    log.warning("%s: other users of this machine could enter it (mode %04o); now 0700", path, mode)


def _is_shared(path: Path) -> bool:
    """Whether a folder may hold more than kilowatch's own files: a home, `/srv`, `/var/lib`."""
    if "kilowatch" in path.name:
        return False
    with contextlib.suppress(RuntimeError):  # a user without a home
        if path == Path.home():
            return True
    return len(path.parts) <= 3


def write(path: Path, text: str) -> int:
    """Write a file of mode 0600 whole or not at all; returns its descriptor, open for reading.

    Root writes it for the owner of the folder: a service of another user reads it then. Raises
    `OSError`.
    """
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    fresh.unlink(missing_ok=True)
    handle = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(handle, 0o600)  # whatever the umask is
        body = memoryview(text.encode())
        while body:  # a disk that is nearly full takes a part, and fails at the next call only
            body = body[os.write(handle, body) :]
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
