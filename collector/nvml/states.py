"""States of the driver as a whole, each with its remedy. Pure."""

from __future__ import annotations

from typing import NamedTuple

from collector.probe.protocol import ProbeReport
from telemetry.gap import Gap


class DriverState(NamedTuple):
    """State of `telemetry.inventory.Inventory.driver_state`, with a message for operators."""

    state: str
    message: str = ""

    @property
    def gap(self) -> Gap:
        """Reason of absent readings while the driver is in this state."""
        return _GAPS.get(self.state, Gap.ERROR)


_GAPS = {
    "hung": Gap.TIMED_OUT,
    "no_permission": Gap.NO_PERMISSION,
    "released": Gap.NOT_READ,
}

UP = DriverState("up")
OPENING = DriverState("unknown", "The driver is being opened.")
RELEASED = DriverState("released", "Released on request; `resume` opens the driver again.")
HELD = DriverState(
    "released",
    "Released, but a driver call has not returned yet and holds the driver; this changes when it "
    "returns.",
)
NOT_ANSWERING = DriverState(
    "hung",
    "No GPU has answered for two ticks: the driver hangs. See the kernel log; a reboot may be "
    "needed. The collector keeps trying.",
)
PROBE_SILENT = DriverState(
    "hung",
    "The process that reads the driver no longer runs. It was abandoned and another one started.",
)

_BY_CODE = {
    4: DriverState(
        "no_permission",
        "This user may not open /dev/nvidia*: add it to the group that owns them, or run the "
        "collector as a user that may.",
    ),
    9: DriverState(
        "missing",
        "The NVIDIA kernel module is not loaded: run `modprobe nvidia`, and see the kernel log if "
        "that fails.",
    ),
    12: DriverState(
        "missing",
        "libnvidia-ml.so.1 is not installed: install the NVIDIA driver, or use the source "
        "nvidia-smi:FILE or simulated.",
    ),
    13: DriverState(
        "missing", "The NVIDIA driver is too old for this collector: install release 470 or newer."
    ),
    18: DriverState(
        "mismatched",
        "The driver was upgraded while its old kernel module is loaded: reboot, or end all GPU "
        "programs and reload the module (`rmmod nvidia_uvm nvidia; modprobe nvidia`).",
    ),
}


def after(report: ProbeReport) -> DriverState:
    """Return the state that a probe reports."""
    if report.up:
        return UP._replace(message="" if report.devices else "The driver is up, and lists no GPU.")
    if report.code in _BY_CODE:
        return _BY_CODE[report.code]
    code = f" (NVML code {report.code})" if report.code is not None else ""
    return DriverState(
        "unknown", f"The driver does not open: {report.message}{code}. See the kernel log."
    )


def opening_for(seconds: float) -> DriverState:
    """Return the state of a driver that has not opened in that time."""
    return DriverState(
        "hung",
        f"The driver has not opened for {seconds:.0f} s. See the kernel log; without persistence "
        "mode a few seconds are normal.",
    )


def crashed(exit_code: int | None) -> DriverState:
    """Return the state after the probe process ended by itself."""
    how = f"signal {-exit_code}" if exit_code is not None and exit_code < 0 else f"code {exit_code}"
    return DriverState(
        "unknown",
        f"The process that reads the driver ended by itself ({how}); it is started again.",
    )
