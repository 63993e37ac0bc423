"""NVLink rows of simulated GPUs: every link carries an equal share of its GPU's traffic."""

from __future__ import annotations

from collector.simulated.columns import HEAD, layout
from collector.simulated.course import Span
from collector.simulated.gpu import SimulatedGpu
from telemetry.schema import LINK_FAST, LINK_SLOW

SPEED = 26.562e9
"""Bytes a second of one fourth-generation link in one direction, as the driver shows it."""

_PICK_FAST = layout(LINK_FAST, ("link_state",))
_PICK_SLOW = layout(
    LINK_SLOW,
    ("link_speed_bytes_per_second", "link_transmit_bytes_total", "link_receive_bytes_total"),
    frozenset(
        {
            "link_replays_total",
            "link_recoveries_total",
            "link_recoveries_successful_total",
            "link_recoveries_failed_total",
            "link_crc_errors_total",
        }
    ),
)


def link_fast(gpu: SimulatedGpu) -> list[list[float]]:
    """Return one row for each link of a GPU: all are up."""
    return [list(_PICK_FAST((*HEAD, 1.0))) for _ in range(gpu.board.links)]


def link_slow(gpu: SimulatedGpu, second: int, span: Span) -> list[list[float]]:
    """Return one row for each link of a GPU at a second, which lies in `span`."""
    levels, shift = gpu.job.programme.levels_until, gpu.shift
    load = levels(second + shift) - levels(span.boot - 1 + shift)
    share = load * gpu.board.nvlink_rate / max(1, gpu.board.links)
    return [
        list(_PICK_SLOW((*HEAD, SPEED, int(share * (1.0 + number * 1e-4)), int(share))))
        for number in range(gpu.board.links)
    ]
