"""What goes into the live electrical state at one instant, and what comes out of it.

The aggregator fills a `PowerInputs` from the fleet's matrices and from the meters; nothing here reads a
clock or a network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from power.meters.reading import MeterReading
from power.network.wiring import Flags, Floats
from power.snapshot.snapshot import PowerSnapshot


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerInputs:
    """What is known of all machines now. Arrays have one entry for each of `Live.machines`.

    NaN is not known. Watts of GPUs and host are inside the case (what the driver and RAPL say);
    `wall_watts` is what the node's own wall meter says.
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
    """GPUs of the inventory; NaN for a node that was never heard."""
    floor_watts: Floats
    """Lowest cap that the driver takes on each of the node's GPUs, the highest of them; NaN when not
    known: the catalogue's then."""
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
    """Seconds since the node was heard; inf: never."""
    interval: Floats
    """Seconds between two frames, as the node promised."""
    listening: bool = True
    """Whether the aggregator hears the bus. While it does not, nobody is called silent."""
    readings: Sequence[MeterReading] = ()
    """Those that came since the last tick; one that is given again does no harm."""
    metered: frozenset[tuple[str, str]] = frozenset()
    """(`circuit`, `node` or `ups`; its name) of everything that a meter is configured for, so that a
    meter that has never spoken is missed too."""
    jobs: Mapping[str, str] = field(default_factory=dict)
    """What runs on a node, for people: its name beside the node's in an alert."""

    @classmethod
    def unknown(cls, machines: int) -> PowerInputs:
        """Return the tick of a fleet that nobody has heard; `dataclasses.replace` what you know."""
        nothing = np.full(machines, np.nan)
        none = np.zeros(machines, dtype=bool)
        never, second = np.full(machines, np.inf), np.ones(machines)
        return cls(
            gpu_watts=nothing, gpu_limit_watts=nothing, gpus_unread=np.zeros(machines),
            unread_limit_watts=nothing, gpus=nothing, floor_watts=nothing, host_watts=nothing,
            module_scope=none, wall_watts=nothing, wall_age=never, wall_period=second,
            silent_seconds=never, interval=second,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class PowerSnapshots:
    """All that follows, a power snapshot a kind."""

    circuit: PowerSnapshot
    """Circuits and panels, in the order of the layout: parents first."""
    budget: PowerSnapshot
    ups: PowerSnapshot
    supply: PowerSnapshot
    """The machines, in the order of `Live.machines`."""

    def all(self) -> tuple[PowerSnapshot, ...]:
        """Return them in one order."""
        return self.circuit, self.budget, self.ups, self.supply
