"""The control file and the counters of a fake driver library: what `facts.c` obeys and fills.

The file `control` holds one fact a line: `<gpu or *> <key> TAB <type> TAB <values>`. Changes reach a running
process with its next call. Leaving the `with` block ends every hang, so that the processes that hung can end
by themselves.
"""

from __future__ import annotations

import mmap
import struct
import threading
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

Fact = tuple[str, str]
"""Type letter and values."""


class ScriptedDriver:
    """The folder by which a fake library is scripted."""

    def __init__(self, folder: Path, functions: Sequence[str]) -> None:
        self.folder = folder
        self.folder.mkdir(parents=True)
        self._names = functions
        self._writes = 0
        self._facts: dict[str, Fact] = {}
        self._writing = threading.Lock()
        """A thread may change what a device reads while the test changes another one."""
        (self.folder / "calls").write_bytes(bytes(8 * (len(self._names) + 2)))
        (self.folder / "events").touch()

    def calls(self) -> dict[str, int]:
        """How often each function was called, by all processes together."""
        return {name: count for name, count in zip(self._names, self._counters(), strict=False) if count}

    @property
    def hanging(self) -> int:
        """How many calls hang at this moment."""
        return self._counters()[-2]

    def close(self) -> None:
        """End every hang."""
        (self.folder / "control").unlink(missing_ok=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _counters(self) -> tuple[int, ...]:
        size = 8 * (len(self._names) + 2)
        with (
            (self.folder / "calls").open("rb") as file,
            mmap.mmap(file.fileno(), size, access=mmap.ACCESS_READ) as page,
        ):
            return struct.unpack(f"{size // 8}Q", page[:size])

    @staticmethod
    def _who(gpu: int | None) -> str:
        return "*" if gpu is None else str(gpu)

    def _put(self, gpu: int | str, key: str, fact: Fact) -> None:
        self._facts[f"{gpu} {key}"] = fact

    def _write(self) -> None:
        new = self.folder / "control.new"
        with self._writing:
            with new.open("w") as file:
                for key, (kind, text) in list(self._facts.items()):
                    file.write(f"{key}\t{kind}\t{text}\n")
            new.rename(self.folder / "control")
            self._writes += 1
            with (self.folder / "calls").open("r+b") as counters, mmap.mmap(counters.fileno(), 0) as page:
                page[-8:] = struct.pack("Q", self._writes)
