"""Settings: a TOML file, then the environment, then flags; the later wins.

    cluster = "home"
    [broker]
    host = "broker.example"
    [collector]
    interval = 1.0
    [aggregator]
    listen = "127.0.0.1:9400"

In the environment a setting is `KILOWATCH__COLLECTOR__INTERVAL=0.5`. Unknown keys are errors, with
their place and the closest known key, so that a typo is not ignored.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

import msgspec

from aggregator.config import AggregatorConfig
from aggregator.register.drift_watch import DriftConfig
from aggregator.register.expected import ExpectedState
from aggregator.register.owners import OwnerEntry
from aggregator.settings.homeassistant import HomeAssistantConfig
from alerts.config import AlertsConfig
from collector.config import CollectorConfig
from collector.jobs.config import JobsConfig
from kilowatch.recovery.config import RecoverConfig
from telemetry.errors import ConfigError, did_you_mean
from telemetry.text.settings import convert, fields_of, read_toml, structs_in
from telemetry.wire.mqtt import BOTH_GIVEN, BOTH_REMEDY, BrokerConfig
from telemetry.wire.topics import check_name

PLACES = (Path("kilowatch.toml"), Path("/etc/kilowatch/kilowatch.toml"))
"""Default paths of the settings file, in order."""
PREFIX = "KILOWATCH__"


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of this machine."""

    cluster: str = "default"
    """Name in the MQTT topics that nodes and aggregators share."""
    broker: BrokerConfig = BrokerConfig()
    power: dict[str, Any] = {}
    """Circuits, panels, cords, meters, budgets (docs/power.md)."""
    alerts: AlertsConfig = AlertsConfig()
    """Notifications (docs/alerts.md)."""
    expected: tuple[ExpectedState, ...] = ()
    """Expected state of the nodes (docs/drift.md)."""
    drift: DriftConfig = DriftConfig()
    """When a node that differs from what is declared, or from its like, is an alert."""
    owners: tuple[OwnerEntry, ...] = ()
    """Persons and teams that alerts belong to (docs/alerts.md)."""
    homeassistant: HomeAssistantConfig = HomeAssistantConfig()
    """GPUs and circuits as devices of Home Assistant (docs/home.md)."""
    recover: RecoverConfig = RecoverConfig()
    """Hooks of `kilowatch recover` (docs/recover.md)."""
    jobs: JobsConfig = JobsConfig()
    """Jobs, users and processes on the GPUs (docs/jobs.md)."""
    collector: CollectorConfig
    aggregator: AggregatorConfig


def find_file(named: Path | None) -> Path | None:
    """Return the settings file: the one named, else the first of `PLACES` that exists."""
    if named is not None:
        return named
    return next((place for place in PLACES if place.is_file()), None)


def where(named: Path | None) -> str:
    """Return the place that errors about the settings name."""
    path = find_file(named)
    return str(path) if path else "settings"


def load(
    named: Path | None = None, environment: Mapping[str, str] = os.environ, flags: Mapping[str, object] | None = None
) -> Settings:
    """Return the settings. Raises `ConfigError` with the place of the fault and its remedy.

    `flags` maps dotted keys (`collector.source`) to values; None means not given.
    """
    path = find_file(named)
    origin = where(named)
    tree = read_toml(path) if path else {}
    _split_cluster(tree)
    check_keys(origin, tree, Settings)
    for name, text in environment.items():
        if name.startswith(PREFIX):
            keys = name[len(PREFIX) :].lower().split("__")
            _put(tree, keys, text, f"environment {name}")
            check_keys(f"environment {name}", _nest(keys, text), Settings)
    for dotted, value in (flags or {}).items():
        if value is not None:
            _put(tree, dotted.split("."), value, dotted)
    _share(tree, origin)
    settings = convert(Settings, tree, f"{origin}:", strict=False)
    check_name(f"{origin}: cluster", settings.cluster)
    settings.aggregator.check()
    settings.recover.check(f"{origin}: recover")
    return settings


