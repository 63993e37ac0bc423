"""Power at the wall beside that of the GPUs that it feeds: one of two readings that contradict each other is wrong, and
both are shown."""

from __future__ import annotations


def contradicted(wall: float | None, gpus: float | None) -> bool:
    """Return whether a reading at the wall is below what the GPUs behind it read at the same time, watts."""
    return wall is not None and gpus is not None and wall < gpus
