"""The parts of the work that are shed now, as others ask for them, and the counts of what was shed."""

from __future__ import annotations

from dataclasses import dataclass, field

from aggregator.load.controller import PARTS, ShedStep

COALESCED_FLUSH = 2.0
"""Seconds between two updates of the fleet while not every frame is decoded: two intervals of a
usual node, so that nothing is stale in between."""
SLOW_VIEWER_EVERY = 10.0
"""Seconds between two updates of a viewer that is slowed down."""
RETRY_AFTER = 30
"""Seconds after which a refused viewer may try again."""


@dataclass(slots=True)
class Shedding:
    """Written by `LoadShedder`, read by ingest, the rules and HTTP; one loop owns it."""

    step: ShedStep = ShedStep.NOTHING
    reason: str = ""
    """Why; empty while nothing is shed."""
    refill: float = 1.0
    """Share of the usual requests for missing frames that may be under way."""
    readings: dict[str, float] = field(default_factory=dict)
    """The newest measurements, by the name of their `LoadSignal`."""
    seconds: dict[str, float] = field(default_factory=lambda: dict.fromkeys(PARTS, 0.0))
    """For how long each part was shed since the start."""
    frames: int = 0
    """Frames that were shown and not stored one by one."""
    frames_skipped: int = 0
    """Frames that were not decoded, because a newer one of their node was there."""
    viewers_refused: int = 0
    pages_reduced: int = 0

    def behind(self) -> float:
        """Return the seconds by which what comes is read late, by us or by the broker: of nodes that seem silent it
        is not known whether they are."""
        return max(self.readings.get(name) or 0.0 for name in ("ingest", "arrival"))

    def sheds(self, part: str) -> bool:
        """Return whether a part, one of `PARTS`, is shed now."""
        return self.step >= PARTS[part]

    def history_of(self, node: str) -> bool:
        """Return whether the frames of a node are shed. Which half of the nodes is the first
        differs from start to start."""
        return self.step >= ShedStep.HISTORY or (self.step is ShedStep.HALF_HISTORY and hash(node) & 1 == 0)

    @property
    def coalesces(self) -> bool:
        """Whether only the newest frame of each node is decoded."""
        return self.step >= ShedStep.FRAMES

    @property
    def flush_seconds(self) -> float:
        """Least seconds between two updates of the fleet."""
        return COALESCED_FLUSH if self.coalesces else 0.0

    @property
    def viewer_seconds(self) -> float:
        """Least seconds between two updates of a viewer."""
        return SLOW_VIEWER_EVERY if self.sheds("viewers") else 0.0

    @property
    def refuses_viewers(self) -> bool:
        """Whether new viewers from other machines are refused."""
        return self.step >= ShedStep.VIEWERS
