"""End a task or a thread of a running service by an exception, wherever it is at that moment."""

from __future__ import annotations

import asyncio
import ctypes
import logging
import threading
from typing import Any


class InjectedError(Exception):
    """An error that no code expects."""


def tasks_named(name: str) -> list[asyncio.Task[Any]]:
    """Return the running tasks of a name."""
    return [task for task in asyncio.all_tasks() if task.get_name() == name]


def fail(task: asyncio.Task[Any]) -> bool:
    """Have what the task waits for now raise `InjectedError`; return False when it can't be now.

    The exception comes out of the innermost await of the task, as one of its own would.
    """
    waiter: Any = task
    while isinstance(waiter, asyncio.Task):
        waiter = waiter._fut_waiter
    if waiter is None or waiter.done():
        return False
    waiter.set_exception(InjectedError("injected"))
    return True


def fail_all(name: str) -> bool:
    """Fail the tasks of a name; return whether there was one that could be failed now."""
    found = [fail(task) for task in tasks_named(name)]
    return any(found)


def end_thread(name: str) -> bool:
    """End a thread at its next instruction, past every `except Exception`, as SystemExit would; return
    whether there is one of that name (or of a pool of that name).

    An idle thread of a pool wakes up to it when the interpreter ends: its traceback would stand among the failures.
    """
    logging.getLogger("concurrent.futures").addFilter(_is_not_ours)
    found = [thread for thread in threading.enumerate() if thread.name == name or thread.name.startswith(f"{name}_")]
    for thread in found:
        assert thread.ident is not None
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(SystemExit))
    return bool(found)


def _is_not_ours(record: logging.LogRecord) -> bool:
    """Return whether a log record of a pool is about another end than one that a test has given it."""
    return not (isinstance(record.exc_info, tuple) and record.exc_info[0] is SystemExit)
