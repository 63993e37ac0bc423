"""amdgpu as a driver of the probe process: devices are the GPUs that the kernel's driver drives."""

from __future__ import annotations

import time
from pathlib import Path

from collector.amd.files import DRIVER_FOLDER
from collector.amd.gpu import AmdGpu
from collector.amd.library import EVENTS, AmdLibrary
from collector.amd.topology import place_of, read_topology
from collector.probe.driver import Turn
from collector.probe.protocol import ProbeDescription, ProbeNotice, ProbeReading, ProbeReport, ProbeStatus
from telemetry.errors import DriverError
from telemetry.notations.pci import normal_pci
from telemetry.statements.catalogue import statements

NOT_LOADED = 34
"""AMDSMI_STATUS_DRIVER_NOT_LOADED, the code that AMD's library has for it."""
STATEMENTS = {
    "vm_fault": "amd_page_fault",
    "thermal_throttle": "amd_throttled",
    "reset_begin": "amd_reset_begin",
    "reset_end": "amd_reset_succeeded",
}
"""Statement that means the same, by event of the library."""


class AmdDriver:
    """Driver for all GPUs of the machine; `collector.probe.driver.Driver` documents which thread calls what."""

    def __init__(self, root: str = "/") -> None:
        self._root = Path(root)
        self._gpus: list[AmdGpu] = []
        self._library = AmdLibrary()
        self._registered: bool | None = None

    def open(self) -> ProbeReport:
        """Find the GPUs. Raises `DriverError` where the driver is not loaded."""
        found = self._addresses()
        topology = read_topology(self._root)
        addresses = {place_of(pci): pci for pci in found}
        self._gpus = [
            AmdGpu(self._root, pci, index, topology, addresses, self._library) for index, pci in enumerate(found)
        ]
        if found:
            self._library.start()
        return ProbeReport(up=True, devices=len(found), driver_version=self._version())

    def describe(self, device: int, turn: Turn) -> ProbeDescription | None:
        """Return the description of a GPU, if it has changed."""
        del turn
        return self._gpus[device].describe()

    def read(self, device: int, lanes: int, turn: Turn) -> ProbeReading:
        """Return a GPU's readings. Raises `DriverError` when the driver as a whole is gone."""
        gpu = self._gpus[device]
        reading = gpu.presence() if not lanes else gpu.read(lanes, turn)
        if reading.status is ProbeStatus.LOST:
            self._addresses()
        return reading

    def drifted(self) -> bool:
        """Return whether the driver drives other GPUs than when it was opened. Called once on each slow lane."""
        self._library.request()
        return self._addresses() != [gpu.pci for gpu in self._gpus]

    def wait(self, seconds: float) -> list[ProbeNotice]:
        """Wait for events of the library; without it the kernel log has them."""
        if self._registered is None and self._library.ready:
            self._registered = self._library.register()
        if not self._registered:
            time.sleep(seconds)
            return []
        events = self._library.wait(int(seconds * 1000))
        if events is None:
            self._registered = None
            time.sleep(seconds)
            return []
        places = {gpu.pci: device for device, gpu in enumerate(self._gpus)}
        return [
            ProbeNotice(
                "driver_log",
                time.time_ns(),
                places.get(pci),
                statements()[STATEMENTS[EVENTS[kind]]].meaning,
                {
                    "what": STATEMENTS[EVENTS[kind]],
                    "line": f"amd-smi reports {EVENTS[kind]}: {text}".rstrip(": "),
                    "source": "amdsmi",
                },
            )
            for pci, kind, text in events
            if kind in EVENTS
        ]

    def close(self) -> None:
        """Close the library."""
        self._library.close()

    def _addresses(self) -> list[str]:
        """Return the PCI addresses of the GPUs that amdgpu drives. Raises `DriverError` where it is not loaded."""
        try:
            names = [each.name for each in (self._root / DRIVER_FOLDER).iterdir()]
        except FileNotFoundError as error:
            raise DriverError("amdgpu is not loaded", NOT_LOADED) from error
        except OSError as error:
            raise DriverError(f"sysfs: {error.strerror}") from error
        return sorted(pci for name in names if ":" in name and (pci := normal_pci(name)) is not None)

    def _version(self) -> str | None:
        """Return the version of a driver from AMD's packages, or of the kernel whose driver it is."""
        for path in ("sys/module/amdgpu/version", "proc/sys/kernel/osrelease"):
            try:
                text = (self._root / path).read_text("ascii").strip()
            except (OSError, UnicodeDecodeError):
                continue
            if text:
                return text if "module" in path else f"of Linux {text}"
        return None
