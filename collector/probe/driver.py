"""Interface of a driver in a probe process, and the registry of drivers."""

from __future__ import annotations

import importlib
from typing import Protocol

from collector.probe.protocol import ProbeDescription, ProbeNotice, ProbeReading, ProbeReport
from telemetry.errors import ConfigError, did_you_mean

DRIVERS = {"nvml": "collector.nvml.driver:NvmlDriver", "amd": "collector.amd.driver:AmdDriver"}
"""Module and class by name; imported only in the process that runs it."""


class Turn(Protocol):
    """Permission of a worker to go on, checked between two calls."""

    abandoned: bool
    """Whether the watchdog has abandoned this thread: return without another call."""


class Driver(Protocol):
    """Calls that may block forever. Every method but `wait` is called by one worker thread.

    A worker that hangs is replaced by another, which goes on with the other devices: methods that
    take a device are never called twice at once for the same one.
    """

    def open(self) -> ProbeReport:
        """Open the driver and count its devices. Raises `DriverError`."""

    def describe(self, device: int, turn: Turn) -> ProbeDescription | None:
        """Return what a device is if that is new since the last call, else None."""

    def read(self, device: int, lanes: int, turn: Turn) -> ProbeReading:
        """Return a device's readings on the bits of `lanes`. Raises `DriverError` when the driver as a whole
        is gone."""

    def drifted(self) -> bool:
        """Return whether the set of devices has changed since the driver was opened."""

    def wait(self, seconds: float) -> list[ProbeNotice]:
        """Wait for events of the driver; called in a loop by a thread of its own."""

    def close(self) -> None:
        """Close the driver."""


def load(spec: str) -> Driver:
    """Make the driver of that name; what follows a colon is its argument. Raises `ConfigError` for a name that is
    not in the list."""
    name, colon, argument = spec.partition(":")
    if name not in DRIVERS:
        raise ConfigError("probe", f"there is no driver {name!r}", did_you_mean(name, DRIVERS))
    module, _, attribute = DRIVERS[name].partition(":")
    made = getattr(importlib.import_module(module), attribute)
    driver: Driver = made(argument) if colon else made()
    return driver
