"""A disk that fails on purpose, for one process: `disk.c`, compiled on the spot."""

from __future__ import annotations

import filecmp
import shutil
import subprocess
from pathlib import Path
from typing import Literal

SOURCE = Path(__file__).with_name("disk.c")
Mode = Literal["ok", "eio", "rofs", "nospace", "short", "fsync", "lag"]


def compiled(source: Path, folder: Path) -> Path:
    """Return a library to load before libc, compiled into a folder."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        raise FileNotFoundError("no C compiler: apt-get install gcc")
    library = folder / source.with_suffix(".so").name
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"], check=True)
    return library


def _files(folder: Path) -> list[Path]:
    return [file for file in folder.rglob("*") if file.is_file() and not file.is_symlink()]


class FailingDisk:
    """What stands between a process and the files whose path holds `part`."""

    def __init__(self, folder: Path, part: str) -> None:
        self._library = compiled(SOURCE, folder)
        self._mode = folder / "disk"
        self._log = folder / "disk.log"
        self._part = part
        self._synced = folder / "synced"
        self.be("ok")

    @property
    def environment(self) -> dict[str, str]:
        """What a process must have in its environment to have this disk."""
        found = {"LD_PRELOAD": str(self._library), "KILOWATCH_DISK": str(self._mode), "KILOWATCH_DISK_PATH": self._part}
        if self._synced.exists():
            found["KILOWATCH_DISK_SYNCED"] = str(self._synced)
        return found

    def be(self, mode: Mode) -> None:
        """Change how it behaves, at once."""
        new = self._mode.with_suffix(".new")
        new.write_text(mode)
        new.rename(self._mode)

    def keep_synced(self, folder: Path) -> None:
        """Keep what a folder holds now, and what a process that starts from now on syncs."""
        self._synced.mkdir()
        for file in _files(folder):
            shutil.copyfile(file, self._copy(file))

    def forget_unsynced(self, folder: Path) -> tuple[int, int]:
        """Leave in a folder what was synced alone, as a power cut does; return how many files lost what
        was written later, and how many were never synced and are gone."""
        changed = gone = 0
        for file in _files(folder):
            copy = self._copy(file)
            if not copy.exists():
                file.unlink()
                gone += 1
            elif not filecmp.cmp(copy, file, shallow=False):
                shutil.copyfile(copy, file)
                changed += 1
        shutil.rmtree(self._synced)
        return changed, gone

    def _copy(self, file: Path) -> Path:
        return self._synced / str(file).replace("/", "%")

    def said(self, word: Literal["failed", "again"]) -> list[str]:
        """Files whose sync has `failed`, and those that were used `again` after that."""
        if not self._log.exists():
            return []
        lines = [line.partition(" ") for line in self._log.read_text().splitlines()]
        return [path for what, _, path in lines if what == word]
