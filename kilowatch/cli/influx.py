"""`kilowatch influx`: make what is written into, and look at how the server does."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.arguments import settings_option

_WHERE = "aggregator.store.influxdb"
_MARKS = {"ok": ("✓", "green"), "warning": ("!", "yellow"), "fault": ("✗", "red")}


@click.group()
def influx() -> None:
    """InfluxDB as the store: set it up, look at it."""


@influx.command()
@settings_option
@click.option("--url", help="The server; else aggregator.store.influxdb.url.")
@click.option("--database", help="The database; else aggregator.store.influxdb.database.")
def setup(config: Path | None, url: str | None, database: str | None) -> None:
    """Make database and retention (1.x), or buckets and their mapping (2.x).

    May be run again: what is there is brought to the settings, nothing is removed.
    """
    from aggregator.influx.client import InfluxClient  # noqa: PLC0415 - loads NumPy
    from aggregator.influx.setup import prepare  # noqa: PLC0415

    loaded = settings.load(config, flags=_flags(url, database)).aggregator.store
    loaded.influxdb.check(_WHERE)  # it need not be the store yet
    with InfluxClient(loaded.influxdb) as client:
        server = prepare(client, click.echo)
    click.echo(f"{loaded.influxdb.url}: {server} is ready")
    if loaded.kind != "influxdb":
        click.echo('It is not the store yet: write kind = "influxdb" under [aggregator.store].')


@influx.command()
@settings_option
@click.option("--url", help="The server; else aggregator.store.influxdb.url.")
@click.option("--database", help="The database; else aggregator.store.influxdb.database.")
def check(config: Path | None, url: str | None, database: str | None) -> None:
    """Say what is wrong with the server, and what mends it; exit code 1 on a fault."""
    from aggregator.influx.client import InfluxClient  # noqa: PLC0415 - loads NumPy
    from aggregator.influx.inspection import inspect  # noqa: PLC0415

    loaded = settings.load(config, flags=_flags(url, database)).aggregator.store.influxdb
    loaded.check(_WHERE)
    with InfluxClient(loaded) as client:
        found = inspect(client, time.time())
    for each in found:
        mark, colour = _MARKS[each.level]
        click.echo(f"{click.style(mark, fg=colour)} {each.text}")
        if each.cure:
            click.echo(f"  → {each.cure}")
    if any(each.level == "fault" for each in found):
        sys.exit(1)


def _flags(url: str | None, database: str | None) -> dict[str, object]:
    return {
        "aggregator.store.influxdb.url": url,
        "aggregator.store.influxdb.database": database,
    }
