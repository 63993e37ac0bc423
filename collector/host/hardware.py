"""The machine's own devices: errors of PCI Express, temperature of the CPUs, NVMe drives, NVSwitches.

All files are counts and states that the kernel keeps: none asks a device, so none can hang.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from collector.host.open_file import OpenFile, read_small
from collector.host.parts import PartLog, pci_unit

FIND_SECONDS = 600.0
"""Seconds between two searches for devices: hundreds of files."""
AER_SECONDS = 60.0
"""Seconds in which each file of AER counts is read once, a share of them at each call: a machine has 200 of them."""
_CLASSES = ("0x0302", "0x0300", "0x1200", "0x0200", "0x0207", "0x0108", "0x0680")
"""PCI classes whose errors matter to jobs: GPUs, accelerators, network adapters, NVMe, NVSwitches."""
_GPU, _BRIDGE, _NVIDIA = "0x03", "0x0680", "0x10de"
"""An NVSwitch is a bridge of no other kind, of NVIDIA's."""
_AER = ("aer_dev_correctable", "aer_dev_nonfatal", "aer_dev_fatal")
_CPUS = frozenset({"coretemp", "k10temp", "zenpower"})
_DRIVES = frozenset({"nvme"})
_WHOLE = ("Package", "Tctl", "Tdie", "Composite")
"""First letters of the labels of a whole CPU or drive; the others are cores, chiplets and places."""
_MILLI = 1e-3
_LIVE = b"live"
_CORRECTED = "node_pcie_correctable_errors_total"
_PCIE_COUNTS = (_CORRECTED, "node_pcie_nonfatal_errors_total", "node_pcie_fatal_errors_total")
FEWEST_CORRECTED = 60
"""Corrected errors of a device of which one event tells; the rule asks for one a second."""


@dataclass(frozen=True, slots=True)
class _Sensor:
    value: OpenFile
    critical: float | None
    """Degrees Celsius at which the CPU switches off."""


