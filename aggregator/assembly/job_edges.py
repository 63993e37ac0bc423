"""Counters of GPUs at the begins and ends of jobs, brought from the store to the jobs."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import numpy as np

from aggregator.jobs.edges import COUNTER, SECOND, EdgeWindow, OfGpu, Readings
from aggregator.jobs.service import JobService
from aggregator.jobs.usage import LONGEST_HOLD
from aggregator.store.executor import StoreExecutor
from aggregator.store.protocol import PastInstants
from telemetry.errors import StoreError
from telemetry.metric import Lane, Table

log = logging.getLogger(__name__)

FINE = SECOND // 50
"""Readings that lie as far from each other are found where those a second apart do not suffice."""


async def count_edges(
    jobs: JobService, store: StoreExecutor, wall_ns: int, turn: Callable[[], Awaitable[None]]
) -> None:
    """Read what is to be looked for now, in steps between which others have their `turn`."""
    failed = False
    for window in jobs.energy.due(wall_ns):
        readings: Readings = {}
        if not failed:
            try:
                readings = await _counters(store, window)
            except StoreError as error:  # asked again later
                log.warning("store: the energy of jobs is counted later: %s", error)
                failed = True
        for part in window.parts():
            jobs.energy.note(part, readings)
            await turn()


async def _counters(store: StoreExecutor, window: EdgeWindow) -> Readings:
    """Return what the store has of counters of GPUs around the edges of a window. Raises `StoreError`."""
    found = await _read(store, PastInstants(window.first, SECOND, window.count), window.nodes)
    for second, nodes in window.unpreceded(found).items():
        finer = await _read(store, PastInstants(second + FINE, FINE, SECOND // FINE), nodes)
        for gpu in found.keys() & finer.keys():
            (times, joules), (more_times, more_joules) = found[gpu], finer[gpu]
            found[gpu] = np.append(times, more_times), np.append(joules, more_joules)
    return found


async def _read(store: StoreExecutor, instants: PastInstants, nodes: list[str]) -> dict[tuple[str, str], OfGpu]:
    reach = {Lane.FAST: int(LONGEST_HOLD) * SECOND}
    past = await store.past(Table.GPU, [COUNTER], instants, reach, nodes)
    times, joules = past.seen[Lane.FAST], past.columns[COUNTER]
    return {
        (each.node, each.key): (times[:, at], joules[:, at].astype(np.float64)) for at, each in enumerate(past.devices)
    }
