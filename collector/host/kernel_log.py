"""Reader of the kernel log: the only path to XIDs that a hung driver can't block.

A thread reads /dev/kmsg (or a growing file, or a FIFO) and keeps the few lines about GPUs, and about
faults of the node that no reading shows. Missing
permission is a state and one event, never an error.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

from collector.source import DeviceEvent
from telemetry.notations.kernel_log import (
    Assembler,
    DriverNote,
    GpuLost,
    KernelRecord,
    StatedFault,
    SXid,
    Xid,
    parse_node_line,
)
from telemetry.notations.kernel_stamp import parse_stamp
from telemetry.runtime.backoff import STEADY, Backoff
from telemetry.runtime.supervision import describe, in_thread
from telemetry.statements.catalogue import statements
from telemetry.statements.node import node_statements

# From a record of the kernel log to a event on the bus.

MAX_LINE = 1024
"""Characters of the raw line that the event carries."""


def event_of(record: KernelRecord | StatedFault, line: str, at: int) -> DeviceEvent:
    """Return the event of a record; `at` is ns since 1970, `line` its (last) raw line."""
    pci: str | None = None
    match record:
        case Xid():
            data = {
                "xid": record.xid,
                "pid": record.pid,
                "process": record.process,
                "gpu_instance": record.gpu_instance,
                "compute_instance": record.compute_instance,
                "action_from": record.action[0] if record.action else None,
                "action_to": record.action[1] if record.action else None,
                "fatal": record.fatal,
                "link": record.link,
                "registers": list(record.registers) or None,
                "reset": record.reset,
                "drain_and_reset": record.drain_and_reset,
            }
            kind, message = "xid", f"XID {record.xid}: {record.detail[:200]}".rstrip(": ")
        case SXid():
            data = {
                "sxid": record.sxid,
                "switch": record.switch,
                "fatal": record.fatal,
                "link": record.link,
                "continuation": record.continuation or None,
            }
            kind, message = "sxid", f"SXID {record.sxid}: {record.detail[:200]}".rstrip(": ")
        case GpuLost():
            data, kind, message = {}, "gpu_lost", "GPU has fallen off the bus"
        case DriverNote():
            data, kind = {"what": record.what}, "driver_log"
            message = statements()[record.what].meaning
        case StatedFault():
            data, kind = {"what": record.what, "unit": record.unit}, "node_log"
            message = node_statements()[record.what].meaning
    if not isinstance(record, StatedFault):
        pci = record.pci
    raw = record.detail if isinstance(record, GpuLost) else line
    shown: dict[str, object] = {name: value for name, value in data.items() if value is not None}
    shown |= {"line": raw.strip()[:MAX_LINE], "source": "kernel"}
    return DeviceEvent(kind, at, pci=pci, message=message, data=shown)


log = logging.getLogger(__name__)

MAX_WAITING = 8192
"""Events that wait to be drained; the oldest are dropped first, and counted."""
MAX_REPORTED = 100
"""Lines on which we failed that are reported; all are counted."""
_CHUNK = 65536
_LONGEST_LINE = 65536
_POLL = 0.25
"""Seconds between two polls of a growing file."""
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
"""Seconds between two tries after a fault, or without permission."""
_RETRY = 5.0
"""Seconds between two tries to open a missing file."""
_DEVICES = Path("/dev")
_ROTATION = 20
"""Polls of a file that was moved away, before its absence is reported."""
_ESCAPE = re.compile(r"\\x([0-9a-f]{2})")


class KernelLog:
    """Reader of one log, from now on. `start`, then `drain` every tick, then `close`."""

    def __init__(
        self, path: Path | str = "/dev/kmsg", *, from_start: bool = False, clock: Callable[[], int] = time.time_ns
    ) -> None:
        self.path = Path(path)
        self.state = "new"
        """`new`, `reading`, `absent`, `no_permission`, `failed` or `closed`."""
        self.message = ""
        """The problem and its cure; "" without a problem."""
        self.overruns = 0
        """Times that messages were lost because the kernel wrote faster than we read."""
        self.dropped = 0
        self.unreadable = 0
        """Lines on which we failed ourselves."""
        self._from_start = from_start
        self._polls_left = 0
        """Further polls before a missing file is reported."""
        self._clock = clock
        self._waiting: deque[DeviceEvent] = deque(maxlen=MAX_WAITING)
        self._assembler = Assembler()
        self._wake, self._waker = os.pipe()
        self._ending = False
        self._place: tuple[tuple[int, int], int] | None = None
        """File that is followed, by device and inode, and the position up to which it was read."""
        self._newest: int | None = None
        """Number of the newest record of /dev/kmsg that was read."""
        self._thread: threading.Thread | None = None
        """The thread that reads, or did."""

    def start(self) -> None:
        """Start reading; only messages written from now on count."""
        threading.Thread(target=self._read, name="kernel-log", daemon=True).start()

    async def run(self) -> None:
        """Read until cancelled; raises what ended the thread."""
        await in_thread("kernel-log", self._read)

    def drain(self) -> list[DeviceEvent]:
        """Return the events since the last call, oldest first. Never waits."""
        drained: list[DeviceEvent] = []
        while self._waiting:
            drained.append(self._waiting.popleft())
        return drained

    def close(self) -> None:
        """Stop reading at once."""
        if self.state == "closed":
            return
        self._ending = True
        os.write(self._waker, b"x")
        if self._thread is not None:
            self._thread.join(timeout=2.0)
        self.state = "closed"
        if self._thread is None or not self._thread.is_alive():
            os.close(self._wake)
            os.close(self._waker)

    def _read(self) -> None:
        self._thread = threading.current_thread()
        faults = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, STEADY)
        while not self._ending:
            try:
                began = time.monotonic()
                self._listen()
            except FileNotFoundError:
                self._polls_left -= 1
                if self._polls_left < 0:
                    self._report_problem("absent", f"{self.path}: not there; looking for it again")
                self._from_start = True  # its content was written since
                self._asleep(_RETRY if self.path.parent == _DEVICES else _POLL)
            except PermissionError:
                self._report_problem(
                    "no_permission",
                    f"{self.path}: may not be read, so XIDs come from NVML only. Give the collector "
                    "CAP_SYSLOG, or set kernel.dmesg_restrict=0 and let its group read the file",
                )
                self._asleep(_LONGEST_PAUSE)
            except Exception as error:  # no fault may end the reader: it would look healthy
                if not isinstance(error, OSError):
                    log.exception("%s: reading it failed", self.path)
                faults.lasted(time.monotonic() - began)
                self._report_problem("failed", f"{self.path}: {describe(error)}")
                self._asleep(faults.next())

    def _listen(self) -> None:
        """Open the log and read it until `close`, or until another file takes its place."""
        mode = self.path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        # A FIFO opened for writing too never ends when its writer does.
        both = stat.S_ISFIFO(mode) and os.access(self.path, os.W_OK)
        access = os.O_RDWR if both else os.O_RDONLY
        file = os.open(self.path, access | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if stat.S_ISREG(mode):
                self._follow(file)
            else:
                if stat.S_ISCHR(mode) and self._newest is None:
                    with contextlib.suppress(OSError):  # a terminal has no end to seek
                        os.lseek(file, 0, os.SEEK_END)
                self._wait_and_read(file, records=stat.S_ISCHR(mode))
        finally:
            os.close(file)

    def _wait_and_read(self, file: int, records: bool) -> None:
        """Read a device or a FIFO. Each read of /dev/kmsg returns one record."""
        lines = _Lines()
        poll = select.poll()
        poll.register(file, select.POLLIN)
        poll.register(self._wake, select.POLLIN)
        self._clear_problem()
        while not self._ending:
            poll.poll()
            if self._ending:
                return
            try:
                data = os.read(file, _CHUNK)
            except BlockingIOError:
                continue
            except BrokenPipeError:  # the kernel's buffer wrapped around; the next read continues
                self.overruns += 1
                continue
            if not data:
                if self._asleep(_POLL):
                    return
            elif records:
                if self._is_new(data):
                    self._line(_unescaped(data.partition(b"\n")[0].decode(errors="replace")))
            else:
                for line in lines.feed(data):
                    self._line(line)

    def _follow(self, file: int) -> None:
        """Read a growing file until another takes its place; start over when it is truncated."""
        lines = _Lines()
        identity, renamed = os.fstat(file), False
        inode = (identity.st_dev, identity.st_ino)
        if self._place is not None and self._place[0] == inode:  # the same as before a fault
            position = os.lseek(file, self._place[1], os.SEEK_SET)
        else:
            position = 0 if self._from_start else os.lseek(file, 0, os.SEEK_END)
        self._from_start = True  # a file that takes its place is new from its first line
        self._clear_problem()
        while not self._ending:
            self._place = inode, position
            data = os.read(file, _CHUNK)
            if data:
                position += len(data)
                for line in lines.feed(data):
                    self._line(line)
                continue
            now = _stat(self.path)
            if now is None or (now.st_dev, now.st_ino) != inode:
                if not renamed:  # read once more: lines may have been written before the renaming
                    renamed = True
                    continue
                self._polls_left = _ROTATION
                return
            if now.st_size < position:
                position = os.lseek(file, 0, os.SEEK_SET)
                lines = _Lines()
            elif self._asleep(_POLL):
                return

    def _is_new(self, record: bytes) -> bool:
        """Return whether a record of /dev/kmsg was not read before: after a fault all are read again."""
        number = record.partition(b";")[0].split(b",")[1:2]
        if not number or not number[0].isdigit():
            return True
        if self._newest is not None and int(number[0]) <= self._newest:
            return False
        self._newest = int(number[0])
        return True

    def _line(self, line: str) -> None:
        """Read a line; our own failure on one costs that line, which is reported as it is."""
        try:
            event = self._event(line)
        except Exception:
            self.unreadable += 1
            if self.unreadable > MAX_REPORTED:
                return
            log.exception("%s: a line could not be understood: %r", self.path, line[:MAX_LINE])
            event = DeviceEvent(
                "driver_log",
                self._clock(),
                message="a line of the kernel log could not be understood",
                data={"what": "unreadable", "line": line.strip()[:MAX_LINE], "source": "kernel"},
            )
        if event is None:
            return
        if len(self._waiting) == MAX_WAITING:
            self.dropped += 1
        self._waiting.append(event)

    def _event(self, line: str) -> DeviceEvent | None:
        record = self._assembler.feed(line) or parse_node_line(line)
        if record is None:
            return None
        at = parse_stamp(line).unix_ns
        return event_of(record, line, self._clock() if at is None else at)

    def _clear_problem(self) -> None:
        self.state, self.message = "reading", ""

    def _report_problem(self, state: str, message: str) -> None:
        """Report a new problem, once."""
        if self.state != state:
            self.state, self.message = state, message
            log.warning("%s", message)
            self._waiting.append(
                DeviceEvent(
                    "driver_log",
                    self._clock(),
                    message=message,
                    data={"what": "kernel_log", "state": state, "source": "kernel"},
                )
            )

    def _asleep(self, seconds: float) -> bool:
        """Sleep, at most until `close`; return whether it was called."""
        poll = select.poll()  # a descriptor above 1,023 is none that `select` can wait for
        poll.register(self._wake, select.POLLIN)
        poll.poll(1e3 * seconds)
        return self._ending


class _Lines:
    """Splits chunks into lines; an endless line is truncated."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        *whole, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LONGEST_LINE:
            self._rest = self._rest[:_LONGEST_LINE]
        for line in whole:
            yield line.decode(errors="replace")


def _stat(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except FileNotFoundError:
        return None


def _unescaped(line: str) -> str:
    """Undo the escapes of unprintable bytes in /dev/kmsg."""
    if "\\x" not in line:
        return line
    return _ESCAPE.sub(lambda match: chr(int(match[1], 16)), line)