class Hardware:
    """Reader of these devices. Raises `FileNotFoundError` for what the machine does not have."""

    def __init__(
        self, root: Path, monotonic: Callable[[], float] = time.monotonic, parts: PartLog | None = None
    ) -> None:
        self._root = root
        self._parts = parts or PartLog(monotonic)
        self._monotonic = monotonic
        self._found_at: float | None = None
        self._counts: dict[str, list[int]] = {}
        """Newest counts of each device with AER, by its folder."""
        self._units: dict[str, str] = {}
        """Name of each of these devices."""
        self._failed: dict[str, Exception] = {}
        """Why a device could not be read in its turn."""
        self._turn: list[str] = []
        """Folders that are still to be read in this round."""
        self._turned_at: float | None = None
        self._sensors: list[_Sensor] = []
        self._drive_sensors: list[_Sensor] = []
        self._switches: set[str] = set()
        """NVSwitches that were there since the collector started, by PCI address."""
        self._drives: dict[str, str] = {}
        """Drives that were there since the collector started: serial number, and name when first seen."""
        self._local: dict[str, str] = {}
        """Serial number of each name of a drive; "" for one that is on another machine."""

    def find(self) -> None:
        """Search for devices, where the last search is long ago."""
        now = self._monotonic()
        if self._found_at is not None and now - self._found_at < FIND_SECONDS:
            return
        self._found_at = now
        ports = [str(folder) for folder in self._find_ports()]
        self._counts = {folder: self._counts.get(folder, [0, 0, 0]) for folder in ports}
        self._failed.clear()
        self._units.clear()
        self._turned_at = None
        self._close_sensors()
        self._sensors = self._find_sensors(_CPUS)
        self._drive_sensors = self._find_sensors(_DRIVES)
        self._local = {}

    def close(self) -> None:
        """Close all files."""
        self._close_sensors()

    def _close_sensors(self) -> None:
        for sensor in (*self._sensors, *self._drive_sensors):
            sensor.value.close()

    def pcie_errors(self) -> tuple[float, float, float]:
        """Return corrected, nonfatal and fatal errors of the devices that matter and of the bridges above
        them, each as it was within `AER_SECONDS`. Those of a GPU that NVML reads are columns of the GPU."""
        if not self._counts:
            raise FileNotFoundError("no device with AER")
        for folder in self._due():
            self._failed.pop(folder, None)
            try:
                self._counts[folder] = _aer(folder)
                self._report_errors(folder)
            except (OSError, ValueError) as error:
                self._failed[folder] = error
        if self._failed:
            raise next(iter(self._failed.values()))
        corrected, nonfatal, fatal = map(sum, zip(*self._counts.values(), strict=True))
        return float(corrected), float(nonfatal), float(fatal)

    def _report_errors(self, folder: str) -> None:
        unit = self._units.get(folder)
        if unit is None:
            unit = self._units[folder] = pci_unit(folder)
        for kind, errors in zip(_PCIE_COUNTS, self._counts[folder], strict=True):
            self._parts.count(kind, unit, errors, FEWEST_CORRECTED if kind == _CORRECTED else 1)

    def _due(self) -> list[str]:
        """Return the folders whose turn it is: all at first, then as many as the time since the last call asks for."""
        now, before = self._monotonic(), self._turned_at
        self._turned_at = now
        if before is None or now - before >= AER_SECONDS:
            self._turn = []
            return list(self._counts)
        share = math.ceil(len(self._counts) * (now - before) / AER_SECONDS)
        if not self._turn:
            self._turn = list(self._counts)
        found, self._turn = self._turn[:share], self._turn[share:]
        return found

    def cpu_temperature(self) -> tuple[float]:
        """Return the temperature of the hottest CPU."""
        if not self._sensors:
            raise FileNotFoundError("no sensor of a CPU")
        return (max(int(each.value.read()) * _MILLI for each in self._sensors),)

    def cpu_headroom(self) -> tuple[float]:
        """Return the degrees to the critical temperature of the CPU that has least left."""
        return _least_left(self._sensors)

    def nvme_headroom(self) -> tuple[float]:
        """Return the degrees to the critical temperature of the NVMe drive that has least left."""
        return _least_left(self._drive_sensors)

    @property
    def has_switches(self) -> bool:
        """Whether the machine has NVSwitches of its own."""
        return bool(self._switches)

    def switches(self) -> tuple[float, float]:
        """Return the NVSwitches that were seen since the start, and those that are there now."""
        if not self._switches:
            raise FileNotFoundError("no NVSwitch")
        folder = self._root / "sys/bus/pci/devices"
        there = {each: os.access(f"{folder}/{each}", os.F_OK) for each in self._switches}
        self._parts.states("node_nvswitches_present", there, "has left the bus")
        return float(len(there)), float(sum(there.values()))

    def nvme(self) -> tuple[float, float]:
        """Return the local NVMe drives that were seen since the start, and those that are live."""
        live = set()
        parent = str(self._root / "sys/class/nvme")
        names = _names_in(parent)
        for name in names:
            folder = f"{parent}/{name}"
            try:
                drive = self._local.get(name)
                if drive is None:
                    drive = self._local[name] = _local_drive(folder)
                if not drive:
                    continue
                self._drives.setdefault(drive, name)
                if read_small(f"{folder}/state").strip() == _LIVE:
                    live.add(drive)
            except FileNotFoundError:  # it is being removed
                self._local.pop(name, None)
        for name in self._local.keys() - set(names):
            del self._local[name]
        if not self._drives:
            raise FileNotFoundError("no NVMe drive")
        states = {drive_unit(name, drive): drive in live for drive, name in self._drives.items()}
        self._parts.states("node_nvme_drives_live", states, "is gone")
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
            if kind.startswith(_BRIDGE) and vendor.startswith(_NVIDIA):
                self._switches.add(link.name)
            by_nvml = kind.startswith(_GPU) and vendor.startswith(_NVIDIA)
            for folder in device.parents if by_nvml else (device, *device.parents):
                if (folder / _AER[0]).exists():
                    found[folder] = None
        return list(found)

    def _find_sensors(self, names: frozenset[str]) -> list[_Sensor]:
        found = []
        for chip in sorted((self._root / "sys/class/hwmon").glob("hwmon*")):
            try:
                if (chip / "name").read_text().strip() not in names:
                    continue
                inputs = sorted(chip.glob("temp*_input"))
                labels = {each: _label(each) for each in inputs}
            except OSError:
                continue
            whole = [each for each in inputs if labels[each].startswith(_WHOLE)] or inputs[:1]
            found += [_Sensor(OpenFile(each), _critical(each)) for each in whole]
        return found


def _names_in(folder: str) -> list[str]:
    """Return the names of NVMe controllers in a folder; none where there is no folder."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entry.name for entry in entries if entry.name.startswith("nvme"))
    except FileNotFoundError:
        return []


def _aer(folder: str) -> list[int]:
    """Return corrected, nonfatal and fatal errors of a device. Raises `OSError` or `ValueError`."""
    found = []
    for name in _AER:
        try:
            found.append(total(read_small(f"{folder}/{name}")))
        except FileNotFoundError:  # it was taken out, or is being reset
            found.append(0)
    return found


def _local_drive(folder: str) -> str:
    """Return the serial number of a local drive, else its name; "" for one on another machine. Raises `OSError`."""
    if read_small(f"{folder}/transport").strip() != b"pcie":
        return ""
    serial = read_small(f"{folder}/serial").decode(errors="replace").strip()
    return serial or folder.rpartition("/")[2]


def total(text: bytes) -> int:
    """Read a file of AER counts: the number of the last line, `TOTAL_ERR_COR 7`."""
    lines = text.split(b"\n")
    while lines and not lines[-1].strip():
        lines.pop()
    word, count = lines[-1].split()
    if not word.startswith(b"TOTAL"):
        raise ValueError("no total")
    return int(count)


def drive_unit(name: str, serial: str) -> str:
    """Return how people know a drive: `nvme3 (serial S64GNE0R)`."""
    return f"{name} (serial {serial})" if serial not in {"", name} else name


def _least_left(sensors: list[_Sensor]) -> tuple[float]:
    """Return the least distance to a critical temperature. Raises `FileNotFoundError` where none is known."""
    left = [each.critical - int(each.value.read()) * _MILLI for each in sensors if each.critical is not None]
    if not left:
        raise FileNotFoundError("no sensor with a critical temperature")
    return (min(left),)


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
