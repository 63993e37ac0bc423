"""`kilowatch jobs` and `kilowatch job`: who had which GPUs, and what they used."""

from __future__ import annotations

from pathlib import Path

import click

from kilowatch.cli.aggregator import address_argument, aggregator_options, open_api
from kilowatch.cli.arguments import json_option
from kilowatch.output import echo, print_json


@click.command()
@address_argument
@click.option("--job", "name", default="", help="Only this job.")
@click.option("--user", default="", help="Only jobs of this user.")
@click.option("--account", default="", help="Only jobs of this account.")
@click.option("--node", default="", help="Only jobs on this node.")
@click.option("--state", type=click.Choice(["running", "ended"]), help="Only jobs that run, or that ended.")
@click.option(
    "--since",
    "since",
    default="-24h",
    show_default=True,
    help="Only jobs that ran after this time: -2d, 2026-08-01T10:00:00Z.",
)
@click.option("--limit", type=click.IntRange(1, 5000), default=100, show_default=True)
@json_option
@aggregator_options
def jobs(
    name: str,
    user: str,
    account: str,
    node: str,
    state: str | None,
    since: str,
    limit: int,
    as_json: bool,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
) -> None:
    """List jobs with the GPUs that they have or had, their use and energy; the newest first."""
    from api.jobs import JobsReply  # noqa: PLC0415 - keep --help quick
    from kilowatch.text.jobs import job_lines  # noqa: PLC0415

    asked = {"job": name, "user": user, "account": account, "node": node, "state": state, "from": since, "limit": limit}
    reply = open_api(config, http, token_file).get("/api/v1/jobs", JobsReply, **asked)
    if as_json:
        print_json(reply)
        return
    for line in job_lines(reply):
        echo(line)


@click.command()
@click.argument("name", metavar="ID")
@address_argument
@click.option("--scheduler", default="", help="Of this scheduler, where several have such a job.")
@click.option("--node", default="", help="On this node: a user, unit or container is a job of each.")
@json_option
@aggregator_options
def job(
    name: str, scheduler: str, node: str, as_json: bool, config: Path | None, http: str | None, token_file: Path | None
) -> None:
    """Show what the job ID had and used: GPU hours, utilisation, energy, cost, limits, faults.

    Figures that were read for less than 90 % of its time begin with `~`; what is not known is named.
    """
    from api.jobs import JobReply  # noqa: PLC0415 - keep --help quick
    from kilowatch.clients.api import part  # noqa: PLC0415
    from kilowatch.text.jobs import summary_lines  # noqa: PLC0415

    api = open_api(config, http, token_file)
    reply = api.get(f"/api/v1/jobs/{part(name)}", JobReply, scheduler=scheduler, node=node)
    if as_json:
        print_json(reply)
        return
    for line in summary_lines(reply):
        echo(line)
