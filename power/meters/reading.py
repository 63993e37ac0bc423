"""A meter's reading in base units, independent of its make.

`power.meters` decodes payloads into readings; the live state chooses the best fresh one.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

from power.devices.wall_power import WallSource


class MeterReading(msgspec.Struct, frozen=True, kw_only=True):
    """A reading of one target. Quantities that the meter does not report are None, never 0."""

    meter: str
    """Name in the configuration."""
    kind: Literal["circuit", "node", "ups"]
    """Kind of the target."""
    target: str
    """Name of the circuit, node or UPS."""
    pole: str | None = None
    """`L1`, `L2`, `L3` when it measures one pole of several."""
    parts: int = 0
    """Parts of a meter that numbers them and does not know their poles: `pole` counts the circuit's own
    poles, if it has as many, and `amps` of the whole are the sum of several conductors. 0 otherwise."""
    source: WallSource
    at: float
    """Time of arrival, monotonic seconds of the aggregator."""
    period: float
    """Seconds between two readings, as configured or observed: stale is three of them, 30 s at least."""
    watts: float | None = None
    volt_amps: float | None = None
    amps: float | None = None
    neutral_amps: float | None = None
    volts: float | None = None
    power_factor: float | None = None
    energy_joules: float | None = None
    """Counter; a decrease is a reset."""
    limit_watts: float | None = None
    """The plug's own limit: it cuts off by itself."""
    limit_amps: float | None = None
    load_ratio: float | None = None
    """UPS: load over rating."""
    runtime_seconds: float | None = None
    """UPS: remaining battery time."""
    flags: tuple[str, ...] = ()
    """UPS status words (`OL`, `OB`, `LB`, `OVER`), `tripped` for a breaker, `reversed` for a clamp
    that was put on the wrong way round, `input_lost` for a supply without input, `offline` for a
    device that reported itself offline (its `at` is then set back, so that it is stale at once)."""


class MeterFault(StrEnum):
    """Why a meter's reading is not used."""

    NONE = "none"
    FROZEN = "frozen"
    """Neither value nor counter moved while the load of its nodes did."""
    WRONG_UNIT = "wrong unit"
    """A reading of about a thousandth of what its nodes draw."""
    TOO_LOW = "below its GPUs"
    TOO_HIGH = "above what can be"
    """More than its machine or its breaker lets through, or volts of no mains."""
