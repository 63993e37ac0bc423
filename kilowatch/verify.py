"""What `kilowatch config check` looks at beyond the settings themselves: the files that they name."""

from __future__ import annotations

from aggregator.http.config import HttpConfig
from alerts.rules import load as load_rules
from collector.sources import make_source
from kilowatch.settings import Settings


def verify(settings: Settings) -> None:
    """Raise `ConfigError` for what a service would refuse at its start. Opens no connection."""
    for broker in (settings.collector.broker, settings.aggregator.broker):
        broker.password()
        broker.context()
    aggregator = settings.aggregator
    load_rules(aggregator.rules)
    if aggregator.listen:
        HttpConfig(
            listen=aggregator.listen,
            token_file=aggregator.token_file,
            names=aggregator.names,
            address=aggregator.address,
        ).check()
    make_source(settings.collector.source, settings.collector, 0.0)
