"""Slurm as a source of jobs: what its prolog and epilog have written on this node.

A file for each job and restart, of lines `key=value` (deploy/slurm/prolog): it is there while the job has the GPUs,
and for an hour after with its end, so that a collector that was away learns both times to the second. Slurm itself is
never asked: a cluster whose nodes all ask its controller has no controller for long.
"""

from __future__ import annotations

import dataclasses
import os
import re
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from collector.jobs.clock import without_step
from collector.jobs.ends import Conclusion, MachineStart, conclusions
from collector.jobs.memory import boot_id
from collector.jobs.source import JobsAnswer, JobsInput, Ownership, ProcessId
from telemetry.notations.purpose import declared
from telemetry.notations.slurm import SCHEDULER, gres_order, shares_gpus
from telemetry.wire.jobs import Allocation, Job, JobKey, JobSourceState, Precision

NAME = "slurm-hook"
FOLDER = Path("/run/kilowatch/jobs")
MOST_BYTES = 4096
"""Bytes of a file at most; a hook writes about 250."""
MOST_FILES = 2000
_FILE = re.compile(r"slurm-(\d{1,12})-(\d{1,6})")
_FIRST, _LAST = 946_684_800 * 10**9, 4_102_444_800 * 10**9
"""2000 and 2100, ns since 1970: between them lies every time that a hook can have written."""
_CLOCK_STEP = 1_000_000_000
"""ns by which the machine's start has to differ before it is another time."""
_MOST_NAMED = 3


class SlurmConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs of Slurm on the GPUs of a node."""

    folder: Path = FOLDER
    """Folder into which the prolog and the epilog write; `KILOWATCH_JOBS` in their environment."""
    gres_file: Path = Path("/etc/slurm/gres.conf")
    """Slurm's gres.conf: the order of its `File=` is that of Slurm's numbers of GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HookFile:
    """Content of the file of one job."""

    key: JobKey
    array: str
    component: str
    user: str
    account: str
    partition: str
    nodes: int
    gpus: tuple[int, ...]
    """Slurm's numbers of the GPUs on this node."""
    begin: int
    """ns since 1970."""
    end: int
    exit_code: int | None
    """Negative: the signal that ended it. None while it runs, and for 0: the epilog of a cancelled job is told 0, too."""
    purpose: str = ""
    boot_id: str = ""
    """Start of the machine in which it began; empty where an older prolog did not write it."""


class _ReadFile(NamedTuple):
    """A file that was read."""

    version: tuple[int, int, int]
    """Inode, size and time of change."""
    written: HookFile
    file: HookFile
    """`written` with times by the clock that is believed."""


