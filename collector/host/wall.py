"""Power of the whole machine at the wall, from an ACPI power meter or from the BMC by IPMI.

Both can take long (a BMC answers in 0.1 to 10 s), so a thread of their own reads them. A tick uses
the newest answer; an answer that is too old is a gap, and so is a machine without a meter.
"""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collector.host.program_thread import ProgramThread
from telemetry.gap import ERROR, NO_PERMISSION, NOT_READ, NOT_SUPPORTED, TIMED_OUT

PERIOD = 5.0
"""Seconds between two requests: little load for a BMC, and often enough for a breaker's heat."""
STALE = 3.0
"""Age in periods at which an answer is too old."""
RETRY = 600.0
"""Seconds after which a machine that has no meter is asked again."""
_MICRO = 1e-6
_METERS = ("power_meter",)  # hwmon names of the whole machine; others are a GPU, a disk, a rail
_IPMI = ("dev/ipmi0", "dev/ipmi/0", "dev/ipmidev/0")
_WATTS = re.compile(r"Instantaneous power reading:\s+(\d+) Watts")
_ACTIVE = re.compile(r"Power reading state is:\s+activated")
_FREE_WATTS = re.compile(r"^Current Power\s*:\s*(\d+(?:\.\d+)?) Watts", re.MULTILINE)
_FREE_ACTIVE = re.compile(r"^Power Measurement\s*:\s*Active", re.MULTILINE)
_UNSUPPORTED = ("nvalid command", "invalid or unsupported")  # a BMC without DCMI
PROGRAMS = {"ipmitool": ("dcmi", "power", "reading"), "ipmi-dcmi": ("--get-system-power-statistics",)}
"""Programs that query a BMC, with their arguments; the first installed one is used."""


log = logging.getLogger(__name__)


class UnsupportedError(Exception):
    """This machine does not measure its power."""


def hwmon(root: Path) -> float:
    """Return watts of the ACPI power meter. Raises `UnsupportedError` or `OSError`."""
    for meter in sorted((root / "sys/class/hwmon").glob("hwmon*")):
        try:
            name = (meter / "name").read_text().strip()
        except OSError:
            continue
        if name not in _METERS:
            continue
        for file in ("power1_average", "power1_input"):
            if (meter / file).exists():
                return int((meter / file).read_text()) * _MICRO
    raise UnsupportedError("no power meter in hwmon")


def dcmi(text: str) -> float:
    """Return watts from the output of a program of `PROGRAMS`. Raises `UnsupportedError`."""
    for watts, active in ((_WATTS, _ACTIVE), (_FREE_WATTS, _FREE_ACTIVE)):
        found = watts.search(text)
        # A BMC whose measurement is switched off returns the last value, or 0.
        if found is not None and active.search(text) is not None and float(found[1]) > 0:
            return float(found[1])
    raise UnsupportedError("the BMC gives no power reading")


@dataclass(slots=True)
class _Answer:
    value: float
    at: float


class WallMeter:
    """Measures the machine's power every `PERIOD` seconds, in a thread that no tick waits for."""

    def __init__(
        self,
        root: Path,
        ipmitool: str | None,
        period: float = PERIOD,
        timeout: float = 10.0,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """`ipmitool` is the program's path, or None to never query the BMC."""
        self._root = root
        self._ipmitool = ipmitool
        self._period = period
        self._timeout = timeout
        self._monotonic = monotonic
        self._answer = _Answer(NOT_READ, monotonic())
        self._thread = ProgramThread("wall-power", self._work)

    def watts(self) -> float:
        """Return the newest answer, or its gap. Never waits; the first call starts the thread."""
        self._thread.begin()
        answer = self._answer
        wait = RETRY if answer.value is NOT_SUPPORTED else self._period
        if self._monotonic() - answer.at > STALE * wait + self._timeout:
            return TIMED_OUT
        return answer.value

    def close(self) -> None:
        """End the thread, and ipmitool if it runs; do not wait for a file that hangs."""
        self._thread.close()

    def _work(self) -> None:
        while not self._thread.ended:
            value = self._ask()
            self._answer = _Answer(value, self._monotonic())
            self._thread.wait(RETRY if value is NOT_SUPPORTED else self._period)

    def _ask(self) -> float:
        try:
            try:
                return hwmon(self._root)
            except UnsupportedError:
                return dcmi(self._bmc())
        except UnsupportedError:
            return NOT_SUPPORTED
        except PermissionError:
            return NO_PERMISSION
        except TimeoutError:
            return TIMED_OUT
        except Exception as error:
            if not isinstance(error, OSError | ValueError):
                log.exception("the power at the wall can't be read")
            return ERROR

    def _bmc(self) -> str:
        """Return the output of ipmitool. Raises errors that `_ask` turns into gaps."""
        if self._ipmitool is None or not any((self._root / path).exists() for path in _IPMI):
            raise UnsupportedError("no ipmitool, or no BMC")
        arguments = PROGRAMS.get(Path(self._ipmitool).name, PROGRAMS["ipmitool"])
        found = self._thread.run([self._ipmitool, *arguments], self._timeout)
        if found.code != 0 and not any(word in found.complaint for word in _UNSUPPORTED):
            raise OSError(found.complaint.strip() or f"{self._ipmitool} ended with {found.code}")
        return found.text
