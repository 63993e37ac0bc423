"""The lines of a log on standard error, and one line in place of a thousand like it."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable

from telemetry.text.printable import PrintableFormatter

QUIET_SECONDS = 60.0
"""Seconds in which a line that differs from another in the node alone is not written."""


def log_to_stderr(level: int) -> None:
    """Write what is logged to standard error; under journald, which has a clock of its own, without the time."""
    handler = logging.StreamHandler(sys.stderr)
    form = "%(levelname)s %(name)s: %(message)s"
    under_journald = "JOURNAL_STREAM" in os.environ
    handler.setFormatter(PrintableFormatter(form if under_journald else f"%(asctime)s {form}"))
    logging.basicConfig(level=level, handlers=[handler])
    threading.excepthook = _log_thread


def _log_thread(found: threading.ExceptHookArgs) -> None:
    """Log what ends a thread, where Python would print it."""
    if found.exc_value is not None and not isinstance(found.exc_value, SystemExit):
        name = "" if found.thread is None else found.thread.name
        logging.getLogger("kilowatch").error("thread %s failed", name, exc_info=found.exc_value)


def log_many_nodes_as_one() -> None:
    """Write one line where many nodes of this process log the same."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(ManyNodes())


class ManyNodes(logging.Filter):
    """Drops lines that differ from an earlier one only in their first argument, which is the node; counts them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._seen: dict[tuple[str, str, str], tuple[float, int]] = {}
        """When a line was written last, and how many like it were dropped since."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write a line; the number of those that were dropped is added to it."""
        if not record.msg.startswith("node=%s") or not isinstance(record.args, tuple):
            return True
        key, now = (record.name, record.msg, str(record.args[1:])), self._clock()
        at, dropped = self._seen.get(key, (None, 0))
        if at is not None and now - at < QUIET_SECONDS:
            self._seen[key] = at, dropped + 1
            return False
        self._seen[key] = now, 0
        if dropped:
            record.msg += f" (and {dropped:,} lines like this one before)"
        return True