def check_keys(where: str, tree: Mapping[str, Any], kind: type, prefix: str = "") -> None:
    """Raise `ConfigError` for the first key that `kind` does not have."""
    hints = fields_of(kind)
    for key, value in tree.items():
        if key not in hints:
            raise ConfigError(f"{where}: {prefix}{key}", "there is no such key", did_you_mean(key, hints))
        inner = next(structs_in(hints[key]), None)
        if inner is None:
            continue
        if isinstance(value, list) and _holds_list(hints[key]):
            for number, item in enumerate(value):
                if isinstance(item, Mapping):
                    check_keys(where, item, inner, f"{prefix}{key}[{number}].")
            continue
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{where}: {prefix}{key}", "it is a section, not a value", f"Write [{prefix}{key}] and its keys below."
            )
        check_keys(where, value, inner, f"{prefix}{key}.")


def _holds_list(hint: Any) -> bool:
    return any(get_origin(each) in {list, tuple} for each in (hint, *get_args(hint)))


def _nest(keys: list[str], value: object) -> dict[str, Any]:
    tree: dict[str, Any] = {keys[-1]: value}
    for key in reversed(keys[:-1]):
        tree = {key: tree}
    return tree


def _put(tree: dict[str, Any], keys: list[str], value: object, where: str) -> None:
    for key in keys[:-1]:
        inner = tree.setdefault(key, {})
        if not isinstance(inner, dict):
            raise ConfigError(where, f"{key} is a value, not a section")
        tree = inner
    tree[keys[-1]] = value


def _split_cluster(tree: dict[str, Any]) -> None:
    """Take `[cluster]` apart: its `name` is what `cluster = "name"` says, and the rest is of the aggregator's
    members."""
    table = tree.get("cluster")
    if not isinstance(table, dict):
        return
    tree["cluster"] = table.pop("name", "default")
    if isinstance(table.get("storage"), str):
        table["storage"] = {"url": table["storage"]}
    aggregator = tree.setdefault("aggregator", {})
    if table and isinstance(aggregator, dict):
        aggregator.setdefault("members", {}).update(table)


def _share(tree: dict[str, Any], origin: str) -> None:
    """Apply cluster and broker to both sides, unless a side has its own, [power], [alerts], [homeassistant],
    [[expected]], [drift] and [[owners]] of the top level to the aggregator, and [jobs] to the collector. A side that names
    its own host, or hosts, has none of the shared addresses."""
    _check_one_address(origin, "broker", tree.get("broker", {}))
    for side in ("collector", "aggregator"):
        section = tree.setdefault(side, {})
        section.setdefault("cluster", tree.get("cluster", "default"))
        shared, own = dict(tree.get("broker", {})), section.get("broker", {})
        for mine, theirs in (("hosts", ("host", "port")), ("host", ("hosts",))):
            for key in theirs if own.get(mine) else ():
                shared.pop(key, None)
        section["broker"] = {**shared, **own}
        _check_one_address(origin, f"{side}.broker", section["broker"])
    for name in ("power", "alerts", "homeassistant", "expected", "drift", "owners"):
        if name in tree:
            tree["aggregator"].setdefault(name, tree[name])
    if "jobs" in tree:
        tree["collector"].setdefault("jobs", tree["jobs"])


def _check_one_address(origin: str, section: str, broker: Mapping[str, Any]) -> None:
    """Raise `ConfigError` for one address beside a list, also where it is the default's text."""
    if broker.get("hosts") and not {"host", "port"}.isdisjoint(broker):
        raise ConfigError(f"{origin}: {section}.hosts", BOTH_GIVEN, BOTH_REMEDY)


def shown(settings: Settings) -> dict[str, Any]:
    """Return the settings as plain values for `config show`; secrets are in files, not in settings."""
    tree: dict[str, Any] = msgspec.to_builtins(settings, enc_hook=str)
    return tree
