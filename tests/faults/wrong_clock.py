"""A wall clock that is wrong on purpose, for one process: `clock.c`, compiled on the spot."""

from __future__ import annotations

import struct
from pathlib import Path

from tests.faults.disk import compiled

SOURCE = Path(__file__).with_name("clock.c")


class WrongClock:
    """The wall clock of a process; the monotonic one is right."""

    def __init__(self, folder: Path) -> None:
        self._library, self._offset = compiled(SOURCE, folder), folder / "clock"
        self._offset.write_bytes(bytes(8))

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to have this clock."""
        return {"LD_PRELOAD": str(self._library), "KILOWATCH_CLOCK": str(self._offset)}

    def be_ahead(self, seconds: float) -> None:
        """Step it, at once; less than nothing is behind."""
        with self._offset.open("r+b") as file:  # the page that the process has mapped
            file.write(struct.pack("<q", int(seconds * 1e9)))
