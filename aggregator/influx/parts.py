"""Points of InfluxDB as rows of a past: parts of one span joined, each where it begins to count. Pure.

What came late of a span is a point of its own, at the time of its first reading. A mean is that of all
parts, by their readings; a counter or a state is that of the newest part that has one.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from aggregator.influx.names import METRICS, keeps_last
from aggregator.model import Instants
from aggregator.store.past import Found, Longs
from telemetry.metric import Kind

Wide = npt.NDArray[np.float64]
Point = Sequence[float | None]
"""Time, frames, the value of each metric; of a roll-up then how many readings stand behind each."""


def rows_of(
    points: Sequence[tuple[int, Point]], names: Sequence[str], when: Instants, width: int
) -> Found:
    """Return what counts at an instant, as the embedded store has it; `points` are those of a device
    by its number, `width` the ns that one spans, 0 for readings."""
    ids = np.array([place for place, _ in points], np.int64)
    at = np.array([point[0] for _, point in points], np.int64)
    if not points:
        return _found(ids, at, at, {name: np.empty(0) for name in names}, when, 0)
    table = np.array([point[1:] for _, point in points], np.float64)
    values = dict(zip(names, table[:, 1:].T, strict=False))
    if not width:
        return _found(ids, at, at, values, when, 0)
    span = at // width
    order = np.lexsort((at, span, ids))
    ids, at, span, table = ids[order], at[order], span[order], table[order]
    begins = np.flatnonzero(np.r_[True, (ids[1:] != ids[:-1]) | (span[1:] != span[:-1])])
    own = table.shape[1] > 1 + len(names)  # else the frames of a point are what is known
    for number, name in enumerate(names, 1):
        counts = table[:, number + len(names)] if own else table[:, 0]
        last = keeps_last(METRICS[name])
        values[name] = _last(table[:, number], begins) if last else (
            _mean(table[:, number], counts, begins))  # fmt: skip
    newest = np.maximum.reduceat(at, begins)
    return _found(ids[begins], newest, (span[begins] + 1) * width, values, when, 2 * width)


def _mean(values: Wide, counts: Wide, begins: npt.NDArray[np.intp]) -> Wide:
    weights = np.where(np.isnan(values), 0.0, np.nan_to_num(counts, nan=1.0))
    total = np.add.reduceat(np.where(weights > 0, values, 0.0) * weights, begins)
    with np.errstate(invalid="ignore"):
        mean: Wide = total / np.add.reduceat(weights, begins)
    return mean


def _last(values: Wide, begins: npt.NDArray[np.intp]) -> Wide:
    """Return the last of each part that is a number."""
    known = np.where(np.isnan(values), -1, np.arange(len(values)))
    last = np.maximum.reduceat(known, begins)
    return np.where(last >= 0, values[last], np.nan)


def _found(
    ids: Longs, at: Longs, counts: Longs, values: dict[str, Wide], when: Instants, wide: int
) -> Found:
    """Return rows; `counts`: from when on, ns since 1970."""
    number = np.maximum(0, -(-(counts - when.first) // max(1, when.step)))
    kept = counts <= when.last
    found: Found = {
        "k": number[kept], "id": ids[kept], "ts": at[kept],
        "wide": np.full(int(kept.sum()), wide, np.int64),
    }  # fmt: skip
    for name, each in values.items():
        narrow = METRICS[name].kind is Kind.GAUGE
        found[name] = each[kept].astype(np.float32 if narrow else np.float64)
    return found
