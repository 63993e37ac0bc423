"""Inputs and results of the live electrical state at one instant.

The aggregator fills a `PowerInputs` from the fleet's matrices and from the meters; nothing here reads a
clock or a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from power.meters.reading import MeterReading
from power.snapshot.snapshot import PowerSnapshot
from power.wiring import Flags, Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerInputs:
    """Readings of all machines at one instant. Arrays have one entry for each of `LivePower.machines`.

    NaN is not known. Watts of GPUs and host are inside the case (from the driver and RAPL);
    `wall_watts` is from the node's own meter.
    """

    gpu_watts: Floats
    """Sum over the GPUs that were read and are fresh; NaN when none was."""
    gpu_limit_watts: Floats
    """Sum of the enforced limits of all GPUs of the inventory; NaN when not known. A GPU that is lost
    counts with the limit that it had."""
    gpus_unread: Floats
    """GPUs of the inventory whose watts are not in `gpu_watts`: lost, hung or stale."""
    unread_limit_watts: Floats
    """Sum of the limits of those; NaN when not known: their part of `gpu_limit_watts` then."""
    gpus: Floats
    """GPUs of the inventory; NaN for a node that never reported."""
    floor_watts: Floats
    """Highest of the lowest caps that the driver accepts on the node's GPUs; NaN when not known: the
    catalogue's then."""
    host_watts: Floats
    """RAPL of packages and memory; NaN when not known."""
    module_scope: Flags
    """The GPUs' readings cover the CPU too (GH200): `host_watts` is not added again."""
    wall_watts: Floats
    """From the node's own meter at the supply's input: BMC or hwmon; NaN when it has none."""
    wall_age: Floats
    """Seconds since `wall_watts` was read; inf or NaN when never."""
    wall_period: Floats
    """Seconds between two such readings: stale is three of them, 30 s at least."""
    silent_seconds: Floats
    """Seconds since the node's last frame; inf for none."""
    interval: Floats
    """Seconds between two frames, as the node announced."""
    unheard: Flags | None = None
    """Machines that kilowatch itself does not hear now: their aggregator is gone or cut off. What they
    drew last counts for a while, and they are not taken for silent together. None for none."""
    listening: bool = True
    """Whether the aggregator is connected to the bus. While it is not, no node is silent."""
    readings: Sequence[MeterReading] = ()
    """Readings since the last tick; repeated ones are harmless."""
    metered: frozenset[tuple[str, str]] = frozenset()
    """(`circuit`, `node` or `ups`; its name) of everything with a configured meter, so that a meter that
    has never reported counts as stale."""
    jobs: Mapping[str, str] = field(default_factory=dict)
    """Name of the job on each node, shown beside the node's name in an alert."""

    @classmethod
    def unknown(cls, machines: int) -> PowerInputs:
        """Return the inputs of machines that never reported; replace fields with `dataclasses.replace`."""
        nothing = np.full(machines, np.nan)
        none = np.zeros(machines, dtype=bool)
        never, second = np.full(machines, np.inf), np.ones(machines)
        return cls(
            gpu_watts=nothing,
            gpu_limit_watts=nothing,
            gpus_unread=np.zeros(machines),
            unread_limit_watts=nothing,
            gpus=nothing,
            floor_watts=nothing,
            host_watts=nothing,
            module_scope=none,
            wall_watts=nothing,
            wall_age=never,
            wall_period=second,
            silent_seconds=never,
            interval=second,
        )


@dataclass(frozen=True, slots=True)
class PowerSnapshots:
    """The power snapshots of one tick, one for each kind."""

    circuit: PowerSnapshot
    """Circuits and panels, in the order of the layout: parents first."""
    budget: PowerSnapshot
    ups: PowerSnapshot
    supply: PowerSnapshot
    """Machines, in the order of `LivePower.machines`."""

    def all(self) -> tuple[PowerSnapshot, ...]:
        """Return all snapshots, always in the same order."""
        return self.circuit, self.budget, self.ups, self.supply
