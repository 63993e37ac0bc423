"""The live electrical state: from what nodes and meters say now to the boards that rules read."""

from power.live.state import Live
from power.live.tick import Boards, Tick

__all__ = ["Boards", "Live", "Tick"]
