"""A wall clock that steps on purpose, for one process: `clock.c`, compiled on the spot."""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_name("clock.c")


class SteppedClock:
    """What stands between a process and the time of day; its steady clock is left alone."""

    def __init__(self, folder: Path) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("no C compiler: apt-get install gcc")
        self._library = folder / "clock.so"
        self._ahead = folder / "clock"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"], check=True)
        self.step(0)

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to have this clock."""
        return {"LD_PRELOAD": str(self._library), "KILOWATCH_CLOCK": str(self._ahead)}

    def step(self, seconds: float) -> None:
        """Let the clock be ahead of the true time by so much from now on; less than 0 is behind."""
        body = struct.pack("q", round(seconds * 1e9))
        if self._ahead.exists():
            with self._ahead.open("r+b") as file:  # in place: the process has it mapped
                file.write(body)
        else:
            self._ahead.write_bytes(body)
