"""Power at the wall beside that of the GPUs that it feeds: one of two readings that contradict each other is wrong, and
both are shown."""

from __future__ import annotations

from api.device import WallAndGpus
from present.units import watts
from telemetry.text import short_duration

CONTRADICTED = "contradicted"


def contradicted(wall: float | None, gpus: float | None) -> bool:
    """Return whether a reading at the wall is below what the GPUs behind it read at the same time, watts."""
    return wall is not None and gpus is not None and wall < gpus


def contradiction(power: WallAndGpus) -> str:
    """Return how the reading at the wall and those of the GPUs contradict each other, with their ages; "" where they
    do not."""
    if power.state != CONTRADICTED:
        return ""
    at_wall, at_gpus = _old(power.wall_age_seconds), _old(power.gpu_age_seconds)
    return f"{CONTRADICTED}{at_wall}: its GPUs draw {watts(power.gpu_watts)}{at_gpus}"


def _old(age: float | None) -> str:
    return "" if age is None else f", {short_duration(age)} old"
