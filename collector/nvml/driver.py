"""NVML as a driver of the probe process: devices are GPUs by index."""

from __future__ import annotations

from collector.nvml import binding
from collector.nvml.events import EventWatch
from collector.nvml.gpu import GpuReader, pci_of
from collector.probe.driver import Turn
from collector.probe.protocol import ProbeDescription, ProbeNotice, ProbeReading, ProbeReport


class NvmlDriver:
    """Driver for all GPUs of the machine; `collector.probe.driver.Driver` documents which thread calls what."""

    def __init__(self) -> None:
        self._gpus: list[GpuReader] = []
        self._events: EventWatch | None = None

    def open(self) -> ProbeReport:
        """Initialise NVML and count the GPUs. Raises `DriverError`."""
        binding.start()
        self._gpus = [GpuReader(index) for index in range(self._count())]
        self._events = EventWatch(self._gpus)
        cuda = binding.once("nvmlSystemGetCudaDriverVersion_v2")
        return ProbeReport(
            up=True,
            devices=len(self._gpus),
            driver_version=binding.once("nvmlSystemGetDriverVersion"),
            nvml_version=binding.once("nvmlSystemGetNVMLVersion"),
            excluded=_excluded(),
            cuda_version=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None,
        )

    def describe(self, device: int, turn: Turn) -> ProbeDescription | None:
        """Return the description of a GPU, if it has changed."""
        return self._gpus[device].describe(turn)

    def read(self, device: int, lanes: int, turn: Turn) -> ProbeReading:
        """Return a GPU's readings. Raises `DriverError` when the driver as a whole is gone."""
        if not lanes:
            return self._gpus[device].presence()
        return self._gpus[device].read(lanes, turn)

    def drifted(self) -> bool:
        """Return whether there are more or fewer GPUs than when NVML was initialised."""
        return self._count() != len(self._gpus)

    def wait(self, seconds: float) -> list[ProbeNotice]:
        """Wait for XIDs."""
        return self._events.wait(seconds) if self._events is not None else []

    def close(self) -> None:
        """Close the driver."""
        if self._events is not None:
            self._events.close()
        binding.stop()

    @staticmethod
    def _count() -> int:
        count = binding.once("nvmlDeviceGetCount")
        return int(count) if count is not None else 0


def _excluded() -> tuple[str, ...] | None:
    """Return the PCI addresses of the GPUs that the driver leaves out; None where it does not say."""
    count = binding.once("nvmlGetExcludedDeviceCount")
    if count is None:
        return None
    listed = [binding.once("nvmlGetExcludedDeviceInfoByIndex", each) for each in range(count)]
    return tuple(pci_of(info.pci) or "" if info is not None else "" for info in listed)
