"""From the PIDs that a driver lists to users, programs and cgroups, by /proc.

A driver's PIDs are those of the initial PID namespace. Where ours is another one, a PID here is some other
process: then nothing is looked up, and each process is hidden. What may not be read is hidden too, and no
guess takes its place.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import NamedTuple

from collector.jobs.cgroups import CgroupReading, reading_of
from collector.jobs.source import RAY_TITLE, FoundProcess, Ownership
from collector.jobs.users import PersonFilter, UserNames
from collector.source import ListedProcess, ListedProcesses
from telemetry.wire.border import clean
from telemetry.wire.jobs import GpuProcess, JobKey
from telemetry.wire.persons import BY_USER

INITIAL_NAMESPACE = 0xEFFF_FFFC
"""Inode of the initial PID namespace: a constant of Linux."""
NO_PERMISSION, GONE, OTHER_NAMESPACE = "no permission", "gone", "other namespace"
MPS_SERVER = "nvidia-cuda-mps"
"""Name of MPS's server, cut as the kernel cuts it: it works for its clients, which are listed themselves."""
CGROUPS = "sys/fs/cgroup"
"""Folders of cgroups, below the root of the host."""
ALL_UIDS = 0xFFFF_FFFF
"""Size of the map of the initial user namespace, in which everybody is."""
_TITLE_BYTES = 64
_CHUNK = 65_536
_CLOCK_STEP = 60_000_000_000
"""ns by which the wall clock may drift before the times of starts are computed anew."""
MOST_HANDLES = 256
"""Processes whose end is learned by a handle: a service may have 1024 files open."""
RENAMED_SECONDS = 60.0
"""Seconds between two readings of a process that lives on: it may call itself otherwise since."""


class ProcessHandles:
    """Handles of processes (pidfd): one call says which have ended, and a handle never means another process
    that was given the same PID."""

    def __init__(self) -> None:
        self._handles: dict[int, int] = {}
        self._poll = select.poll()

    def add(self, pid: int) -> bool:
        """Hold a process from now on; return whether that is possible."""
        if pid not in self._handles:
            if len(self._handles) >= MOST_HANDLES:
                return False
            try:
                handle = os.pidfd_open(pid)
            except OSError:
                return False
            self._handles[pid] = handle
            self._poll.register(handle, select.POLLIN)
        return True

    def living(self) -> set[int]:
        """Return the processes that live; those that have ended are no longer held."""
        ended = {handle for handle, _ in self._poll.poll(0)}
        self.keep([pid for pid, handle in self._handles.items() if handle not in ended])
        return set(self._handles)

    def keep(self, pids: Iterable[int]) -> None:
        """Close the handles of all others."""
        for pid in self._handles.keys() - set(pids):
            handle = self._handles.pop(pid)
            self._poll.unregister(handle)
            os.close(handle)


class ProcessFacts(NamedTuple):
    """Facts that the kernel has of a process."""

    ticks: int = 0
    """Start, in clock ticks since boot; 0 of a process that is hidden."""
    name: str = ""
    uid: int | None = None
    cgroup: CgroupReading = CgroupReading()
    hidden: str = ""


class FoundProcesses(NamedTuple):
    """Processes on all GPUs, and the jobs of those whose cgroup or user is known."""

    processes: tuple[FoundProcess, ...]
    owners: Mapping[tuple[int, int], Ownership]
    refused: int
    """Processes that may not be looked up."""
    claim: str = ""
    """Line about a process that claims to be of another job, or another user's; empty without one."""


