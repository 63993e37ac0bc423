"""Files of meters: passwords and certificates. Unreadable ones are errors before anything runs."""

from __future__ import annotations

import ssl
from pathlib import Path

import msgspec

from power.meters.config import MeterBroker
from power.meters.redfish import Redfish
from telemetry.errors import ConfigError
from telemetry.files.secrets import read_secret, secret_path
from telemetry.wire.mqtt import BrokerConfig


def secret(where: str, file: str | None) -> str | None:
    """Return the password in a file. Raises `ConfigError`."""
    if file is None:
        return None
    return read_secret(f"{where}.password_file", Path(file), "password")


def trust(where: str, config: Redfish) -> ssl.SSLContext | bool:
    """Return how a service's certificate is checked. Raises `ConfigError`."""
    if not config.verify:
        return False
    if config.ca_file is None:
        return True
    try:
        return ssl.create_default_context(cafile=secret_path(f"{where}.ca_file", Path(config.ca_file)))
    except (OSError, ssl.SSLError) as error:
        raise ConfigError(
            f"{where}.ca_file", f"{config.ca_file} can't be used: {error}", "Name a file of certificates in PEM."
        ) from error


def broker_config(broker: MeterBroker) -> BrokerConfig:
    """Return the broker in the MQTT client's form. Raises `ConfigError`."""
    fields = msgspec.structs.asdict(broker)
    for name in ("password_file", "ca_file", "cert_file", "key_file"):
        fields[name] = None if fields[name] is None else Path(fields[name]).expanduser()
    return BrokerConfig(**fields)
