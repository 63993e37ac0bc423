"""`kilowatch forget`: remove a node that is gone for good."""

from __future__ import annotations

from pathlib import Path

import click

from kilowatch.cli.aggregator import address_argument, aggregator_options, open_api
from kilowatch.cli.arguments import json_option
from kilowatch.output import echo, print_json


@click.command()
@click.argument("node")
@address_argument
@click.option("--why", default="", help="Reason, for the aggregator's log.")
@json_option
@aggregator_options
def forget(node: str, why: str, as_json: bool, config: Path | None, http: str | None, token_file: Path | None) -> None:
    """Remove NODE, which is gone for good: from the fleet, its alerts, and what the broker retains of it.

    Its history stays, and a node that sends again is back. One that is online is refused: stop its
    collector first. Needs a token with the scope admin, or the aggregator's own user.
    """
    from api.fleet import ForgetReply, ForgetRequest  # noqa: PLC0415 - keep --help quick
    from kilowatch.clients.api import part  # noqa: PLC0415

    api = open_api(config, http, token_file)
    reply = api.post(f"/api/v1/nodes/{part(node)}/forget", ForgetRequest(why=why), ForgetReply)
    if as_json:
        print_json(reply)
    elif reply.known:
        echo(f"{reply.node} is forgotten; its history stays")
    else:
        echo(f"no node {reply.node} was known here; what the broker may have retained of it is cleared")