class ProcReader:
    """Reader of /proc for the processes of GPUs. Each is read whole once, and then looked at for its start:
    another start is another process."""

    def __init__(
        self,
        names: UserNames,
        persons: PersonFilter,
        *,
        root: Path = Path("/proc"),
        cgroups: Path = Path("/", CGROUPS),
        same_pids: bool = False,
        boot: int = 0,
        wall_ns: Callable[[], int] = time.time_ns,
    ) -> None:
        """`cgroups`: where the folders of the paths in /proc are. `same_pids`: the driver's PIDs are those of this
        /proc, whatever our namespace is. `boot`: when the machine was booted as a collector before this one
        computed it, ns since 1970; `wall_ns`: returns the time, ns since 1970."""
        self._names = names
        self._persons = persons
        self._root = root
        self._cgroups = cgroups
        self._same_pids = same_pids
        self._wall_ns = wall_ns
        self._known: dict[int, ProcessFacts] = {}
        self._handles = ProcessHandles()
        self._due: dict[int, float] = {}
        """When each process that is held is read again, monotonic seconds."""
        self._tick = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        self.boot = boot
        """When the machine was booted, ns since 1970."""

    def foreign(self) -> bool:
        """Return whether the PIDs of the driver are not those that we see."""
        if self._same_pids:
            return False
        try:
            return (self._root / "self/ns/pid").stat().st_ino != INITIAL_NAMESPACE
        except OSError:
            return True

    def find(self, listed: Mapping[str, ListedProcesses]) -> FoundProcesses:
        """Return the processes of all GPUs, with what is known of each."""
        self._names.refresh()
        self._set_boot()
        foreign = self.foreign()
        found: list[FoundProcess] = []
        owners: dict[tuple[int, int], Ownership] = {}
        seen: dict[int, ProcessFacts] = {}
        living = self._handles.living()
        for gpu, its in listed.items():
            for each in its.processes:
                if each.pid not in seen:
                    hidden = foreign or each.pid <= 0
                    seen[each.pid] = ProcessFacts(hidden=OTHER_NAMESPACE) if hidden else self._held(each.pid, living)
                process = self._found(gpu, its.read_at, each, seen[each.pid])
                found.append(process)
                if (owner := self._owner(seen[each.pid])) is not None:
                    owners[process.id] = owner
        self._known = {pid: facts for pid, facts in seen.items() if not facts.hidden}
        self._handles.keep(self._known)
        self._due = {pid: at for pid, at in self._due.items() if pid in self._known}
        refused = sum(facts.hidden == NO_PERMISSION for facts in seen.values())
        return FoundProcesses(tuple(found), owners, refused, self._claim())

    def _found(self, gpu: str, read_at: int, listed: ListedProcess, facts: ProcessFacts) -> FoundProcess:
        user = "" if facts.uid is None else self._persons.person(self._names.name(facts.uid))
        process = GpuProcess(
            gpu=gpu,
            instance=listed.instance,
            pid=listed.pid,
            started=0 if facts.hidden else self.boot + facts.ticks * self._tick,
            type=listed.type,
            user=user,
            name=facts.name,
            memory_bytes=listed.memory_bytes,
            sm_ratio=listed.sm_ratio,
            hidden=facts.hidden,
        )
        return FoundProcess(process=process, uid=facts.uid, owner=facts.cgroup.owner, read_at=read_at)

    def _owner(self, facts: ProcessFacts) -> Ownership | None:
        """Return the job of a process by its cgroup, else that of its user."""
        if facts.hidden or facts.uid is None or facts.name == MPS_SERVER:
            return None
        owner = facts.cgroup.owner
        if owner is None or owner.scheduler == BY_USER:
            uid = facts.uid if owner is None or owner.uid is None else owner.uid
            return Ownership(self._persons.key(JobKey(BY_USER, "", self._names.name(uid))))
        source = "slurm-cgroup" if owner.scheduler == "slurm" else "process"
        return Ownership(JobKey(owner.scheduler, "", owner.id), owner.step, source)

    def _claim(self) -> str:
        """Return what the first of the processes that are not believed claims to be; never a person's name."""
        for pid, facts in sorted(self._known.items()):
            claim = facts.cgroup.claim
            if claim is not None and claim.scheduler == BY_USER:
                return f"PID {pid} runs in the login of another user; it is shown as its own user's."
            if claim is not None:
                return f"PID {pid} claims to be {claim.scheduler} {claim.id} by a cgroup that was not made for it; it is not shown as that."
        return ""

    def _held(self, pid: int, living: set[int]) -> ProcessFacts:
        """Return what is known of a process that lives on since it was read, else what the kernel knows."""
        now = time.monotonic()
        known = self._known.get(pid)
        if known is not None and pid in living and now < self._due.get(pid, now):
            return known
        held = self._root == Path("/proc") and self._handles.add(pid)
        facts = self._facts(pid)
        # A title of Ray changes with its work, and a young process becomes another program.
        if held and facts == known and not facts.name.startswith(RAY_TITLE):
            self._due[pid] = now + RENAMED_SECONDS
        else:
            self._due.pop(pid, None)
        return facts

    def close(self) -> None:
        """Close all handles."""
        self._handles.keep(())

    def _facts(self, pid: int) -> ProcessFacts:
        """Return what the kernel knows of a process."""
        try:
            name, ticks = _stat(self._read(pid, "stat"))
            if name.startswith(RAY_TITLE):
                name = _title(self._read(pid, "cmdline", _TITLE_BYTES)) or name
            known = self._known.get(pid)
            if known is not None and known.ticks == ticks and known.name == name:
                return known
            status = self._read(pid, "status")
            uid = _uid(status)
            return ProcessFacts(ticks, clean(name), uid, self._cgroup(pid, uid))
        except (FileNotFoundError, ProcessLookupError):
            return ProcessFacts(hidden=self._why(pid))
        except (OSError, ValueError, IndexError):
            return ProcessFacts(hidden=NO_PERMISSION)

    def _cgroup(self, pid: int, uid: int) -> CgroupReading:
        """Return whose a process is by its cgroup: root may be in that of any user, and others in their own."""
        text = self._read(pid, "cgroup").decode(errors="replace")
        found = reading_of(text, self._named_by_root)
        owner = found.owner
        if owner is None or owner.uid in {None, 0, uid} or uid == 0 or self._is_inside(pid, owner.uid):
            return found
        return CgroupReading(claim=owner)

    def _is_inside(self, pid: int, uid: int) -> bool:
        """Return whether a process is in a container that a user made: it has numbers of its own there, and the user
        is in the map of its user namespace."""
        try:
            rows = self._read(pid, "uid_map").split(b"\n")
            spans = [(int(row.split()[1]), int(row.split()[2])) for row in rows if row]
        except (OSError, ValueError, IndexError):
            return False
        return any(begin <= uid < begin + count < ALL_UIDS for begin, count in spans)

    def _named_by_root(self, controllers: str, path: str) -> str:
        """Return the part of a cgroup's path that root named, to the first folder of somebody else: who owns that
        names those below. All of it where these folders are not to be seen, as from a cgroup namespace of our own."""
        folder = self._cgroups / controllers.removeprefix("name=")
        if not controllers and (folder / "unified").is_dir():
            folder /= "unified"
        names = path[1:].split("/")
        try:
            roots = {0, folder.stat().st_uid}
            for depth, name in enumerate(names, 1):
                folder /= name
                if folder.stat().st_uid not in roots:
                    return "/" + "/".join(names[:depth])
        except OSError:
            pass
        return path

    def _why(self, pid: int) -> str:
        """Return why /proc has no such process: with `hidepid` it hides those of other users."""
        if self._root != Path("/proc"):
            return GONE
        try:
            os.kill(pid, 0)
        except PermissionError:
            return NO_PERMISSION
        except OSError:
            return GONE
        return GONE  # it ended between the two looks, or the PID was given again

    def _read(self, pid: int, file: str, size: int = _CHUNK) -> bytes:
        descriptor = os.open(f"{self._root}/{pid}/{file}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, size)
        finally:
            with contextlib.suppress(OSError):
                os.close(descriptor)

    def _set_boot(self) -> None:
        """Compute when the machine was booted, again only after a step of the clock: the time is part of each
        process's identity."""
        boot = self._wall_ns() - time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        if abs(boot - self.boot) > _CLOCK_STEP:
            self.boot = boot


def _stat(content: bytes) -> tuple[str, int]:
    """Return name and start of a process from its `stat`; a name may hold blanks and brackets. Raises
    `ValueError` or `IndexError`."""
    begin, end = content.index(b"("), content.rindex(b")")
    return content[begin + 1 : end].decode(errors="replace"), int(content[end + 2 :].split()[19])


def _title(cmdline: bytes) -> str:
    """Return `ray::Class` of a worker's title, without the method that runs, which changes by the second; empty of
    a command line that is none."""
    text = cmdline.partition(b"\0")[0].decode(errors="replace")
    return text.partition(".")[0].partition("(")[0] if text.startswith(RAY_TITLE) else ""


def _uid(status: bytes) -> int:
    """Return the real user from a process's `status`. Raises `ValueError`."""
    at = status.index(b"\nUid:")
    return int(status[at + 5 :].split(None, 1)[0])
