"""The live electrical state: from what nodes and meters say now to the power snapshots that rules read."""

from power.live.inputs import PowerInputs, PowerSnapshots
from power.live.state import LivePower

__all__ = ["LivePower", "PowerInputs", "PowerSnapshots"]
