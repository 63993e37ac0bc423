"""Scripted nodes whose clock, temperature and counter are set by the scenario, frame by frame."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import numpy as np

from aggregator.config import AggregatorConfig
from aggregator.service import Aggregator
from api.alerts import AlertState
from telemetry.gap import NOT_SUPPORTED
from telemetry.wire import frame as frames
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, NODE_FAST, SCHEMA
from tests.aggregator.node import ScriptedNode
from tests.aggregator.test_service import config

TEMPERATURE = "gpu_temperature_celsius"
ENERGY = "gpu_energy_joules_total"
POWER = "gpu_power_watts"
HOUR = 3600 * 10**9
TICK = 20_000_000
"""ns between two frames of a script's clock: as fast as `Actor.play` sends them."""

RULES = f"""
[[rule]]
name = "test_hot"
when = {{ type = "above", metric = "{TEMPERATURE}", level = 90 }}
severity = "page"
remediation = "reset"
summary = "{{where}} is too hot: {{value}}"
description = "A rule of the fault campaign."
runbook = "thermal-limit"

[[rule.example]]
every = 1
given = "80 95 80"
then = "- F R"

[[rule]]
name = "test_rate"
when = {{ type = "rate", metric = "{ENERGY}", level = 1000, window = 2 }}
severity = "page"
remediation = "reset"
summary = "{{where}} uses {{value}}"
description = "A rule of the fault campaign."
runbook = "thermal-limit"

[[rule.example]]
every = 1
given = "0 10 20 9000 9000"
then = "- - - F F"

[[rule]]
name = "test_frozen"
when = {{ type = "frozen", of = ["{POWER}", "{ENERGY}"], seconds = 1 }}
severity = "page"
remediation = "reset"
summary = "{{where}} has not moved for {{value}}"
description = "A rule of the fault campaign."
runbook = "readings-frozen"
"""
"""Rules that fire at once for the faults of the scripted nodes."""


@dataclass(slots=True)
class Script:
    """What a node says at frame `seq`: its clock's error in ns, a temperature, joules so far."""

    clock: Callable[[int], int] = lambda _: 0
    temperature: Callable[[int], float] = lambda _: 40.0
    energy: Callable[[int], float] = lambda seq: 0.125 * seq
    power: Callable[[int], float] = lambda seq: 300.0 + seq % 7
    began: int = field(default_factory=time.time_ns)

    def stamp(self, seq: int) -> int:
        """The wall clock that the frame carries, ns since 1970."""
        return self.began + seq * TICK + self.clock(seq)

    def values(self, seq: int) -> Mapping[str, float]:
        """The three readings of each GPU; all others are gaps."""
        return {
            TEMPERATURE: float(np.float32(self.temperature(seq))),
            POWER: float(np.float32(self.power(seq))),
            ENERGY: self.energy(seq),
        }


class Actor(ScriptedNode):
    """A scripted node that follows a `Script`."""

    def __init__(self, broker: BrokerConfig, name: str, script: Script | None = None) -> None:
        super().__init__(broker, name, gpus=2)
        self.script = script or Script()

    async def __aenter__(self) -> Actor:
        await super().__aenter__()
        return self

    def sample(self) -> tuple[int, bytes]:
        """Make the next frame and put it into the ring."""
        seq = self.made.get(self.session, 0)
        self.made[self.session] = seq + 1
        names = SCHEMA.blocks[GPU_FAST].names
        values = self.script.values(seq)
        row = [values.get(name, NOT_SUPPORTED) for name in names]
        readings = {GPU_FAST: [row] * self.gpus, NODE_FAST: [[NOT_SUPPORTED] * len(SCHEMA.blocks[NODE_FAST].names)]}
        encoded = frames.encode(frames.build(self.session, seq, self.script.stamp(seq), readings, ()))
        self.ring.setdefault(self.session, {})[seq] = encoded
        return seq, encoded

    async def play(self, count: int, *, lost: bool = False, pause: float = 0.02) -> None:
        """Take and publish so many frames."""
        for _ in range(count):
            await self.tick(lost=lost)
            await asyncio.sleep(pause)


def with_rules(broker: BrokerConfig, folder: Path, listen: str = "") -> AggregatorConfig:
    """An aggregator's settings with the rules above, evaluated ten times a second."""
    import msgspec

    rules = folder / "rules.toml"
    rules.write_text(RULES)
    return msgspec.structs.replace(config(broker, folder / "data", listen), rules=(rules,), rule_seconds=0.1)


def fired(aggregator: Aggregator) -> set[str]:
    """Names of the rules whose alerts have fired, resolved ones included."""
    return {alert.rule for alert in aggregator.alerts() if alert.state is not AlertState.PENDING}


def suspected(aggregator: Aggregator, rule: str) -> set[str]:
    """Nodes of which a rule says something is wrong, if only since a moment."""
    return {str(alert.node) for alert in aggregator.alerts() if alert.rule == rule}


def unsealed_rows(store: duckdb.DuckDBPyConnection, columns: str, node: str) -> list[tuple[Any, ...]]:
    """Return what is stored of a node's GPUs and not sealed yet. `columns`: of `t` (readings), `r` (runs) and `d`
    (devices)."""
    names = store.execute("select table_name from duckdb_tables()").fetchall()
    return [
        row
        for (table,) in names
        if table.startswith("gpu_fast_")
        for row in store.execute(
            f"select {columns} from {table} t join runs r on t.run = r.id "
            "join devices d on t.device = d.id where r.node = ?",
            [node],
        ).fetchall()
    ]


def check_stored(folder: Path, actor: Actor, *, moved: bool = False, within: float = 1.1) -> int:
    """Compare all that is stored of a node with its script, in the order of its numbers; return
    how many readings were compared. `moved`: the times may be others, if they are so many hours from now."""
    compared = 0
    with duckdb.connect(str(folder / "data" / "hot.duckdb"), read_only=True) as store:
        columns = f'r.session, t.seq, d."index", t.ts, t."{TEMPERATURE}", t."{POWER}", t."{ENERGY}"'
        rows = unsealed_rows(store, columns, actor.name)
        for path in (folder / "data" / "sealed" / "gpu_fast").glob("*.parquet"):
            rows += store.execute(
                f'select session, seq, "index", epoch_ns(ts), "{TEMPERATURE}", "{POWER}", "{ENERGY}" '
                f"from '{path}' where node = ?",
                [actor.name],
            ).fetchall()
    wanted = []
    for session, count in sorted(actor.made.items()):
        for seq in range(count):
            values = actor.script.values(seq)
            wanted += [(session, seq, gpu, actor.script.stamp(seq), *values.values()) for gpu in range(actor.gpus)]
            compared += 3 * actor.gpus
    if moved:
        assert all(abs(row[3] - time.time_ns()) < within * HOUR for row in rows)
        rows, wanted = ([(*row[:3], *row[4:]) for row in each] for each in (rows, wanted))
    assert sorted(rows) == wanted
    return compared
