"""Line of a service's start: its name, and what it listens to, reads and publishes to."""

from __future__ import annotations

from aggregator.config import AggregatorConfig, StoreKind
from collector.config import CollectorConfig
from telemetry.text import duration
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.topics import ROOT, Topic, topic


def collector_facts(config: CollectorConfig) -> dict[str, str]:
    """Return what a collector is and does, for `telemetry.text.service_log.log_start`."""
    own = topic(config.cluster, config.node, Topic.FRAME).rpartition("/")[0]
    return {
        "node": f"{config.node} of the cluster {config.cluster}",
        "reads": f"{config.source} every {duration(config.interval)}",
        "publishes": f"{own}/+ to {broker_words(config.broker)}",
        "obeys": ", ".join(config.accept_commands),
        "keeps its frames in": str(config.state_dir) if config.ring_enabled else "",
        "listens to": config.metrics_listen or "",
    }


def aggregator_facts(config: AggregatorConfig, address: tuple[str, int] | None) -> dict[str, str]:
    """Return what an aggregator is and does. `address`: where HTTP listens; None where it does not."""
    scheme = "http" if config.tls_cert is None else "https"
    where = "no HTTP" if address is None else f"{scheme}://{address[0]}:{address[1]}"
    store = config.store.kind.value
    if config.store.kind is StoreKind.INFLUXDB:
        store += f" at {config.store.influxdb.url}, spool in {config.data_dir}"
    else:
        store += f" in {config.data_dir}"
    members = config.members
    part = f", member {members.name} by {', '.join(members.nats)}" if members.nats else ""
    return {
        "cluster": f"{config.cluster}{part}",
        "listens to": where,
        "reads": f"{ROOT}/{config.cluster}/# from {broker_words(config.broker)}",
        "publishes": "commands and the states of alerts and circuits there",
        "stores": store,
        "notifies": ", ".join(sorted(config.alerts.channels)) or "nobody: no channel is set",
    }


def broker_words(config: BrokerConfig) -> str:
    """Return the address of a broker, and whether it is encrypted."""
    return f"{config.address}{' by TLS' if config.tls else ', not encrypted'}"
