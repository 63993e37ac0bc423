"""Readings by columns: what `/api/v1/fleet` answers and the stream sends.

An answer has `rows` (who: parallel arrays, one entry a device) and `columns` (how much: one array a
metric, in the same order). A null is a gap, and `gaps` has the reason: `{"gpu_fan_speed_ratio": {"*":
"not_supported", "17": "device_lost"}}` reads: row 17 was lost, every other null is unsupported. `*`
is the commonest reason of a column, so that a column without any value costs 20 bytes, not 200 kB.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from aggregator.http.errors import bad, unknown
from aggregator.http.operation import Parameter
from api.columns import ColumnRows, Gaps
from telemetry.catalogue import BY_NAME, CATALOGUE
from telemetry.fleet import Fleet, Floats, gaps_of
from telemetry.gap import Gap
from telemetry.metric import Metric, Table
from telemetry.text.decimals import plain
from telemetry.wire.tables import KINDS

ALL = "*"
MOST_COLUMNS = 200
"""That a request may name: `*` is all there are."""

DEFAULT_COLUMNS: dict[Table, tuple[str, ...]] = {
    table: kind.usual or tuple(metric.name for metric in CATALOGUE if metric.table is table)
    for table, kind in KINDS.items()
}
"""Columns of a request that names none."""

TABLE = Parameter("table", "Kind of the rows; GPUs if absent.", "gpu", tuple(Table))
COLUMNS = Parameter(
    "columns",
    "Metrics of the table, joined by commas; the usual ones if absent, '*' for all.",
    "gpu_power_watts,gpu_temperature_celsius",
)
NODES = Parameter("node", "Names of nodes, joined by commas; all if absent.", "n1,n2")

WORDS = {int(reason): reason.word for reason in Gap}
"""Word by number of a gap."""


class ColumnChoice(msgspec.Struct, frozen=True):
    """The rows and columns of a request: hashable, so that what many viewers want is made once."""

    table: Table
    columns: tuple[str, ...]
    nodes: tuple[str, ...] | None = None
    """None for all."""


@dataclass(frozen=True, slots=True)
class ColumnLayout:
    """The rows of the fleet that an answer has, for one version of the fleet."""

    version: int
    index: npt.NDArray[np.intp]
    """Row numbers in the fleet."""
    rows: ColumnRows


@dataclass(frozen=True, slots=True)
class FleetColumns:
    """A copy of the columns: raw, gaps with their reasons."""

    columns: dict[str, Floats]

    @property
    def cells(self) -> int:
        """The number of values: the measure of the work."""
        return sum(len(values) for values in self.columns.values())


def choose(where: str, table: str | None, columns: Sequence[str] | None, nodes: Sequence[str] | None) -> ColumnChoice:
    """Return what was requested. Raises a 400 with the nearest word. `where` names the message."""
    try:
        found = Table(table or Table.GPU)
    except ValueError as error:
        raise unknown("table", str(table), Table, status=400) from error
    names = tuple(columns) if columns else DEFAULT_COLUMNS[found]
    if names == (ALL,):
        names = tuple(metric.name for metric in CATALOGUE if metric.table is found)
    elif len(names) > MOST_COLUMNS:
        raise bad(where, f"{len(names)} columns are too many", f"Request {MOST_COLUMNS} at most.")
    if len(set(names)) < len(names):
        raise bad(where, "a column is requested twice", "Name each once.")
    for name in names:
        metric_of(where, name, found)
    return ColumnChoice(found, names, None if nodes is None else tuple(sorted(set(nodes))))


def chosen(asked: Mapping[str, str]) -> ColumnChoice:
    """Return what the parameters `table`, `columns` and `node` of a query choose. Raises a 400."""
    names = asked["columns"].split(",") if "columns" in asked else None
    nodes = asked["node"].split(",") if "node" in asked else None
    return choose("columns", asked.get("table"), names, nodes)


def metric_of(where: str, name: str, table: Table | None = None) -> Metric:
    """Return a row of the catalogue, of `table` if one is named. Raises a 400."""
    metric = BY_NAME.get(name)
    if metric is None:
        known = [m.name for m in CATALOGUE if table is None or m.table is table]
        raise unknown(where, name, known, status=400)
    if table is not None and metric.table is not table:
        raise bad(
            where,
            f"{name} belongs to the table '{metric.table}', not '{table}'",
            "/api/v1/catalogue lists the metrics of each table.",
        )
    return metric


def layout(fleet: Fleet, table: Table, nodes: Sequence[str] | None = None) -> ColumnLayout:
    """Return the rows of a table, of some nodes or of all. Unknown nodes are left out: a viewer may
    name them before they come."""
    if nodes is None:
        index = [row for row, _ in fleet.rows(table)]
    else:
        slices = [fleet.nodes[name].rows[table] for name in nodes if name in fleet.nodes]
        index = [row for each in slices for row in range(each.start, each.stop)]
    return ColumnLayout(fleet.version, np.array(index, np.intp), _identity(fleet, table, index))


def _identity(fleet: Fleet, table: Table, index: list[int]) -> ColumnRows:
    kind = KINDS[table]
    found = [entry for row in index if (entry := fleet.devices[table][row]) is not None]
    columns = {name: [read(one) for _, one in found] for name, read in kind.columns.items()}
    if (owner := kind.owner) is not None:
        columns["gpu"] = [_index_of(fleet, owner(one)) for _, one in found]
    return ColumnRows([node for node, _ in found], **columns)


def _index_of(fleet: Fleet, uuid: str) -> int:
    entry = fleet.gpus[fleet.by_uuid[uuid]] if uuid in fleet.by_uuid else None
    return -1 if entry is None else entry[1].index


def read(fleet: Fleet, where: ColumnLayout, columns: Sequence[str], now: float) -> FleetColumns:
    """Copy the columns. On the loop that owns the fleet; the copy may go to a thread."""
    return FleetColumns({name: fleet.column(name, now)[where.index] for name in columns})


def numbers(readings: FleetColumns) -> dict[str, list[float | None]]:
    """Return plain lists; a gap is a NaN here, and becomes null when msgspec writes it."""
    return {name: plain(values).tolist() for name, values in readings.columns.items()}


def packed(readings: FleetColumns) -> dict[str, bytes]:
    """Return the columns as they lie in memory, little-endian: a gauge has four bytes a row, a
    counter eight."""
    return {
        name: values.astype(values.dtype.newbyteorder("<"), copy=False).tobytes()
        for name, values in readings.columns.items()
    }


def gaps(readings: FleetColumns) -> Gaps:
    """Return the reason for each null; metrics without any are left out."""
    found: Gaps = {}
    for name, values in readings.columns.items():
        reasons = gaps_of(values)
        absent = np.flatnonzero(reasons != 255)
        if not absent.size:
            continue
        counts = np.bincount(reasons[absent])
        commonest = int(counts.argmax())
        others = absent[reasons[absent] != commonest]
        found[name] = {ALL: gap_word(commonest)} | {str(row): gap_word(int(reasons[row])) for row in others.tolist()}
    return found


def gap_word(reason: int) -> str:
    """Return the word for the number of a gap."""
    return WORDS.get(reason, Gap.UNKNOWN.word)


def reporting(readings: FleetColumns, count: int) -> int:
    """Return how many rows have at least one of the columns."""
    if not readings.columns:
        return 0
    known = np.zeros(count, bool)
    for values in readings.columns.values():
        known |= ~np.isnan(values)
    return int(known.sum())
