"""What `kilowatch config check` looks at beyond the settings themselves: the files that they name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aggregator.config import StoreKind
from aggregator.http.config import HttpConfig
from aggregator.plant import plant_of
from alerts.rules import load as load_rules
from collector.sources import make_source
from kilowatch.settings import Settings


def check_power(where: str, tree: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for circuits, meters and budgets that can't be meant."""
    plant_of(where, tree)


def verify(settings: Settings, where: str = "settings") -> None:
    """Raise `ConfigError` for what a service would refuse at its start. Opens no connection.

    `where`: the file that they are from.
    """
    for broker in (settings.collector.broker, settings.aggregator.broker):
        broker.password()
        broker.context()
    aggregator = settings.aggregator
    load_rules(aggregator.rules)
    aggregator.alerts.open()
    check_power(where, aggregator.power)
    if aggregator.store.kind is StoreKind.INFLUXDB:
        aggregator.store.influxdb.secret()
        aggregator.store.influxdb.context()
    if aggregator.listen:
        HttpConfig(
            listen=aggregator.listen,
            token_file=aggregator.token_file,
            names=aggregator.names,
            address=aggregator.address,
        ).check()
    make_source(settings.collector.source, settings.collector, 0.0)
