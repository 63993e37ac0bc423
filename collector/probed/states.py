"""States of the driver as a whole, each with its remedy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from collector.probe.protocol import ProbeReport
from telemetry.gap import Gap


class DriverState(NamedTuple):
    """State of `telemetry.wire.inventory.Inventory.driver_state`, with a message for operators."""

    state: str
    message: str = ""

    @property
    def gap(self) -> Gap:
        """Reason of absent readings while the driver is in this state."""
        return _GAPS.get(self.state, Gap.ERROR)


_GAPS = {"hung": Gap.TIMED_OUT, "no_permission": Gap.NO_PERMISSION, "released": Gap.NOT_READ}

UP = DriverState("up")
OPENING = DriverState("unknown", "The driver is being opened.")
RELEASED = DriverState("released", "Released on request; `resume` opens the driver again.")
HELD = DriverState(
    "released", "Released, but a driver call has not returned yet and holds the driver; this changes when it returns."
)
NOT_ANSWERING = DriverState(
    "hung",
    "No GPU has answered for two ticks: the driver hangs. See the kernel log; a reboot may be "
    "needed. The collector keeps trying.",
)
PROBE_SILENT = DriverState(
    "hung", "The process that reads the driver no longer runs. It was abandoned and another one started."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """Words of one vendor for the states of its driver, each with its remedy."""

    source: str
    """Name of the source in the inventory."""
    library: str
    """Name of the interface, before its error codes."""
    by_code: Mapping[int, DriverState]
    """States by the driver's error code."""
    links: str
    """Word for the links between GPUs: `nvlink`, `xgmi`."""
    reset_hint: str
    """Command that resets a GPU."""

    def after(self, report: ProbeReport) -> DriverState:
        """Return the state that a probe reports."""
        if report.up:
            text = report.message if report.devices else "The driver is up, and lists no GPU."
            return UP._replace(message=text)
        if report.code is not None and report.code in self.by_code:
            return self.by_code[report.code]
        code = f" ({self.library} code {report.code})" if report.code is not None else ""
        return DriverState("unknown", f"The driver does not open: {report.message}{code}. See the kernel log.")


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
    return DriverState("unknown", f"The process that reads the driver ended by itself ({how}); it is started again.")
