"""Energy of the CPU packages: RAPL counters under /sys/class/powercap, summed and unwrapped."""

from __future__ import annotations

from pathlib import Path

from collector.host.kept import Kept

_MICRO = 1e-6


class Package:
    """One CPU package, whose counter starts anew at a range of its own (minutes at full load)."""

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


class Packages:
    """All CPU packages of a machine."""

    def __init__(self, root: Path) -> None:
        # only the packages: cores, memory and the whole platform ("psys") are parts or sums of
        # them, and `intel-rapl-mmio` shows the same package a second time; AMD has the same names
        zones = sorted((root / "sys/class/powercap").glob("intel-rapl:*"))
        self._packages = [
            Package(zone)
            for zone in zones
            if zone.name.count(":") == 1
            and (zone / "name").read_text().startswith("package")
            and (zone / "max_energy_range_uj").exists()
        ]

    def joules(self) -> float:
        """Return the energy of all packages. Raises `FileNotFoundError` when there are none, and
        `PermissionError` where only root may read them (the rule since 2020)."""
        if not self._packages:
            raise FileNotFoundError("no RAPL packages")
        return sum(package.joules() for package in self._packages)

    def close(self) -> None:
        """Close all files."""
        for package in self._packages:
            package.close()
