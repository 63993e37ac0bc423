"""NVML as a source: what NVIDIA calls the states of its driver; the rest is `collector.probed`."""

from __future__ import annotations

from typing import Any

from collector.probed.source import ProbedSource
from collector.probed.states import DriverState, Wording

_BY_CODE = {
    4: DriverState(
        "no_permission",
        "This user may not open /dev/nvidia*: add it to the group that owns them, or run the "
        "collector as a user that may.",
    ),
    9: DriverState(
        "missing",
        "The NVIDIA kernel module is not loaded: run `modprobe nvidia`, and see the kernel log if that fails.",
    ),
    12: DriverState(
        "missing",
        "libnvidia-ml.so.1 is not installed: install the NVIDIA driver, or use the source "
        "nvidia-smi:FILE or simulated.",
    ),
    13: DriverState("missing", "The NVIDIA driver is too old for this collector: install release 470 or newer."),
    18: DriverState(
        "mismatched",
        "The driver was upgraded while its old kernel module is loaded: reboot, or end all GPU "
        "programs and reload the module (`rmmod nvidia_uvm nvidia; modprobe nvidia`).",
    ),
}
WORDING = Wording(
    source="nvml", library="NVML", by_code=_BY_CODE, links="nvlink", reset_hint="`nvidia-smi --gpu-reset`"
)


class NvmlSource(ProbedSource):
    """Source `nvml`; its settings are those of `ProbedSource`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__("nvml", WORDING, **settings)
