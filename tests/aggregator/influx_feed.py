"""A feed whose store is InfluxDB, and what its tests need: a database each, delivery by hand."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any, cast

from msgspec.structs import replace

from aggregator.config import AggregatorConfig, StoreConfig, StoreKind
from aggregator.influx.client import InfluxClient
from aggregator.influx.setup import prepare
from aggregator.influx.store import InfluxStore
from aggregator.settings.influx import DAY, InfluxConfig
from aggregator.store.embedded import EmbeddedStore
from tests.aggregator.feed import Feed

LONG = 100 * 365 * DAY
"""The scripted nodes live in 2025: nothing of theirs may be too old for the server."""
_numbers = itertools.count()


def influx_config(url: str, **more: Any) -> InfluxConfig:
    """Settings for a server of the tests, with a database of its own."""
    base = InfluxConfig(
        url=url,
        database=f"test-{next(_numbers)}",
        raw_age_seconds=LONG,
        rollup_age_seconds=(LONG, LONG),
        events_age_seconds=LONG,
    )
    return replace(base, **more)


def prepared(url: str, **more: Any) -> InfluxConfig:
    """The same, with the database made."""
    config = influx_config(url, **more)
    with InfluxClient(config) as client:
        prepare(client, lambda _: None)
    return config


def store_config(influx: InfluxConfig) -> StoreConfig:
    """Settings of the whole store."""
    return StoreConfig(kind=StoreKind.INFLUXDB, influxdb=influx)


class InfluxFeed(Feed):
    """Nothing is delivered by itself: `deliver` does."""

    def __init__(self, folder: Path, influx: InfluxConfig) -> None:
        super().__init__(folder, store_config(influx))

    def open_store(self) -> EmbeddedStore:
        """Return the store, without the thread that delivers; the feed uses what both have."""
        config: AggregatorConfig = self.config
        self.influx = InfluxStore(config, deliver=False)
        return cast("EmbeddedStore", self.influx)

    def second(self, *nodes: str, seq: int) -> None:
        """One second passes: each node sends a frame, all is stored."""
        for node in nodes:
            self.send(node, seq)
        self.wall += 10**9
        self.commit()

    def later(self, seconds: int = 5, times: int = 3) -> None:
        """Time passes in which nothing comes: what is open and over is closed."""
        for _ in range(times):
            self.wall += seconds * 10**9
            if self.store.maintain(self.wall):
                self.store.seal()

    def deliver(self, most: int = 1000) -> None:
        """Send until the spool is empty, or the server does not take more."""
        for _ in range(most):
            if not self.influx.spool.points or self.influx.sender.step() > 0:
                return

    def crash(self) -> None:
        """A kill -9: nothing is closed, nothing is written down any more; then a new start."""
        self.influx.spool.close()
        self.influx._ledger._engine._disconnect()
        self.influx._writer.close()
        self.open()
