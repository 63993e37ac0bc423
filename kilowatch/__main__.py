"""`kilowatch`: the command. Each error that an operator can correct is one line on stderr."""

from __future__ import annotations

import logging
import os
import sys
import traceback
from collections.abc import Sequence
from importlib import import_module
from textwrap import shorten
from typing import Any

import click

from kilowatch.exit_codes import ExitCode
from telemetry.errors import ConfigError, KilowattError, did_you_mean
from telemetry.runtime.release import release
from telemetry.text.log_lines import log_to_stderr
from telemetry.text.outside_errors import logged_line
from telemetry.text.printable import printable_lines

COMMANDS = {
    "run": ("services", "Watch this machine: broker, collector, aggregator and dashboard in one."),
    "demo": ("clusters", "Run a simulated cluster: real broker, collectors and aggregator, simulated GPUs."),
    "collect": ("services", "Read this node's GPUs and publish the readings."),
    "aggregate": ("services", "Receive and store the frames of all nodes, evaluate rules, notify, and serve HTTP."),
    "top": ("views", "Show a running cluster live."),
    "status": ("views", "Print the cluster on one screen of text."),
    "who": ("who", "Show the processes on each GPU with user, job, memory and use (docs/jobs.md)."),
    "jobs": ("jobs", "List jobs with the GPUs that they have or had, their use and energy; the newest first."),
    "job": ("jobs", "Show what the job ID had and used: GPU hours, utilisation, energy, cost, limits, faults."),
    "tap": ("bus", "Print messages of the bus as text, binary frames too."),
    "record": ("bus", "Write everything on the bus to FILE; `collect --source recording:FILE` plays it again."),
    "token": ("token", "Tokens of the aggregator's HTTP: make, list and revoke them."),
    "command": (
        "command",
        "Have a node's collector release its driver for an upgrade, resume it, or send its inventory.",
    ),
    "config": ("config", "Check or show the settings."),
    "doctor": ("doctor", "Check what this machine needs for its role: driver, broker and rights, clock, disk, ports."),
    "pki": ("pki", "Make a certificate authority, certificates, and mosquitto's access list (docs/deploy.md)."),
    "init": ("init", "Write all that a cluster needs: certificates, broker, settings, units, Prometheus, Grafana."),
    "cluster": (
        "cluster",
        "Show the members of a cluster of aggregators, their shard groups and last moves, as NATS has them.",
    ),
    "circuits": ("circuits", "Show every circuit: load, limits, headroom, heat of the breaker, and time to trip."),
    "plan": ("plan", "Plan a change: whether every circuit bears it, with load, limits and time to trip."),
    "fit": (
        "power",
        "Find circuits for new machines: WHAT is a system (dgx-h100), GPUs (rtx-5090:4) or watts (3.5kW).",
    ),
    "cap": ("power", "Plan power limits of single GPUs that hold a circuit below a power; nothing is applied."),
    "report": ("report", "Describe a cluster: GPUs, memory, power, price, and comparisons."),
    "power": ("power", "Circuits, meters and budgets: check their settings, or import them."),
    "alerts": ("alerts", "Open incidents, worst first, the evidence of one, and how good the alerts are."),
    "ack": ("alerts", "Acknowledge an incident: reminders stop until it grows worse."),
    "silence": ("alerts", "Suppress notifications of alerts that match all of LABEL=VALUE, for a while."),
    "notify": ("alerts", "Notification channels: their state, and a test message."),
    "recover": ("recover", "Print the steps that bring a node or GPU back to work; with --write, carry them out."),
    "influx": ("influx", "InfluxDB as the store: set it up, check it."),
    "rules": ("rules", "Rules: check and test a file, or list those in force."),
    "replay": ("rules", "Evaluate a recording (`kilowatch record FILE`): which notifications it comes to, and when."),
    "nodes": ("nodes", "List nodes, expect new ones, retire and rename old ones (docs/deploy.md)."),
    "drift": (
        "drift",
        "Show nodes that are others than `[[expected]]` declares: GPUs, ports, memory, mounts, services, versions; and where nothing is declared, others than most nodes of their kind.",
    ),
    "diff": ("drift", "Show in what the nodes NODE and OTHER differ: driver, firmware, kernel, GPUs, ports."),
    "forget": (
        "forget",
        "Remove NODE, which is gone for good: from the fleet, its alerts, and what the broker retains of it.",
    ),
    "verify": ("verify", "Verify sealed files by the checksum that each carries; all of the store, or FILES."),
    "check": ("check", "Check whether this node is fit for work: driver, GPUs, kernel log, disk, clock."),
    "diagnose": ("diagnose", "Find faults of GPUs in saved logs of nodes."),
    "xid": ("diagnose", "Explain XID NUMBER and its remedy; for 144 to 150 a single line is not conclusive."),
}
"""Module of `kilowatch.cli` by command, imported when the command is called, so that a collector does not hold the memory
of other commands; and the first sentence of its help, so that `--help` imports none of them."""


REMOVED = {
    "web": "Use `kilowatch top ADDRESS` on a terminal, also over ssh, or Grafana (docs/grafana.md) in a browser."
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
        except Exception as error:  # noqa: BLE001 - a fault of kilowatch itself is no ticket about a GPU
            if line := logged_line(error):
                click.echo(f"Error: {printable_lines(line)}", err=True)
            else:
                traceback.print_exc()
            sys.exit(ExitCode.UNJUDGED)

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        found = getattr(import_module(f"kilowatch.cli.{module}"), cmd_name)
        assert isinstance(found, click.Command)  # noqa: S101 - the table above is ours
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        limit = formatter.width - 6 - max(map(len, COMMANDS))  # as click has it
        rows = [(name, shorten(words, limit, placeholder="...")) for name, (_, words) in COMMANDS.items()]
        with formatter.section("Commands"):
            formatter.write_dl(rows)

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
        click.echo(f"kilowatch, version {release()}")
        ctx.exit()


@click.group(cls=Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_print_version,
    help="Show the version and exit.",
)
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
