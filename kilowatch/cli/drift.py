"""`kilowatch drift` and `kilowatch diff`: who differs from nodes of its kind, and how."""

from __future__ import annotations

import sys
from pathlib import Path
from urllib.parse import quote

import click

from kilowatch.cli.aggregator import address_argument, aggregator_options, open_api
from kilowatch.cli.arguments import json_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json


@click.command()
@address_argument
@json_option
@aggregator_options
def drift(as_json: bool, config: Path | None, http: str | None, token_file: Path | None) -> None:
    """Show nodes that are others than `[[expected]]` declares: GPUs, ports, memory, mounts, services, versions; and
    where nothing is declared, others than most nodes of their kind.

    A kind is a role with a product and a model of GPU; what four fifths of at least five nodes have is what they
    should have. Power limits, serial numbers and addresses are not compared (docs/drift.md).

    Exit code 0: nobody differs. 1: a node differs, or a kind is mixed. 3: nothing is declared, and no kind has
    five nodes.
    """
    from api.drift import DriftReply  # noqa: PLC0415 - keep --help quick
    from kilowatch.text.drift import drift_lines  # noqa: PLC0415

    reply = open_api(config, http, token_file).get("/api/v1/drift", DriftReply)
    if as_json:
        print_json(reply)
    else:
        for line in drift_lines(reply):
            echo(line)
    if any(group.deviations or group.mixed for group in reply.groups):
        sys.exit(ExitCode.TICKET)
    evaluated = any(group.evaluated or group.declared for group in reply.groups)
    sys.exit(ExitCode.CLEAN if evaluated else ExitCode.UNJUDGED)


@click.command()
@click.argument("node")
@click.argument("other")
@address_argument
@json_option
@aggregator_options
def diff(node: str, other: str, as_json: bool, config: Path | None, http: str | None, token_file: Path | None) -> None:
    """Show in what the nodes NODE and OTHER differ: driver, firmware, kernel, GPUs, ports.

    Exit code 0: in nothing that is known of both. 1: they differ.
    """
    from api.drift import NodeDifferenceReply  # noqa: PLC0415 - keep --help quick
    from kilowatch.text.drift import difference_lines  # noqa: PLC0415

    path = f"/api/v1/drift/{quote(node, safe='')}/{quote(other, safe='')}"
    reply = open_api(config, http, token_file).get(path, NodeDifferenceReply)
    if as_json:
        print_json(reply)
    else:
        for line in difference_lines(reply):
            echo(line)
    sys.exit(ExitCode.TICKET if reply.differences else ExitCode.CLEAN)
