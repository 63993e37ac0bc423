"""A disk that fails on purpose, for one process: `disk.c`, compiled on the spot."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_name("disk.c")
Mode = Literal["ok", "eio", "rofs", "short", "fsync", "lag"]


class FailingDisk:
    """What stands between a process and the files whose path holds `part`."""

    def __init__(self, folder: Path, part: str) -> None:
        compiler = shutil.which("gcc") or shutil.which("cc")
        if compiler is None:
            raise FileNotFoundError("no C compiler: apt-get install gcc")
        self._library = folder / "disk.so"
        self._mode = folder / "disk"
        self._log = folder / "disk.log"
        subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(self._library), str(SOURCE), "-ldl"],
            check=True,
        )
        self._part = part
        self.be("ok")

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to have this disk."""
        return {
            "LD_PRELOAD": str(self._library),
            "KILOWATCH_DISK": str(self._mode),
            "KILOWATCH_DISK_PATH": self._part,
        }

    def be(self, mode: Mode) -> None:
        """Change how it behaves, at once."""
        new = self._mode.with_suffix(".new")
        new.write_text(mode)
        new.rename(self._mode)

    def said(self, word: Literal["failed", "again"]) -> list[str]:
        """Files whose sync has `failed`, and those that were used `again` after that."""
        if not self._log.exists():
            return []
        lines = [line.partition(" ") for line in self._log.read_text().splitlines()]
        return [path for what, _, path in lines if what == word]