class SlurmJobs:
    """Jobs that have, or lately had, GPUs of this node."""

    name = NAME
    interval = 1.0

    def __init__(self, config: SlurmConfig, boot: Callable[[], MachineStart] | None = None) -> None:
        """Nothing is read before the first question. `boot`: the machine's, in place of the kernel's word."""
        self._config = config
        self._boot = boot
        self._start = MachineStart("", 0)
        self._read: dict[str, _ReadFile] = {}
        """By file name."""
        self._looked = False

    def read(self, given: JobsInput) -> JobsAnswer:
        """Return the jobs whose files are there."""
        folder = self._config.folder
        try:
            check_ours(folder.stat())
            names = [entry.name for entry in os.scandir(folder) if _FILE.fullmatch(entry.name)]
            names.sort(key=_number)  # the folder's own order depends on its file system
        except FileNotFoundError:
            return _nothing("absent", f"no prolog has written to {folder}")
        except PermissionError as error:
            return _nothing("no permission", f"{folder}: {error.strerror}")
        except (OSError, ValueError) as error:
            return _nothing("failing", f"{folder}: {getattr(error, 'strerror', None) or error}")
        problems = []
        if len(names) > MOST_FILES:
            problems.append(f"{folder} has more than {MOST_FILES} files; the newest jobs are read")
            names = names[-MOST_FILES:]
        files = self._files(folder, names, problems, given)
        order, assumed = gres_order(self._config.gres_file, given.node, given.gpus)
        by_minor = {gpu.minor: gpu.uuid for gpu in given.gpus if gpu.minor is not None}
        living = _living(files, given)
        over = conclusions(
            files,
            living.__contains__,
            self._machine_start(given.at),
            given.at,
            exclusive=cache(lambda: shares_gpus(self._config.gres_file) is False),
        )
        allocations = []
        for file in files:
            for number in file.gpus:
                gpu = by_minor.get(order[number]) if number < len(order) else None
                if gpu is None:
                    problems.append(f"job {file.key.id} has GPU {number} of Slurm, which is none of this node's")
                else:
                    allocations.append(_allocation(file, gpu, over.get(file.key), assumed=bool(assumed)))
        if assumed and allocations:
            problems.append(f"{assumed}: Slurm's numbers of GPUs are taken for those of /dev/nvidiaN")
        return JobsAnswer(
            state=JobSourceState(name=NAME, message=_joined(problems)),
            jobs=tuple(_job(file, over.get(file.key)) for file in files),
            allocations=tuple(allocations),
            owners=_owners(files, given),
        )

    def close(self) -> None:
        """Nothing stays open between two questions."""

    def _machine_start(self, now: int) -> MachineStart:
        """Return the machine's start, the same at every question but after a step of the clock: it is computed of two
        clocks that are read one after the other, and a list of jobs that differs by some ns is sent again."""
        found = _boot(now) if self._boot is None else self._boot()
        if found.id != self._start.id or abs(found.at - self._start.at) > _CLOCK_STEP:
            self._start = found
        return self._start

    def _files(self, folder: Path, names: Sequence[str], problems: list[str], given: JobsInput) -> list[HookFile]:
        kept: dict[str, _ReadFile] = {}
        for name in names:
            try:
                kept[name] = self._file(folder / name, self._read.get(name), given)
            except FileNotFoundError:
                continue  # removed since
            except (OSError, ValueError) as error:
                problems.append(f"{name} is not believed: {getattr(error, 'strerror', None) or error}")
        self._read, self._looked = kept, True
        return [its.file for its in kept.values()]

    def _file(self, path: Path, before: _ReadFile | None, given: JobsInput) -> _ReadFile:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            found = os.fstat(handle)
            version = (found.st_ino, found.st_size, found.st_mtime_ns)
            if before is not None and before.version == version:
                return before
            check_ours(found)
            if not stat.S_ISREG(found.st_mode) or found.st_size > MOST_BYTES:
                raise ValueError(f"no plain file of at most {MOST_BYTES} bytes")
            written = parse(path.name, os.read(handle, MOST_BYTES))
        finally:
            os.close(handle)
        taken = {} if before is None else {before.written.begin: before.file.begin, before.written.end: before.file.end}

        def timed(at: int) -> int:
            """Return a time by the clock that is believed: what is new since the look before was written just now, under a
            step if there is one. At the first look nobody knows."""
            if at in taken or not at or not self._looked:
                return taken.get(at, at)
            return without_step(at, given.at, given.step)

        file = dataclasses.replace(written, begin=timed(written.begin), end=timed(written.end))
        if file.end and file.end < file.begin:
            raise ValueError("it ends before it begins")
        return _ReadFile(version, written, file)


def check_ours(found: os.stat_result) -> None:
    """Raise `ValueError` for a file that somebody else than root or ourselves could have written: anybody could
    blame anybody."""
    if found.st_uid not in {0, os.geteuid()}:
        raise ValueError(f"it belongs to user {found.st_uid}, not to root")
    if found.st_mode & 0o022:
        raise ValueError(f"others may write it (mode {stat.S_IMODE(found.st_mode):04o}): chmod go-w")


