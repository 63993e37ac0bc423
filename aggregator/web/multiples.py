"""A GPU beside the others of its node, over time: small charts, with the median of the others in grey."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from aggregator.http.history import StoredPast
from aggregator.web.load_chart import LoadSeries, load_chart
from aggregator.web.past_readings import FROM_DATA, factor, median_of, readings_of
from api.device import GpuReply
from present.device.figures import CLOCK, HEAT, POWER, USE, limit_of, versus
from present.device.reading import metric_text
from telemetry.catalogue import BY_NAME
from telemetry.metric import Table

MOST_PEERS = 8
"""Other GPUs of which the median is: each costs a question to the store."""
PEERS_IN_GREY = '<p class="dim">grey: the median of the others</p>'
METRICS = (HEAT, CLOCK, POWER, USE)
_LIMITS = {HEAT: "slows at", POWER: "limit"}
"""Words of the line that is drawn over a chart."""


class Beside(NamedTuple):
    """A reading of a GPU over time, and the median of the others."""

    own: LoadSeries
    peers: LoadSeries | None


async def past_beside(
    stored: StoredPast, gpu: str, peers: Sequence[GpuReply], metrics: Sequence[str], start: int, end: int
) -> dict[str, Beside]:
    """Return some readings of a GPU over time, each beside the others of its node."""
    found = {}
    for name in metrics:
        own = await readings_of(stored, Table.GPU, gpu, name, start, end)
        others = [await readings_of(stored, Table.GPU, one.gpu.uuid, name, start, end) for one in peers[:MOST_PEERS]]
        found[name] = Beside(own, median_of(others))
    return found


def beside_chart(
    name: str, past: Beside, one: GpuReply, peers: Sequence[GpuReply], start: int, end: int, *, small: bool = True
) -> str:
    """Return the chart of a reading of a GPU."""
    value = limit_of(name, one.readings.get) if name in _LIMITS else None
    limits = [] if value is None else [(_LIMITS[name], value * factor(name))]
    caption = versus(name, one.readings.get, peers) if small else None
    from_zero = BY_NAME[name].unit not in FROM_DATA
    label, empty = metric_text(name), one.readings.get(name) is not None
    return load_chart(
        past.own, start, end, limits, label, from_zero=from_zero, peers=past.peers, caption=caption, empty=empty
    )


def multiples(past: Mapping[str, Beside], one: GpuReply, peers: Sequence[GpuReply], start: int, end: int) -> str:
    """Return small charts of a GPU beside each other."""
    drawn = "".join(beside_chart(name, its, one, peers, start, end) for name, its in past.items())
    return f'<div class="multiples">{drawn}</div>' if drawn else ""
