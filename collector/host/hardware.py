"""The machine's own devices: errors of PCI Express, temperature of the CPUs, NVMe drives.

All files are counts and states that the kernel keeps: none asks a device, so none can hang.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

FIND_SECONDS = 600.0
"""Seconds between two searches for devices: hundreds of files."""
_CLASSES = ("0x0302", "0x0300", "0x1200", "0x0200", "0x0207", "0x0108", "0x0680")
"""PCI classes whose errors matter to jobs: GPUs, accelerators, network adapters, NVMe, NVSwitches."""
_GPU, _NVIDIA = "0x03", "0x10de"
_AER = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
_CPUS = frozenset({"coretemp", "k10temp", "zenpower"})
_WHOLE = ("Package", "Tctl", "Tdie")
"""First letters of the labels of a whole CPU; the others are cores and chiplets."""
_MILLI = 1e-3
_LIVE = "live"


@dataclass(frozen=True, slots=True)
class _Sensor:
    value: Path
    critical: float | None
    """Degrees Celsius at which the CPU switches off."""


class Hardware:
    """Reader of these devices. Raises `FileNotFoundError` for what the machine does not have."""

    def __init__(self, root: Path, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._root = root
        self._monotonic = monotonic
        self._found_at: float | None = None
        self._ports: list[Path] = []
        self._sensors: list[_Sensor] = []
        self._drives: set[str] = set()
        """Drives that were there since the collector started, by serial number."""

    def find(self) -> None:
        """Search for devices, where the last search is long ago."""
        now = self._monotonic()
        if self._found_at is not None and now - self._found_at < FIND_SECONDS:
            return
        self._found_at = now
        self._ports, self._sensors = self._find_ports(), self._find_sensors()

    def pcie_errors(self) -> tuple[float, float, float]:
        """Return corrected, nonfatal and fatal errors of the devices that matter and of the bridges above
        them. Those of a GPU that NVML reads are columns of the GPU."""
        if not self._ports:
            raise FileNotFoundError("no device with AER")
        sums = [0, 0, 0]
        for folder in self._ports:
            for number, name in enumerate(_AER):
                try:
                    sums[number] += total((folder / name).read_bytes())
                except FileNotFoundError:  # it was taken out, or is being reset
                    continue
        return float(sums[0]), float(sums[1]), float(sums[2])

    def cpu_temperature(self) -> tuple[float]:
        """Return the temperature of the hottest CPU."""
        if not self._sensors:
            raise FileNotFoundError("no sensor of a CPU")
        return (max(int(each.value.read_text()) * _MILLI for each in self._sensors),)

    def cpu_headroom(self) -> tuple[float]:
        """Return the degrees to the critical temperature of the CPU that has least left."""
        left = [
            each.critical - int(each.value.read_text()) * _MILLI
            for each in self._sensors
            if each.critical is not None
        ]
        if not left:
            raise FileNotFoundError("no sensor with a critical temperature")
        return (min(left),)

    def nvme(self) -> tuple[float, float]:
        """Return the local NVMe drives that were seen since the start, and those that are live."""
        live = set()
        for folder in sorted((self._root / "sys/class/nvme").glob("nvme*")):
            try:
                if (folder / "transport").read_text().strip() != "pcie":
                    continue
                drive = (folder / "serial").read_text().strip() or folder.name
                self._drives.add(drive)
                if (folder / "state").read_text().strip() == _LIVE:
                    live.add(drive)
            except FileNotFoundError:  # it is being removed
                continue
        if not self._drives:
            raise FileNotFoundError("no NVMe drive")
        return float(len(self._drives)), float(len(live))

    def _find_ports(self) -> list[Path]:
        found: dict[Path, None] = {}
        for link in sorted((self._root / "sys/bus/pci/devices").glob("*")):
            try:
                kind, vendor = ((link / name).read_text() for name in ("class", "vendor"))
            except OSError:
                continue
            # a virtual function counts nothing
            if not kind.startswith(_CLASSES) or (link / "physfn").exists():
                continue
            device = link.resolve()
            by_nvml = kind.startswith(_GPU) and vendor.startswith(_NVIDIA)
            for folder in device.parents if by_nvml else (device, *device.parents):
                if (folder / _AER[0]).exists():
                    found[folder] = None
        return list(found)

    def _find_sensors(self) -> list[_Sensor]:
        found = []
        for chip in sorted((self._root / "sys/class/hwmon").glob("hwmon*")):
            try:
                if (chip / "name").read_text().strip() not in _CPUS:
                    continue
                inputs = sorted(chip.glob("temp*_input"))
                labels = {each: _label(each) for each in inputs}
            except OSError:
                continue
            whole = [each for each in inputs if labels[each].startswith(_WHOLE)] or inputs[:1]
            found += [_Sensor(each, _critical(each)) for each in whole]
        return found


def total(text: bytes) -> int:
    """Read a file of AER counts: the number of the last line, `TOTAL_ERR_COR 7`."""
    lines = text.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    word, count = lines[-1].split()
    if not word.startswith(b"TOTAL"):
        raise ValueError("no total")
    return int(count)


def _label(value: Path) -> str:
    try:
        return value.with_name(value.name.replace("_input", "_label")).read_text().strip()
    except FileNotFoundError:
        return ""


def _critical(value: Path) -> float | None:
    try:
        found = int(value.with_name(value.name.replace("_input", "_crit")).read_text()) * _MILLI
    except (OSError, ValueError):
        return None
    return found if 50.0 <= found <= 130.0 else None
