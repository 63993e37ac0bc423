"""History from InfluxDB, in InfluxQL: the one language that 1.x, 2.x and 3.x all have.

Whole buckets come from the coarsest roll-up that divides the step; what no roll-up has yet, the
newest minutes, comes from the means or readings. What is too old for these to be kept comes from the
finest roll-up that has it, in buckets of its own width if they are wider. Names are those of the
catalogue, texts are quoted, and only SELECT is ever sent.
"""

from __future__ import annotations

from typing import Any

from aggregator.influx.client import InfluxClient, UnreachableError
from aggregator.influx.names import METRICS, TAGS, frames_field, keeps_last, measurement, policy
from aggregator.influx.setup import refused
from aggregator.settings.influx import InfluxConfig
from aggregator.store.history import HistoryRow, bucket_width, filled, series_of
from aggregator.store.protocol import HistorySeries
from aggregator.store.rollup import high, low, readings
from telemetry.errors import StoreError
from telemetry.metric import Lane, Metric, Table

SECOND = 10**9
Row = tuple[int, float | None, float | None, float | None, float]
"""Start of a bucket, ns; mean or last, lowest, highest; the number of its readings."""
OLDEST = 0
NEWEST = 9_000_000_000 * SECOND
"""Times that the server can still count."""


class InfluxReader:
    """Queries to a server; used by any thread."""

    def __init__(self, config: InfluxConfig, cluster: str) -> None:
        self.config = config
        self._client = InfluxClient(config)
        self.cluster = cluster

    def history(self, device: str, metric: str, start: int, end: int, step: float) -> HistorySeries:
        """Return one metric of one device, as `Store.history`. Raises `StoreError`."""
        known = METRICS.get(metric)
        if known is None:
            raise StoreError(f"history: there is no metric {metric!r}; docs/metrics.md names them all")
        if step and known.lane is Lane.FAST:
            step = max(step, self.config.every_seconds)  # shorter buckets would be mostly empty
        start, end = max(start, OLDEST), min(end, NEWEST)
        everything = (start, end) == (OLDEST, NEWEST)  # the server returns buckets that exist
        width = round(step * SECOND) if everything else bucket_width(step, start, end)
        found, width = self._found(known, device, start, end, width)
        return series_of(device, metric, max(step, width / SECOND), found)

    def close(self) -> None:
        """Close the connection, and abort a query under way."""
        self._client.interrupt()
        self._client.close()

    def _every(self, metric: Metric, device: str, start: int, end: int) -> list[HistoryRow]:
        """Return each reading or mean, and a gap where a frame had none."""
        text = (
            f'SELECT "{metric.name}", "{frames_field(metric.lane)}" FROM {source_of(metric.table)} '
            f"WHERE {self._of(metric, device, start, end)}"
        )
        return [(row[0], row[1], row[1], row[1]) for row in self._rows(text)]

    def _found(self, metric: Metric, device: str, start: int, end: int, width: int) -> tuple[list[HistoryRow], int]:
        """Return rows and the width of a bucket: the requested one, or a wider one where nothing finer is
        kept."""
        rollup = self._rollup(width) if width else 0
        while True:
            found = (
                self._buckets(metric, device, start, end, width, rollup)
                if width
                else (self._every(metric, device, start, end))
            )
            begin = found[0][0] if found else end
            coarser = (step for step in self.config.rollup_seconds if step > rollup)
            rollup = next((step for step in coarser if self._any(metric, device, start, begin, step)), 0)
            if not rollup:
                return found, width
            width = max(width, rollup * SECOND)

    def _any(self, metric: Metric, device: str, start: int, end: int, step: int) -> bool:
        """Return whether a roll-up has a whole bucket between two times."""
        last = end - step * SECOND
        text = (
            f'SELECT "{frames_field(metric.lane)}" FROM {source_of(metric.table, step)} '
            f"WHERE {self._of(metric, device, start, last)} LIMIT 1"
        )
        return start < last and bool(self._rows(text))

    def _buckets(self, metric: Metric, device: str, start: int, end: int, width: int, rollup: int) -> list[HistoryRow]:
        found: list[Row] = []
        begin = start
        if rollup:
            found = self._rolled(metric, device, start, end, width, rollup)
            begin = max(start, self._covered(metric, device, start, end, rollup))
        if begin < end:
            newest = self._plain(metric, device, begin, end, width)
            found = _merged(found, newest, last=metric.kind == "counter")
        return filled([row[:4] for row in found], width)

    def _rollup(self, width: int) -> int:
        """Return the longest step that divides the buckets; 0 for none."""
        fitting = [step for step in self.config.rollup_seconds if width % (step * SECOND) == 0]
        return max(fitting, default=0)

    def _covered(self, metric: Metric, device: str, start: int, end: int, step: int) -> int:
        """Return up to when there is a roll-up, ns."""
        text = (
            f'SELECT last("{frames_field(metric.lane)}") FROM {source_of(metric.table, step)} '
            f"WHERE {self._of(metric, device, start, end)}"
        )
        rows = self._rows(text)
        if not rows:
            return start
        return int(rows[-1][0] // (step * SECOND) + 1) * step * SECOND

    def _rolled(self, metric: Metric, device: str, start: int, end: int, width: int, step: int) -> list[Row]:
        name, where = metric.name, self._of(metric, device, start, end)
        source, grouped = source_of(metric.table, step), _grouped(width)
        if metric.kind == "counter":
            text = f'SELECT last("{name}") FROM {source} WHERE {where} {grouped}'
            return [(row[0], row[1], row[1], row[1], 1.0) for row in self._rows(text)]
        if keeps_last(metric):
            text = (
                f'SELECT mean("{name}"), min("{low(name)}"), max("{high(name)}"), '
                f'sum("{readings(name)}") FROM {source} WHERE {where} {grouped}'
            )
            return [(row[0], row[1], row[2], row[3], row[4] or 0.0) for row in self._rows(text)]
        inner = (
            f'SELECT "{name}" * "{readings(name)}" AS "p", "{readings(name)}" AS "n", '
            f'"{low(name)}" AS "low", "{high(name)}" AS "high" FROM {source} WHERE {where}'
        )
        text = f'SELECT sum("p"), sum("n"), min("low"), max("high") FROM ({inner}) WHERE {_span(start, end)} {grouped}'
        return [
            (row[0], row[1] / row[2] if row[1] is not None and row[2] else None, row[3], row[4], row[2] or 0.0)
            for row in self._rows(text)
        ]

    def _plain(self, metric: Metric, device: str, start: int, end: int, width: int) -> list[Row]:
        name, where = metric.name, self._of(metric, device, start, end)
        value = f'last("{name}")' if metric.kind == "counter" else f'mean("{name}")'
        text = (
            f'SELECT {value}, min("{name}"), max("{name}"), sum("{frames_field(metric.lane)}") '
            f"FROM {source_of(metric.table)} WHERE {where} {_grouped(width)}"
        )
        return [(row[0], row[1], row[2], row[3], row[4] or 0.0) for row in self._rows(text)]

    def _of(self, metric: Metric, device: str, start: int, end: int) -> str:
        its = {"cluster": self.cluster, **TAGS[metric.table].of_key(device)}
        named = " AND ".join(f'"{key}" = {quoted(value)}' for key, value in its.items())
        return f"{named} AND {_span(start, end)}"

    def _rows(self, text: str) -> list[list[Any]]:
        """Return the rows of a query."""
        return [row for each in self.series(text) for row in each["values"]]

    def series(self, text: str) -> list[dict[str, Any]]:
        """Return all series of a query, each with its `tags` and `values`. Raises `StoreError`."""
        try:
            answer = self._client.select(text)
        except UnreachableError as error:
            cure = "History comes back with the server; the live view needs none."
            raise StoreError(str(error), cure) from error
        found, problem = answer.json(), answer.problem()
        if answer.status >= 300 or problem:
            raise refused(self._client, answer, problem or answer.text[:200])
        if not found:
            raise StoreError(
                f"{self.config.url}: {len(answer.text):,} bytes that are no complete answer",
                "Request less: fewer devices, columns or instants.",
            )
        series = [each for result in found.get("results") or [] for each in result.get("series", ())]
        if any(each.get("name") == "databases" for each in series):
            raise StoreError(
                f"{self.config.url}: it answers no InfluxQL, as VictoriaMetrics does not",
                "Query it in PromQL, or use the embedded store.",
            )
        if any(each.get("partial") for each in series):
            raise StoreError(
                f"{self.config.url}: it sent a part of the answer only",
                "Raise max-row-limit in the server's settings, or request less.",
            )
        return series


def source_of(table: Table, step: int = 0) -> str:
    return f'"{policy(step)}"."{measurement(table, step)}"'


def _span(start: int, end: int) -> str:
    return f"time >= {start} AND time < {end}"


def _grouped(width: int) -> str:
    return f"GROUP BY time({width}ns) fill(none)" if width % 1000 else (f"GROUP BY time({width // 1000}u) fill(none)")


def quoted(text: str) -> str:
    """Return a text as InfluxQL writes it."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n") + "'"


def _merged(rolled: list[Row], plain: list[Row], *, last: bool) -> list[Row]:
    """Join buckets; a bucket of both is at the seam: its mean is of all readings, its last (of a
    counter) the later."""
    joined = {row[0]: row for row in rolled}
    for row in plain:
        other = joined.get(row[0])
        if other is None or other[1] is None:
            joined[row[0]] = row
        elif row[1] is not None:
            weight = other[4] + row[4]
            mean = (other[1] * other[4] + row[1] * row[4]) / weight if weight else row[1]
            lowest = [value for value in (other[2], row[2]) if value is not None]
            highest = [value for value in (other[3], row[3]) if value is not None]
            joined[row[0]] = (row[0], row[1] if last else mean, min(lowest, default=None),
                              max(highest, default=None), weight)  # fmt: skip
    return [joined[at] for at in sorted(joined)]