def parse(name: str, content: bytes) -> HookFile:
    """Return what a file says. Raises `ValueError` for one that no hook has written."""
    lines = content.decode("ascii", "strict").splitlines()
    its = dict(line.split("=", 1) for line in lines if "=" in line)
    match = _FILE.fullmatch(name)
    if match is None or its.get("job") != match[1] or its.get("restart") != match[2]:
        raise ValueError("its name and its content are of different jobs")
    begin, end = _time(its, "begin"), _time(its, "end")
    if not begin:
        raise ValueError("it has no begin")
    gpus = tuple(int(each) for each in its.get("gpus", "").split(",") if each)
    if len(set(gpus)) != len(gpus) or any(not 0 <= each < 1024 for each in gpus):
        raise ValueError("its gpus are no numbers of GPUs")
    code, _, signal = its.get("exit", "").partition(":")
    return HookFile(
        key=JobKey(SCHEDULER, its.get("cluster", ""), match[1], int(match[2])),
        array=its.get("array", ""),
        component=its.get("component", ""),
        user=its.get("user", ""),
        account=its.get("account", ""),
        partition=its.get("partition", ""),
        nodes=int(its.get("nodes") or 0),
        gpus=gpus,
        begin=begin,
        end=end,
        exit_code=(int(code or 0) or -int(signal or 0)) or None,
        boot_id=its.get("boot", ""),
        purpose=declared(its.get("comment", "")),
    )


def _time(its: Mapping[str, str], key: str) -> int:
    value = int(its.get(key) or 0)
    if value and not _FIRST < value < _LAST:
        raise ValueError(f"its {key} is no time in ns since 1970")
    return value


def _number(name: str) -> int:
    return int(name.split("-")[1])


def _nothing(state: str, message: str) -> JobsAnswer:
    return JobsAnswer(state=JobSourceState(name=NAME, state=state, message=message))


def _joined(problems: Sequence[str]) -> str:
    more = f"; and {len(problems) - _MOST_NAMED} more" if len(problems) > _MOST_NAMED else ""
    return "; ".join(problems[:_MOST_NAMED]) + more


def _job(file: HookFile, over: Conclusion | None) -> Job:
    end = file.end if over is None else over.end
    state = "RUNNING" if not end else "FAILED" if file.exit_code else "ended"
    return Job(
        key=file.key,
        user=file.user,
        account=file.account,
        queue=file.partition,
        owner=f"Array/{file.array}" if file.array else f"Component/{file.component}" if file.component else "",
        begin=file.begin,
        end=end,
        state=state,
        exit_code=file.exit_code,
        nodes=file.nodes,
        purpose=file.purpose,
    )


def _allocation(file: HookFile, gpu: str, over: Conclusion | None, *, assumed: bool) -> Allocation:
    known = Allocation(
        job=file.key,
        gpu=gpu,
        begin=file.begin,
        end=file.end,
        begin_from=Precision.HOOK,
        end_from=Precision.HOOK,
        source=NAME,
        assumed=assumed,
    )
    if over is None:
        return known
    return replace(known, end=over.end, end_from=Precision.PROCESS, end_by=over.by)


def _boot(now: int) -> MachineStart:
    return MachineStart(boot_id(), now - time.clock_gettime_ns(time.CLOCK_BOOTTIME))


def _living(files: Sequence[HookFile], given: JobsInput) -> set[JobKey]:
    """Return the runs that have a process on a GPU."""
    return {owner.job for owner in _owners(files, given).values()}


def _owners(files: Sequence[HookFile], given: JobsInput) -> dict[ProcessId, Ownership]:
    """Return the job of each process in a cgroup of Slurm: a cgroup has the job's number alone, which is that of
    its newest start."""
    newest = {file.key.id: file.key for file in sorted(files, key=lambda each: (each.key.id, each.key.restart))}
    found = {}
    for each in given.processes:
        owner = each.owner
        if owner is not None and owner.scheduler == SCHEDULER and owner.id in newest:
            found[each.id] = Ownership(newest[owner.id], owner.step, NAME)
    return found
