"""The oracle: what the store holds against what the simulation must have published, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass, field

import duckdb
import numpy as np

from collector.ring.ring import Ring
from collector.sampling.sampler import passed
from collector.simulated import expected_rows
from telemetry.wire.schema import GPU_FAST, SCHEMA
from telemetry.wire.topics import phase_of
from tests.endtoend.cluster import INTERVAL, NODES, Cluster

FrameId = tuple[str, int, int]
"""Node, session, number."""


@dataclass(slots=True)
class Audit:
    """What was found."""

    published: set[FrameId] = field(default_factory=set)
    """Frames in the collectors' rings: every frame ever numbered, while no ring overflows."""
    stored: list[FrameId] = field(default_factory=list)
    lost: int = 0
    values: int = 0
    """Readings compared bit for bit."""
    events: list[str] = field(default_factory=list)
    began: dict[str, int] = field(default_factory=dict)
    """Tick of the first stored frame, by node."""
    backfilled: dict[str, int] = field(default_factory=lambda: dict.fromkeys(NODES, 0))
    """Frames that came on request, by node."""


def audit(cluster: Cluster) -> Audit:
    """Compare every stored value of `gpu_fast` with the simulation, of our own nodes. All processes have
    ended."""
    found = Audit()
    for node in NODES:
        ring = Ring(cluster.state_dir(node) / "ring", 1 << 30)
        ring.open()
        for span in ring.spans():
            found.published.update((node, span.session, number) for number in range(span.first, span.last + 1))
    with duckdb.connect(str(cluster.data / "hot.duckdb"), read_only=True) as store:
        tables = [name for (name,) in store.execute("select table_name from duckdb_tables()").fetchall()]
        for table in tables:
            if table.startswith("frames_"):
                found.stored += store.execute(
                    f"select r.node, r.session, f.seq from {table} f join runs r on f.run = r.id "
                    f"where r.node in {NODES}"
                ).fetchall()
                for node, count in store.execute(
                    f"select r.node, count(*) from {table} f join runs r on f.run = r.id "
                    f"where f.backfilled and r.node in {NODES} group by r.node"
                ).fetchall():
                    found.backfilled[node] += count
            if table.startswith("gpu_fast_"):
                for node, ts in store.execute(
                    f"select r.node, min(t.ts) from {table} t join runs r on t.run = r.id "
                    f"where r.node in {NODES} group by 1"
                ).fetchall():
                    found.began[node] = min(_tick(node, ts), found.began.get(node, 1 << 62))
                found.values += _compare(cluster, store, _HOT.format(table=table))
        for path in sorted((cluster.data / "sealed" / "gpu_fast").glob("*.parquet")):
            found.stored += store.execute(
                f"select distinct node, session, seq from '{path}' where node in {NODES}"
            ).fetchall()
            for node, ts in store.execute(
                f"select node, epoch_ns(min(ts)) from '{path}' where node in {NODES} group by node"
            ).fetchall():
                found.began[node] = min(_tick(node, ts), found.began.get(node, 1 << 62))
            found.values += _compare(cluster, store, _SEALED.format(path=path))
        found.lost = store.execute(
            f"select coalesce(sum(h.last - h.first + 1), 0) from holes h "
            f"join runs r on h.run = r.id where r.node in {NODES}"
        ).fetchall()[0][0]
        found.events = [kind for (kind,) in store.execute(f"select kind from events where node in {NODES}").fetchall()]
    return found


_METRICS = ", ".join(f't."{name}"' for name in SCHEMA.blocks[GPU_FAST].names)
_HOT = (
    f'select r.node, r.session, t.seq, t.ts, d."index", {_METRICS} from {{table}} t '
    "join runs r on t.run = r.id join devices d on t.device = d.id "
    f'where r.node in {NODES} order by r.node, r.session, t.seq, d."index"'
)
_SEALED = (
    f"select t.node, t.session, t.seq, epoch_ns(t.ts), t.\"index\", {_METRICS} from '{{path}}' t "
    f'where t.node in {NODES} order by t.node, t.session, t.seq, t."index"'
)
"""The same of an hour that has become a file: whether a frame came on request is no longer stored."""


def _compare(cluster: Cluster, store: duckdb.DuckDBPyConnection, query: str) -> int:
    block = SCHEMA.blocks[GPU_FAST]
    rows = store.execute(query).fetchall()
    compared = 0
    for begin in range(0, len(rows), 8):
        group = rows[begin : begin + 8]
        node, session, seq, ts = group[0][:4]
        assert [row[:5] for row in group] == [(node, session, seq, ts, n) for n in range(8)]
        expected = expected_rows(cluster.scenario, node, GPU_FAST, _tick(node, ts))
        for row, wanted in zip(group, expected, strict=True):
            got = [np.nan if value is None else value for value in row[5:]]
            split = len(block.gauges)
            np.testing.assert_array_equal(np.array(got[:split], np.float32), np.array(wanted[:split], np.float32))
            np.testing.assert_array_equal(np.array(got[split:]), np.array(wanted[split:]))
            compared += len(got)
    return compared


def _tick(node: str, ts: int) -> int:
    return passed(ts / 1e9, INTERVAL, phase_of(node))
