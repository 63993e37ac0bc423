"""`kilowatch`: the one command. Each error that an operator can mend is one line on stderr."""

from __future__ import annotations

import logging
import os
import sys

import click

from kilowatch import VERSION
from kilowatch.cli import bus, clusters, config, doctor, services, views
from telemetry.errors import ConfigError, KilowattError


class BadSettings(click.ClickException):
    """Something must be written otherwise; as click's own usage errors, exit code 2."""

    exit_code = 2


class Group(click.Group):
    """Turns our errors into one line and an exit code: 2 for settings, 1 for the rest."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KilowattError as error:
            failure = BadSettings if isinstance(error, ConfigError) else click.ClickException
            raise failure(str(error)) from error


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="kilowatch")
@click.option("-v", "--verbose", count=True, help="Say more; twice for everything.")
def main(verbose: int) -> None:
    """Telemetry and health for GPU clusters: every watt, every fault, every breaker.

    Start with `kilowatch run` on a machine with GPUs, or with `kilowatch demo` anywhere.
    """
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    under_journald = "JOURNAL_STREAM" in os.environ
    logging.basicConfig(
        level=level,
        stream=sys.stderr,
        format="%(levelname)s %(name)s: %(message)s"
        if under_journald
        else "%(asctime)s %(levelname)s %(name)s: %(message)s",
    )


for command in (
    services.run,
    clusters.demo,
    services.collect,
    services.aggregate,
    views.top,
    bus.tap,
    bus.record,
    config.config,
    doctor.doctor,
):
    main.add_command(command)

if __name__ == "__main__":
    main()
