"""`kilowatch run`: broker, collector and aggregator of one machine."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from aggregator.config import AggregatorConfig
from aggregator.http.config import is_loopback
from collector.sources import has_driver
from kilowatch.settings import Settings
from kilowatch.stack.broker import ALL_ADDRESSES, METERS_USER, EmbeddedBroker, client_of
from kilowatch.stack.collectors import LocalCollectors, StackPart
from kilowatch.stack.demo_site import desktop, plugged
from kilowatch.stack.ports import free_port, is_free
from kilowatch.stack.stack import StackOutcome, run_stack
from kilowatch.stack.start import StartReport
from kilowatch.stack.start_line import aggregator_facts, collector_facts
from present.circuit.rules import NO_CIRCUITS
from telemetry.errors import ConfigError
from telemetry.runtime.release import release
from telemetry.text.service_log import log_start
from telemetry.wire.inventory import CommandKind
from telemetry.wire.mqtt import BrokerConfig

DEMO_SOURCE = "simulated:desktop-4x5090"


async def run_machine(
    settings: Settings,
    *,
    reread: Callable[[], AggregatorConfig] | None = None,
    http: tuple[str, int],
    broker_port: int | None,
    data: Path | None,
    seconds: float | None,
    stop: asyncio.Event,
    announce: Callable[[str], None],
    report: Callable[[StartReport], None] = lambda _: None,
    reloaded: Callable[[], None] = lambda: None,
    meters_port: int | None = None,
) -> StackOutcome:
    """Run broker, collector and aggregator of this machine until `stop`. `reloaded` is called after each
    reload of the aggregator, `report` with the progress of the start. `meters_port`: of a broker for meters alone,
    on every address of this machine."""
    source, alerts = settings.collector.source, settings.aggregator.alerts
    without_driver = source == "auto" and not has_driver()
    if without_driver:
        source = DEMO_SOURCE
        announce(
            "No GPU driver on this machine: SIMULATED data of a desktop with four RTX 5090.\n"
            "With a driver, this shows your GPUs. To try NVML all the same: --source nvml"
        )
        if alerts.channels or alerts.heartbeat:
            announce("Simulated alerts are not notified: [alerts] is ignored.")
    node, simulated = settings.collector.node, source == DEMO_SOURCE

    state = (data or settings.collector.state_dir).absolute()
    meters = None
    if meters_port is not None:
        meters = EmbeddedBroker(ALL_ADDRESSES, meters_port, state, own=False, option="--meters-port")

    def power(tree: Mapping[str, Any]) -> dict[str, Any]:
        found = desktop((node,)) if simulated and not tree else plugged(tree, node)
        return found if meters is None else with_meters(found, meters.config)

    if settings.aggregator.tls_cert is not None and not is_loopback(http[0]):
        raise ConfigError(
            "aggregator.tls_cert",
            f"`kilowatch run` does not encrypt HTTP, and {http[0]} is not this machine alone",
            "Use `kilowatch collect` and `kilowatch aggregate`, or --http 127.0.0.1:9400.",
        )
    port = _broker_port(settings, broker_port, announce)
    broker = client_of("127.0.0.1", port, state)
    collector = msgspec.structs.replace(
        settings.collector,
        source=source,
        broker=broker,
        state_dir=state / "collector",
        accept_commands=tuple(CommandKind),  # only this user has the broker's password
    )

    def here(config: AggregatorConfig) -> AggregatorConfig:
        return msgspec.structs.replace(
            config,
            broker=broker,
            listen=f"{http[0]}:{http[1]}",
            tls_cert=None,  # its dashboard is on this machine
            tls_key=None,
            data_dir=data / "data" if data else config.data_dir,
            power=power(config.power),
            alerts=config.alerts.muted() if without_driver else config.alerts,
        )

    def reload() -> AggregatorConfig:
        assert reread is not None  # noqa: S101 - only then it is used
        return here(reread())

    aggregator = here(settings.aggregator)
    announce(
        f"http://{aggregator.listen}  (kilowatch top {aggregator.listen})\n"
        f"MQTT 127.0.0.1:{port}  (kilowatch tap --broker 127.0.0.1:{port})\n"
        f"data {aggregator.data_dir}"
    )
    if meters is not None:
        announce(
            f"Meters: MQTT to port {meters_port} of this machine, user {METERS_USER}, password in {meters.config.password_file}"
        )
    if not aggregator.power.get("circuits"):
        announce(NO_CIRCUITS)
    log_start("collector", release(), collector_facts(collector))
    log_start("aggregator", release(), aggregator_facts(aggregator, http))
    return await run_stack(
        [LocalCollectors([StackPart(collector)])],
        aggregator,
        state,
        stop=stop,
        scenario=source,
        seconds=seconds,
        reread=None if reread is None else reload,
        reloaded=reloaded,
        report=report,
        meters=meters,
    )


def with_meters(tree: Mapping[str, Any], broker: BrokerConfig) -> dict[str, Any]:
    """Return a [power] section whose meters publish to a broker where they name no other."""
    if "meter_broker" in tree:
        return dict(tree)
    entry = {"host": broker.host, "port": broker.port, "username": broker.username, "password_file": str(broker.password_file)}  # fmt: skip
    return {**tree, "meter_broker": METERS_USER, "brokers": {**tree.get("brokers", {}), METERS_USER: entry}}


def _broker_port(settings: Settings, asked: int | None, announce: Callable[[str], None]) -> int:
    if asked is not None:
        if not is_free("127.0.0.1", asked):
            raise ConfigError(f"--broker-port {asked}", "another process listens there already", "Choose another port.")
        return asked
    if is_free("127.0.0.1", settings.broker.port):
        return settings.broker.port
    port = free_port()
    announce(f"Port {settings.broker.port} is taken; the embedded broker listens on {port}.")
    return port
