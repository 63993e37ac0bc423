"""Another user of this machine: runs a function as `nobody`, where the tests run as root."""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

NOBODY = 65534
T = TypeVar("T")

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can run a part of a test as another user")


def as_nobody(work: Callable[[], T]) -> T | str:
    """Return what `work` returns in a process of the user `nobody`, or the name of its error.

    The process is forked, because an interpreter in root's home can't be started by others. `work`
    must not use threads or event loops of this process.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        found: object = "it did not run"
        try:
            os.setgroups([])
            os.setgid(NOBODY)
            os.setuid(NOBODY)
            found = work()
        except Exception as error:  # noqa: BLE001 - its name is the result
            found = type(error).__name__
        finally:
            os.write(writing, pickle.dumps(found))
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as file:
        content = file.read()
    os.waitpid(child, 0)
    return pickle.loads(content)  # type: ignore[no-any-return]


@contextmanager
def open_folder() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are root's alone."""
    folder = Path(tempfile.mkdtemp(prefix="kilowatch-test-"))
    folder.chmod(0o755)
    try:
        yield folder
    finally:
        shutil.rmtree(folder)
