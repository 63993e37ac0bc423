"""Energy of CPU packages and memory: RAPL counters under /sys/class/powercap, summed and unwrapped."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from collector.host.open_file import Kept

_MICRO = 1e-6


class Zone:
    """One CPU package or its memory, whose counter starts anew at a range of its own (minutes at full load)."""

    def __init__(self, path: Path) -> None:
        self._file = Kept(path / "energy_uj")
        self._range = int((path / "max_energy_range_uj").read_text())
        self._last: int | None = None
        self._turns = 0

    def joules(self) -> float:
        """Return the energy since some moment before the first call. Raises `OSError`."""
        now = int(self._file.read())
        if self._last is not None and now < self._last:
            self._turns += 1
        self._last = now
        return (now + self._turns * self._range) * _MICRO

    def close(self) -> None:
        """Close the file."""
        self._file.close()


class Zones:
    """All zones of one kind of a machine."""

    def __init__(self, what: str, paths: Iterable[Path]) -> None:
        self._what = what
        self._zones = [Zone(path) for path in paths if (path / "max_energy_range_uj").exists()]

    def joules(self) -> float:
        """Return the energy of all. Raises `FileNotFoundError` when there are none, and
        `PermissionError` where only root may read them (the rule since 2020)."""
        if not self._zones:
            raise FileNotFoundError(f"no RAPL of {self._what}")
        return sum(zone.joules() for zone in self._zones)

    def close(self) -> None:
        """Close all files."""
        for zone in self._zones:
            zone.close()


def packages(root: Path) -> Zones:
    """Return the CPU packages. Raises `OSError` or `ValueError` for a tree that makes no sense."""
    # only the packages: cores and the whole platform ("psys") are parts or sums of them, and
    # `intel-rapl-mmio` shows the same package a second time; AMD has the same names
    found = _named(root, "package")
    return Zones("packages", [zone for zone in found if zone.name.count(":") == 1])


def memory(root: Path) -> Zones:
    """Return the memory of servers: it hangs below a package and is not contained in it."""
    return Zones("memory", [zone for zone in _named(root, "dram") if zone.name.count(":") == 2])


def _named(root: Path, word: str) -> list[Path]:
    zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
    return [zone for zone in zones if (zone / "name").read_text().startswith(word)]
