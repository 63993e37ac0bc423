"""Expected rows of a simulated node at a tick, for audits: bit for bit, at any time."""

from __future__ import annotations

from collector.simulated.cluster import cluster
from collector.simulated.scenario import Scenario
from telemetry.catalogue import BY_NAME
from telemetry.metric import Lane, Table
from telemetry.wire import frame
from telemetry.wire.schema import SCHEMA


def expected_rows(scenario: Scenario, node: str, block: int, tick: int) -> list[list[float]]:
    """Return the rows of one block as the source returns them at a tick.

    Columns that the collector fills in (`collector.simulated.host.SELF`) are gaps. Raises
    `ConfigError` for a node, `KeyError` for a block that the scenario doesn't have.
    """
    simulated, second = cluster(scenario).node(node), scenario.second(tick)
    lane = SCHEMA.blocks[block].lane
    return (simulated.fast(second) if lane is Lane.FAST else simulated.slow(second))[block]


def expected_bytes(scenario: Scenario, node: str, block: int, tick: int) -> frame.PackedBlock:
    """Return the packed rows of one block as in the frame of a tick."""
    return frame.pack(block, expected_rows(scenario, node, block, tick))


def value(scenario: Scenario, node: str, gpu: int | None, metric: str, tick: int, link: int = 0) -> float:
    """Return one reading (float64; gauges travel as float32), or its gap.

    `gpu` is the index (of a port too), or None for a metric of the node; `link` the link's number for a metric of
    a link. Raises `KeyError` for a metric that isn't in the catalogue, `IndexError` for a GPU that
    the node doesn't have.
    """
    row = BY_NAME[metric]
    block = SCHEMA.index(row.table, row.lane)
    rows = expected_rows(scenario, node, block, tick)
    number = {
        Table.NODE: 0,
        Table.GPU: gpu or 0,
        Table.PORT: gpu or 0,
        Table.LINK: (gpu or 0) * scenario.kind.board.links + link,
    }[row.table]
    return rows[number][SCHEMA.blocks[block].names.index(metric)]


def silent(scenario: Scenario, node: str, tick: int) -> bool:
    """Return whether a node publishes nothing at a tick."""
    return cluster(scenario).node(node).silent(scenario.second(tick))
