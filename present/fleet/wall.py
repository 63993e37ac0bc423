"""The power of a cluster at the wall in words: how much of it is known, and of which instant it is beside its GPUs'."""

from __future__ import annotations

from typing import NamedTuple

from present.device.wall import contradicted
from present.row import FactRow, Tone
from present.units import at_least, watts
from telemetry.text import short_duration

_OLD_SECONDS = 2.0
"""Age from which it is said in any case."""


class WallSum(NamedTuple):
    """The sum over the nodes whose power at the wall is known."""

    watts: float | None = None
    nodes: int | None = None
    """How many these are; None where an older aggregator does not say."""
    partial: int = 0
    """How many of them are known in part: of GPUs that are not read nothing is in the sum."""
    age: float = 0.0
    """Seconds by which a part of it is older than the GPUs' readings."""


def wall_row(wall: WallSum, nodes: int, gpus: float | None) -> FactRow:
    """Return the sum; as note how it stands to the rest. `nodes`: of the cluster; `gpus`: watts of all GPUs that are
    read."""
    least = wall.partial > 0 or (wall.nodes is not None and wall.nodes < nodes)
    notes = [f"{wall.partial:,} in part"] if wall.partial else []
    below = not least and contradicted(wall.watts, gpus)
    if wall.age >= _OLD_SECONDS or (below and wall.age > 0):
        notes.append(f"{short_duration(wall.age)} older than the GPUs")
    elif below:
        notes.append("contradicted by the GPUs")
    tone = Tone.WARN if below and not wall.age else Tone.STRONG
    words = at_least(watts(wall.watts), partial=least)
    return FactRow("at the wall", words, tone, note=", ".join(notes))
