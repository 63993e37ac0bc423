"""Allocations of this node on disk: a collector that starts again goes on with them, and what ended while
none ran ended when the one before last looked."""

from __future__ import annotations

import contextlib
import logging
import os
from pathlib import Path

import msgspec

from collector.jobs.merge import OpenAllocation
from telemetry.files import state_file
from telemetry.files.state_file import json_of
from telemetry.wire.jobs import Allocation
from telemetry.wire.persons import BY_USER, NAMED, PersonWords

log = logging.getLogger(__name__)

FILE = "jobs.json"
"""Name of the file in the state folder."""
MOST_BYTES = 4 * 1024 * 1024
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


class JobsMemory(msgspec.Struct, frozen=True, kw_only=True):
    """Content of the file."""

    boot_id: str = ""
    """Start of the machine: PIDs of another one mean nothing."""
    boot: int = 0
    """When that was, as the collector computed it: a part of each process's identity. ns since 1970."""
    open: tuple[OpenAllocation, ...] = ()
    ended: tuple[Allocation, ...] = ()
    persons: str = NAMED
    """Words for persons in which the jobs are named: `PersonWords.mark`."""

    def in_words(self, words: PersonWords) -> JobsMemory:
        """Return what may be told by other words than those of before. Of jobs that are named by their user, what ended has
        been told, and what lasts is known again by its processes unless its name can be put into the new words."""
        if self.persons == words.mark:
            return self
        renamed = (
            _renamed(each, words) if _is_users(each.allocation) else each
            for each in self.open
            if self.persons == NAMED or not _is_users(each.allocation)
        )
        ended = tuple(each for each in self.ended if not _is_users(each))
        return msgspec.structs.replace(self, open=tuple(renamed), ended=ended, persons=words.mark)


def _is_users(allocation: Allocation) -> bool:
    """Return whether the user stands in the key of an allocation's job."""
    return allocation.job.scheduler == BY_USER


def _renamed(one: OpenAllocation, words: PersonWords) -> OpenAllocation:
    job = words.key(one.allocation.job)
    return msgspec.structs.replace(one, allocation=msgspec.structs.replace(one.allocation, job=job))


def boot_id() -> str:
    """Return the identity of the machine's start; empty where the kernel gives none."""
    try:
        return _BOOT_ID.read_text("ascii").strip()
    except (OSError, UnicodeDecodeError):
        return ""


class JobsFile:
    """The file; its modification time is that of the last look."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / FILE
        self._written: JobsMemory | None = None
        self._failed = ""

    def load(self) -> tuple[JobsMemory, int]:
        """Return what was remembered, and when somebody last looked, ns since 1970. Nothing without a file that
        can be used: the allocations then begin with their first reading."""
        found = state_file.read(self._path, self._decoded, "Jobs begin anew.")
        return found or (JobsMemory(), 0)

    def _decoded(self, raw: bytes) -> tuple[JobsMemory, int]:
        if len(raw) > MOST_BYTES:
            raise ValueError(f"it has {len(raw)} bytes")
        return json_of(JobsMemory)(raw), self._path.stat().st_mtime_ns

    def save(self, memory: JobsMemory, now: int) -> None:
        """Write the file if it has changed, and note in its time that somebody looked at `now`. A disk that
        fails is logged once."""
        try:
            if memory != self._written:
                self._write(memory)
                self._written = memory
            os.utime(self._path, ns=(now, now))
            self._failed = ""
        except OSError as error:
            self._written = None
            if str(error) != self._failed:
                self._failed = str(error)
                log.warning("%s can't be written: %s", self._path, error.strerror or error)

    def _write(self, memory: JobsMemory) -> None:
        """Replace the file whole; without fsync, as a machine that crashes starts its jobs anew."""
        new = self._path.with_suffix(".new")
        try:
            new.write_bytes(msgspec.json.encode(memory))
            new.replace(self._path)
        except OSError:
            with contextlib.suppress(OSError):
                new.unlink()
            raise
