"""Tasks that hang in the driver: the kernel names the task, and its stack names the driver."""

from __future__ import annotations

import re

from alerts.diagnosis.moment import Moment
from telemetry.kernel_log import DriverNote

_BEGINS = re.compile(r"INFO: task (.{1,64}?):\d{1,10} blocked for more than \d{1,9} seconds")
_OURS = re.compile(r"nvidia|nv_|nv-")
_STACK_SECONDS = 2.0
_STACK_LINES = 64


class HungTasks:
    """Watches for a task that is said to hang and has a frame of the driver on its stack.

    A stack comes at once behind its task; lines of other tasks may stand between.
    """

    def __init__(self) -> None:
        self._said: tuple[str, Moment] | None = None

    def feed(self, line: str, at: Moment) -> DriverNote | None:
        """Return the record that this line completes, if any."""
        begins = _BEGINS.search(line) if "INFO: task " in line else None
        if begins is not None:
            text = line[begins.start() :].strip()
            self._said = None if _OURS.match(begins[1]) else (text, at)
            return DriverNote("task_hung", None, text) if _OURS.match(begins[1]) else None
        if self._said is None or "[nvidia" not in line:
            return None
        text, since = self._said
        passed = since.before(at)
        near = at.order - since.order <= _STACK_LINES
        if near and passed is not None and 0 <= passed <= _STACK_SECONDS:
            self._said = None
            return DriverNote("task_hung", None, text)
        return None
