"""Error messages of nvidia-smi instead of a log, with their remedies."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Failure:
    """Failure of the driver as a whole."""

    state: str
    """State for `Inventory.driver_state`."""
    message: str
    """Problem and remedy."""


_FAILURES = (
    (
        r"couldn't communicate with the NVIDIA driver",
        "missing",
        "the driver is not loaded. Install it, or load it with `modprobe nvidia` and see `dmesg`",
    ),
    (
        r"driver/library version mismatch",
        "mismatched",
        "the driver was upgraded while the old one runs. Reboot, or unload and load its modules",
    ),
    (
        r"couldn't find libnvidia-ml|libnvidia-ml\.so",
        "missing",
        "the driver's library libnvidia-ml.so.1 is not installed, or not in this container",
    ),
    (
        r"Failed to initialize NVML: (Insufficient Permissions|No Permission)",
        "no_permission",
        "this user may not open /dev/nvidiactl. Add it to the group that owns the device",
    ),
    (
        r"Failed to initialize NVML: Unknown Error",
        "missing",
        "the devices can't be opened; a container loses them when its cgroup is reloaded. Restart it",
    ),
    (
        r"Failed to initialize NVML: Driver Not Loaded",
        "missing",
        "the driver is not loaded. Load it with `modprobe nvidia`",
    ),
    (r"Failed to initialize NVML", "missing", "the driver does not answer. See `dmesg`"),
    (r"No devices were found", "up", "the driver is loaded and finds no GPU. See `lspci -d 10de:`"),
)


def failure_of(text: str) -> Failure | None:
    """Return the failure that an output of nvidia-smi describes, or None when it is unknown."""
    head = text[:4096]
    for pattern, state, cure in _FAILURES:
        match = re.search(pattern, head, re.IGNORECASE)
        if match is not None:
            start = head.rfind("\n", 0, match.start()) + 1
            line = head[start:].split("\n", 1)[0].strip()[:200]
            return Failure(state, f"nvidia-smi printed '{line}': {cure}.")
    return None
