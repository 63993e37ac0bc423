"""`kilowatch influx`: set up the InfluxDB server, and check it."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.arguments import settings_option
from kilowatch.cli.doctor import print_findings
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo

_WHERE = "aggregator.store.influxdb"


@click.group()
def influx() -> None:
    """InfluxDB as the store: set it up, check it."""


@influx.command()
@settings_option
@click.option("--url", help="The server; else aggregator.store.influxdb.url.")
@click.option("--database", help="The database; else aggregator.store.influxdb.database.")
def setup(config: Path | None, url: str | None, database: str | None) -> None:
    """Create database and retention (1.x), or buckets and their mapping (2.x).

    May be run again: existing ones are adapted to the settings, nothing is removed.
    """
    from aggregator.influx.client import InfluxClient  # noqa: PLC0415 - loads NumPy
    from aggregator.influx.setup import prepare  # noqa: PLC0415

    loaded = settings.load(config, flags=_flags(url, database)).aggregator.store
    loaded.influxdb.check(_WHERE)  # also while it is not the store yet
    with InfluxClient(loaded.influxdb) as client:
        server = prepare(client, echo)
    echo(f"{loaded.influxdb.url}: {server} is ready")
    if loaded.kind != "influxdb":
        echo('It is not the store yet: write kind = "influxdb" under [aggregator.store].')


@influx.command()
@settings_option
@click.option("--url", help="The server; else aggregator.store.influxdb.url.")
@click.option("--database", help="The database; else aggregator.store.influxdb.database.")
def check(config: Path | None, url: str | None, database: str | None) -> None:
    """Check the server, and print remedies; exit code 1 on a fault."""
    from aggregator.influx.client import InfluxClient  # noqa: PLC0415 - loads NumPy
    from aggregator.influx.inspection import inspect  # noqa: PLC0415

    loaded = settings.load(config, flags=_flags(url, database)).aggregator.store.influxdb
    loaded.check(_WHERE)
    with InfluxClient(loaded) as client:
        found = inspect(client, time.time())
    print_findings([(each.level, each.text, each.cure) for each in found], 2)
    if any(each.level == "fault" for each in found):
        sys.exit(ExitCode.TICKET)


def _flags(url: str | None, database: str | None) -> dict[str, object]:
    return {"aggregator.store.influxdb.url": url, "aggregator.store.influxdb.database": database}
