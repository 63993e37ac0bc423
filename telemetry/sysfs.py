"""Descriptions of files of sysfs, for the rows of the catalogue; `collector.host.fabric` reads them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PortFile:
    """A file of a port of a network adapter, one number or word."""

    path: str
    """Below `/sys/class/infiniband/<adapter>/ports/<number>`."""
    scale: float = 1.0
    bits: int = 64
    """Width of a counter. One that is narrower stays at its maximum once it is full, and counts no
    more; a wider one is never full."""
