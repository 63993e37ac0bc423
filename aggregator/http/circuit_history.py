"""`/api/v1/circuits/<circuit>/history`: one quantity of one circuit over time, from the snapshot log.

A month is 260,000 instants on disk (18 us each to read): it is read, put into buckets and written as
text in a thread, and what is answered is bounded as it is for readings.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from aiohttp import web

from aggregator.electrical.service import SAVE_SECONDS
from aggregator.http.errors import unknown
from aggregator.http.history import step_of
from aggregator.http.reply import JSON, MUCH, VIEW, json_bytes, query, send
from aggregator.http.times import between
from api.power import CircuitHistoryReply, SnapshotKind
from power.snapshot.documents import plain
from power.snapshot.quantities import QUANTITIES
from power.snapshot.snapshot import Quantity
from telemetry.metric import Unit

QUANTITIES_OF_CIRCUITS = {
    quantity.name.removeprefix("circuit_"): quantity
    for quantity in QUANTITIES
    if quantity.snapshot_kind is SnapshotKind.CIRCUIT
}
_LAST = {Unit.STATE, Unit.SECONDS}
"""Units of which a mean says nothing."""
Wide = npt.NDArray[np.float64]


async def circuit_history(request: web.Request) -> web.Response:
    """What a circuit carried, from the snapshot log."""
    asked = query(request, "quantity", "from", "to", "step")
    view, name = request.app[VIEW], request.match_info["circuit"]
    layout = view.electrical.site.layout
    if layout is None or name not in layout.circuits:
        raise unknown("circuit", name, () if layout is None else layout.circuits)
    word = asked.get("quantity", "watts")
    quantity = QUANTITIES_OF_CIRCUITS.get(word)
    if quantity is None:
        raise unknown("quantity", word, QUANTITIES_OF_CIRCUITS, status=400)
    start, end = between(asked.get("from"), asked.get("to"), view.wall(), "-1h")
    step = step_of(asked.get("step"), (end - start) / 1e9, SAVE_SECONDS)
    if step < SAVE_SECONDS:  # most of such buckets would be empty, and look like gaps
        step = 0.0
    series = view.electrical.snapshot_log.series

    def make() -> bytes:
        found = series(SnapshotKind.CIRCUIT, name, quantity.name, start, end)
        at, numbers = _bucketed(*found, round(step * 1e9), quantity)
        return json_bytes(
            CircuitHistoryReply(
                circuit=name,
                quantity=word,
                unit=quantity.unit,
                start=start,
                end=end,
                step=step,
                at=at,
                values=numbers[0],
                low=numbers[1],
                high=numbers[2],
            )
        )

    return await send(request, make, JSON, work=MUCH + 1)


def _bucketed(
    at: npt.NDArray[np.int64], values: Wide, width: int, quantity: Quantity
) -> tuple[list[int], tuple[list[float | None], ...]]:
    """Return buckets of `width` ns, all instants for 0: their starts, and values, lowest, highest. One
    in which there is no instant is empty."""
    order = np.argsort(at, kind="stable")  # a clock that was set back
    at, values = at[order], values[order]
    if not width or not len(at):
        return at.tolist(), (numbers := _plain(values), numbers, numbers)
    bucket = (at - at[0] + at[0] % width) // width
    many = int(bucket[-1]) + 1
    starts = at[0] - at[0] % width + width * np.arange(many)
    known = np.isfinite(values)
    low, high = np.full(many, np.inf), np.full(many, -np.inf)
    np.minimum.at(low, bucket[known], values[known])
    np.maximum.at(high, bucket[known], values[known])
    shown = np.full(many, np.nan)
    if quantity.unit in _LAST:
        shown[bucket] = values  # of several the last one stays
    else:
        total = np.bincount(bucket[known], values[known], many)
        with np.errstate(invalid="ignore"):
            shown = total / np.bincount(bucket[known], minlength=many)
    return starts.tolist(), (_plain(shown), _plain(low), _plain(high))


def _plain(values: Wide) -> list[float | None]:
    return [plain(value) for value in values.tolist()]
