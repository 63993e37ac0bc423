"""Parsers of files of /proc. Pure: bytes in, numbers in base units out.

Each raises `ValueError` or `IndexError` for text that the kernel does not write.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

_KIBI = 1024
_SECTOR = 512  # in diskstats always, whatever the disk's own sector is


class Cpu(NamedTuple):
    """The first line of /proc/stat, and the processes that wait for a disk."""

    busy: int
    """Clock ticks of all cores since boot: all but idle and waiting for a disk."""
    total: int
    blocked: int
    cpus: int
    """Logical CPUs online."""


def cpu(text: bytes) -> Cpu:
    """Read /proc/stat."""
    if not text.startswith(b"cpu "):
        raise ValueError("no cpu line")
    # user, nice, system, idle, iowait, irq, softirq, steal; the guests' share is part of user
    ticks = [int(word) for word in text[: text.index(b"\n")].split()[1:9]]
    total = sum(ticks)
    at = text.rindex(b"\nprocs_blocked ")
    return Cpu(total - ticks[3] - ticks[4], total, int(text[at + 15 :].split(None, 1)[0]), text.count(b"\ncpu"))


def loads(text: bytes) -> tuple[float, float, float]:
    """Read /proc/loadavg: load of 1, 5 and 15 minutes."""
    one, five, fifteen = text.split()[:3]
    return float(one), float(five), float(fifteen)


def memory(text: bytes, word: str) -> int:
    """Read one amount of /proc/meminfo, bytes. Raises `KeyError` where the kernel has none.
    Only one of fifty lines is parsed, as this is called every tick."""
    at = text.find(b"\n%s:" % word.encode())
    if at < 0 and not text.startswith(word.encode() + b":"):
        raise KeyError(word)
    return int(text[at + 1 :].split(None, 2)[1]) * _KIBI


def uptime(text: bytes) -> float:
    """Read /proc/uptime: seconds since boot."""
    return float(text.split()[0])


def pressure(text: bytes, word: str) -> float:
    """Read a file of /proc/pressure: seconds for which `some` or `full` of its tasks have waited since
    boot. Raises `KeyError` where the kernel has no such line."""
    for line in text.splitlines():
        words = line.split()
        if words[0].decode() == word:
            name, _, total = words[-1].partition(b"=")
            if name != b"total":
                raise ValueError("no total")
            return int(total) * 1e-6
    raise KeyError(word)


def statistic(text: bytes, word: str) -> int:
    """Read one count of /proc/vmstat. Raises `KeyError` where the kernel has none."""
    at = (b"\n" + text).find(b"\n%s " % word.encode())
    if at < 0:
        raise KeyError(word)
    return int(text[at:].split(None, 2)[1])


def network(text: bytes, names: Collection[str]) -> tuple[int, int]:
    """Read /proc/net/dev: bytes received and sent by the interfaces `names`."""
    received = sent = 0
    wanted = {name.encode() for name in names}
    for line in text.splitlines()[2:]:
        name, _, counts = line.partition(b":")
        if name.strip() in wanted:
            words = counts.split(None, 9)
            received += int(words[0])
            sent += int(words[8])
    return received, sent


def state(text: bytes) -> bytes:
    """Read /proc/PID/stat: the letter of the process's state. Its name may hold blanks and brackets."""
    letter = text[text.rindex(b")") + 1 :].split(None, 1)[0]
    if len(letter) != 1:
        raise ValueError("no state")
    return letter


def interfaces(text: bytes) -> list[str]:
    """Read /proc/net/dev: all interfaces but the loopback."""
    names = (line.partition(b":")[0].strip().decode() for line in text.splitlines()[2:])
    return [name for name in names if name and name != "lo"]


def disks(text: bytes, names: Collection[str]) -> tuple[int, int]:
    """Read /proc/diskstats: bytes read from and written to the disks `names`."""
    read = written = 0
    wanted = {name.encode() for name in names}
    for line in text.splitlines():
        words = line.split(None, 10)
        if words[2] in wanted:
            read += int(words[5]) * _SECTOR
            written += int(words[9]) * _SECTOR
    return read, written
