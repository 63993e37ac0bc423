"""`kilowatch`: the command. Each error that an operator can correct is one line on stderr."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from typing import Any

import click

from kilowatch import version
from kilowatch.exit_codes import ExitCode
from telemetry.errors import ConfigError, KilowattError, did_you_mean
from telemetry.text.log_lines import log_to_stderr
from telemetry.text.printable import printable_lines

COMMANDS = {
    "run": "services",
    "demo": "clusters",
    "collect": "services",
    "aggregate": "services",
    "top": "views",
    "status": "views",
    "who": "who",
    "jobs": "jobs",
    "job": "jobs",
    "tap": "bus",
    "record": "bus",
    "token": "token",
    "command": "command",
    "config": "config",
    "doctor": "doctor",
    "pki": "pki",
    "init": "init",
    "cluster": "cluster",
    "circuits": "circuits",
    "plan": "plan",
    "fit": "power",
    "cap": "power",
    "report": "report",
    "power": "power",
    "alerts": "alerts",
    "ack": "alerts",
    "silence": "alerts",
    "notify": "alerts",
    "recover": "recover",
    "influx": "influx",
    "rules": "rules",
    "replay": "rules",
    "nodes": "nodes",
    "drift": "drift",
    "diff": "drift",
    "forget": "forget",
    "verify": "verify",
    "check": "check",
    "diagnose": "diagnose",
    "xid": "diagnose",
}
"""Module of `kilowatch.cli` by command, imported when the command is called, so that a collector
does not hold the memory of other commands."""


REMOVED = {
    "web": "Use `kilowatch top ADDRESS` on a terminal, also over ssh, or Grafana (docs/grafana.md) in "
    "a browser.",
}
"""Commands of earlier releases, and what to use instead."""


class BadSettings(click.ClickException):
    """Wrong settings: the exit code of usage errors."""

    exit_code = ExitCode.USAGE


class Group(click.Group):
    """Imports a command when it is called, and turns errors into one line and an exit code of
    `kilowatch.exit_codes`: click's own would be 2 for usage, which is a page here."""

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        **extra: Any,
    ) -> Any:
        if not standalone_mode:
            return super().main(args, prog_name, complete_var, standalone_mode, **extra)
        try:
            # An exit code that click returns, and not None, is that of --help and --version.
            sys.exit(super().main(args, prog_name, complete_var, False, **extra) or ExitCode.CLEAN)
        except click.ClickException as error:
            error.show()
            wrong = isinstance(error, click.UsageError | BadSettings)
            sys.exit(ExitCode.USAGE if wrong else ExitCode.UNJUDGED)
        except click.Abort:
            click.echo("Aborted!", err=True)
            sys.exit(ExitCode.INTERRUPTED)
        except Exception:  # noqa: BLE001 - a fault of kilowatch itself is no ticket about a GPU
            traceback.print_exc()
            sys.exit(ExitCode.UNJUDGED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = COMMANDS.get(cmd_name)
        if module is None:
            return None
        found = getattr(import_module(f"kilowatch.cli.{module}"), cmd_name)
        assert isinstance(found, click.Command)  # noqa: S101 - the table above is ours
        return found

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and not args[0].startswith("-") and args[0] not in COMMANDS:
            if args[0] in REMOVED:
                ctx.fail(f"kilowatch {args[0]} was removed. {REMOVED[args[0]]}")
            hint = did_you_mean(args[0], COMMANDS) or "kilowatch --help lists all."
            ctx.fail(f"No such command {args[0]!r}. {hint}")
        return super().resolve_command(ctx, args)

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except KilowattError as error:
            failure = BadSettings if isinstance(error, ConfigError) else click.ClickException
            raise failure(printable_lines(str(error))) from error
        except BrokenPipeError:  # click would exit with 1, which is a ticket here
            # Python flushes at its end, to what takes it.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(ExitCode.PIPE)


def _print_version(ctx: click.Context, _param: click.Parameter, asked: bool) -> None:
    if asked and not ctx.resilient_parsing:
        click.echo(f"kilowatch, version {version()}")
        ctx.exit()


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version and exit.")  # fmt: skip
@click.option("-v", "--verbose", count=True, help="Log more; twice for everything.")
def main(verbose: int) -> None:
    """Telemetry and health for GPU clusters: every watt, every fault, every breaker.

    Start with `kilowatch run` on a machine with GPUs, or with `kilowatch demo` anywhere.
    """
    os.umask(0o077)  # readings, users and jobs are no other user's business
    level = {0: logging.WARNING, 1: logging.INFO}.get(verbose, logging.DEBUG)
    log_to_stderr(level)


if __name__ == "__main__":
    main()
