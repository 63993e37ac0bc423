"""A GPU beside the others of its node, over time: small charts, with the median of the others in grey."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar

from aiohttp import web

from aggregator.view import AggregatorView
from aggregator.web.load_chart import LoadSeries, load_chart
from aggregator.web.past_readings import FROM_DATA, factor, median_of, readings_of
from api.device import GpuReply
from present.device.figures import CLOCK, HEAT, POWER, USE, limit_of, versus
from present.device.reading import metric_text
from telemetry.catalogue import BY_NAME
from telemetry.metric import Table

Made = TypeVar("Made")
MOST_PEERS = 8
"""Other GPUs of which the median is: each costs a question to the store."""
PEERS_IN_GREY = '<p class="dim">grey: the median of the others</p>'
METRICS = (HEAT, CLOCK, POWER, USE)
_LIMITS = {HEAT: "slows at", POWER: "limit"}
"""Words of the line that is drawn over a chart."""


class SharedPast:
    """Readings of the past as pages have asked for them, for all who look at them within ten seconds: a page beside others asks the store
    some dozens of questions, of 5 ms each."""

    SECONDS = 10.0
    MOST = 64

    def __init__(self) -> None:
        self._made: dict[tuple[str | None, ...], tuple[float, asyncio.Future[Any]]] = {}

    async def read(
        self, key: tuple[str | None, ...], make: Callable[[], Coroutine[Any, Any, Made]]
    ) -> Made:
        """Return what was made under a key lately, or make it. Raises what `make` raises."""
        now = asyncio.get_running_loop().time()
        at, made = self._made.get(key, (-math.inf, None))
        if (
            made is None
            or now - at > self.SECONDS
            or made.cancelled()
            or (made.done() and made.exception())
        ):
            made = asyncio.ensure_future(make())
            self._made.pop(key, None)
            self._made[key] = (now, made)
            while len(self._made) > self.MOST:
                self._made.pop(next(iter(self._made)))
        found: Made = await asyncio.shield(made)
        return found


SHARED_PAST = web.AppKey("shared_past", SharedPast)


class Beside(NamedTuple):
    """A reading of a GPU over time, and the median of the others."""

    own: LoadSeries
    peers: LoadSeries | None


async def past_beside(
    view: AggregatorView, gpu: str, peers: Sequence[GpuReply], metrics: Sequence[str], start: int, end: int
) -> dict[str, Beside]:  # fmt: skip
    """Return some readings of a GPU over time, each beside the others of its node."""
    found = {}
    for name in metrics:
        own = await readings_of(view, Table.GPU, gpu, name, start, end)
        others = [
            await readings_of(view, Table.GPU, one.gpu.uuid, name, start, end)
            for one in peers[:MOST_PEERS]
        ]
        found[name] = Beside(own, median_of(others))
    return found


def beside_chart(
    name: str, past: Beside, one: GpuReply, peers: Sequence[GpuReply], start: int, end: int, *, small: bool = True
) -> str:  # fmt: skip
    """Return the chart of a reading of a GPU."""
    value = limit_of(name, one.readings.get) if name in _LIMITS else None
    limits = [] if value is None else [(_LIMITS[name], value * factor(name))]
    caption = versus(name, one.readings.get, peers) if small else None
    from_zero = BY_NAME[name].unit not in FROM_DATA
    return load_chart(past.own, start, end, limits, metric_text(name), from_zero=from_zero, peers=past.peers, caption=caption)  # fmt: skip


def multiples(
    past: Mapping[str, Beside], one: GpuReply, peers: Sequence[GpuReply], start: int, end: int
) -> str:
    """Return small charts of a GPU beside each other."""
    drawn = "".join(beside_chart(name, its, one, peers, start, end) for name, its in past.items())
    return f'<div class="multiples">{drawn}</div>' if drawn else ""
