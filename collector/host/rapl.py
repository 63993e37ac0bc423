"""Energy of CPU packages and memory: RAPL counters under /sys/class/powercap, summed and unwrapped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collector.host.open_file import OpenFile

_MICRO = 1e-6


class Zone:
    """A CPU package or its memory; its counter wraps around after minutes of full load."""

    def __init__(self, path: Path) -> None:
        self._file = OpenFile(path / "energy_uj")
        self._range = int((path / "max_energy_range_uj").read_text())
        self._last: int | None = None
        self._turns = 0

    def joules(self) -> float:
        """Return the energy since a fixed moment before the first call. Raises `OSError`."""
        now = int(self._file.read())
        if self._last is not None and now < self._last:
            self._turns += 1
        self._last = now
        return (now + self._turns * self._range) * _MICRO

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Zones:
    """Zones of one kind of a machine, summed."""

    def __init__(self, what: str, paths: Iterable[Path]) -> None:
        self._what = what
        self._zones = [Zone(path) for path in paths if (path / "max_energy_range_uj").exists()]

    def joules(self) -> float:
        """Return the energy of all zones. Raises `FileNotFoundError` when there are none, and
        `PermissionError` where only root may read them (the default since 2020)."""
        if not self._zones:
            raise FileNotFoundError(f"no RAPL of {self._what}")
        return sum(zone.joules() for zone in self._zones)

    def close(self) -> None:
        """Close all files."""
        for zone in self._zones:
            zone.close()


def packages(root: Path) -> Zones:
    """Return the CPU packages. Raises `OSError` or `ValueError` for an unreadable tree."""
    # only the packages: cores and the whole platform ("psys") are parts or sums of them, and
    # `intel-rapl-mmio` shows the same package a second time; AMD has the same names
    found = _named(root, "package")
    return Zones("packages", [zone for zone in found if zone.name.count(":") == 1])


def memory(root: Path) -> Zones:
    """Return the memory zones of servers: each lies below a package, whose counter excludes it."""
    return Zones("memory", [zone for zone in _named(root, "dram") if zone.name.count(":") == 2])


def _named(root: Path, word: str) -> list[Path]:
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    return [zone for zone in zones if (zone / "name").read_text().startswith(word)]
