"""The live electrical state: from the readings of nodes and meters to the power snapshots of rules."""

from power.live.inputs import PowerInputs, PowerSnapshots
from power.live.state import LivePower

__all__ = ["LivePower", "PowerInputs", "PowerSnapshots"]
