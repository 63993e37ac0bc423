"""Descriptions of what the kernel says of a network port, for the rows of the catalogue; `collector.host.fabric`
reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PortFile:
    """A file of a port of an RDMA adapter, one number or word."""

    path: str
    """Below `/sys/class/infiniband/<adapter>/ports/<number>`."""
    scale: float = 1.0
    bits: int = 64
    """Width of a counter. One that is narrower stays at its maximum once it is full, and counts no
    more; a wider one is never full."""


@dataclass(frozen=True, slots=True)
class InterfaceFile:
    """A file of an Ethernet interface, one number or word."""

    file: str
    """Below `/sys/class/net/<interface>`."""
    scale: float = 1.0

    @property
    def path(self) -> str:
        """The file, as people write it."""
        return f"net/{self.file}"


@dataclass(frozen=True, slots=True)
class Statistic:
    """The sum of an interface's statistics whose names match a pattern, as `ethtool -S` has them."""

    pattern: str
    """As `fnmatch` reads it: `rx_prio[0-7]_pause`."""
    scale: float = 1.0

    @property
    def path(self) -> str:
        """The command, as people type it."""
        return f"ethtool -S: {self.pattern}"


@dataclass(frozen=True, slots=True)
class DeviceFile:
    """A file of the port's PCI device, or of the bridge above it."""

    file: str
    """Below `/sys/bus/pci/devices/<address>`."""

    @property
    def path(self) -> str:
        """The file, as people write it."""
        return f"device/{self.file}"


HostReader = PortFile | InterfaceFile | Statistic | DeviceFile
