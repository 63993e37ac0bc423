"""`kilowatch config`: check the settings, and show what is in force."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from aggregator.electrical.site_loader import load_site
from aggregator.http.config import HttpConfig
from alerts.rules.rule import load as load_rules
from collector.sources import make_source
from kilowatch import settings
from kilowatch.cli.arguments import settings_option
from kilowatch.output import echo, print_json
from kilowatch.settings import Settings
from telemetry.wire.dcgm import load_list


def verify(settings: Settings, where: str = "settings") -> None:
    """Raise `ConfigError` for settings that a service would refuse at its start, in the file `where`
    and in files that it names. Opens no connection."""
    for broker in (settings.collector.broker, settings.aggregator.broker):
        broker.password()
        broker.context()
    aggregator = settings.aggregator
    load_rules(aggregator.rules)
    aggregator.alerts.open()
    load_site(where, aggregator.power)
    aggregator.store.check_secrets()
    aggregator.homeassistant.check_secrets("homeassistant")
    aggregator.otlp.check_secrets()
    aggregator.process_series.words()
    if aggregator.listen:
        http = HttpConfig.of(aggregator)
        http.check()
        http.certificate()
        http.counters()
    load_list("collector.dcgm_counters", settings.collector.dcgm_counters)
    make_source(settings.collector.source, settings.collector, 0.0)


@click.group()
def config() -> None:
    """Check or show the settings."""


@config.command()
@settings_option
def check(config: Path | None) -> None:
    """Check the settings; exit code 64 when they are wrong.

    Also opens the files that they name: certificates, rules, tokens, the file of a source.
    """
    verify(settings.load(config), settings.where(config))
    place = settings.find_file(config)
    echo(f"{place}: ok" if place else "no settings file: the defaults are in force")


@config.command()
@settings_option
@click.option("--json", "as_json", is_flag=True, help="As JSON instead of TOML.")
def show(config: Path | None, as_json: bool) -> None:
    """Print every setting in force: defaults, file and environment together."""
    tree = settings.shown(settings.load(config))
    if as_json:
        print_json(tree)
    else:
        echo("\n".join(toml_lines(tree)))


def toml_lines(tree: dict[str, Any], prefix: str = "") -> list[str]:
    """Return TOML text of plain values; a value that is not set is a comment."""
    lines = []
    for key, value in tree.items():
        if value is None:
            lines.append(f"# {key} is not set")
        elif not isinstance(value, dict):
            lines.append(f"{key} = {json.dumps(value, ensure_ascii=False)}")
    for key, value in tree.items():
        if isinstance(value, dict):
            lines += ["", f"[{prefix}{key}]", *toml_lines(value, f"{prefix}{key}.")]
    return lines
