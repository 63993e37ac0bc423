"""`kilowatch nodes`: which nodes belong to the cluster, and what becomes of one that leaves or is renamed."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from kilowatch.cli.aggregator import address_argument, aggregator_options, open_api
from kilowatch.cli.arguments import json_option
from kilowatch.output import echo, print_json

if TYPE_CHECKING:
    from api.node_register import RegisterChange, RegisterRow

WHY = click.option("--why", default="", help="Reason, shown by `kilowatch nodes list`.")


@click.group()
def nodes() -> None:
    """List nodes, expect new ones, retire and rename old ones (docs/deploy.md)."""


@nodes.command("list")
@address_argument
@json_option
@aggregator_options
def list_nodes(as_json: bool, config: Path | None, http: str | None, token_file: Path | None) -> None:
    """List all nodes that are expected, retired, renamed or heard, with their releases.

    A release that differs from the aggregator's is marked older or newer."""
    from api.node_register import RegisterReply  # noqa: PLC0415 - keep --help quick
    from kilowatch.text.nodes import node_lines  # noqa: PLC0415

    reply = open_api(config, http, token_file).get("/api/v1/register", RegisterReply)
    if as_json:
        print_json(reply)
        return
    for line in node_lines(reply):
        echo(line)


@nodes.command()
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@WHY
@json_option
@aggregator_options
def expect(
    names: tuple[str, ...], why: str, as_json: bool, config: Path | None, http: str | None, token_file: Path | None
) -> None:
    """Declare that nodes belong to the cluster: while one is not there, that is an alert.

    A node that was retired is taken back. Needs a token with the scope admin, or the aggregator's own user.
    """
    for name in names:
        row = _change(name, "expect", why, config, http, token_file)
        if as_json:
            print_json(row)
        else:
            echo(f"{name} is expected, and {row.state}")


@nodes.command()
@click.argument("name")
@address_argument
@WHY
@json_option
@aggregator_options
def retire(name: str, why: str, as_json: bool, config: Path | None, http: str | None, token_file: Path | None) -> None:
    """Declare that the node NAME has left the cluster.

    It leaves the fleet, its alerts end, the broker retains nothing of it, and its history stays. If it sends
    again, that is an alert. One that is online is refused: stop its collector first. Needs a token with the
    scope admin, or the aggregator's own user.
    """
    row = _change(name, "retire", why, config, http, token_file)
    if as_json:
        print_json(row)
        return
    echo(f"{name} is retired; its history stays")
    echo(f"Withdraw its certificate where the authority is: kilowatch pki revoke {name}")


@nodes.command()
@click.argument("old")
@click.argument("new")
@address_argument
@WHY
@click.option(
    "--pki",
    "folder",
    type=click.Path(file_okay=False, exists=True, path_type=Path),
    help="Folder of the authority, if it is on this machine: makes the new certificate and access list.",
)
@json_option
@aggregator_options
def rename(
    old: str,
    new: str,
    why: str,
    folder: Path | None,
    as_json: bool,
    config: Path | None,
    http: str | None,
    token_file: Path | None,
) -> None:
    """Give the node OLD the name NEW from its next start on.

    Its history is found under NEW too, and it is expected if OLD was. OLD leaves the fleet when NEW is heard.
    Needs a token with the scope admin, or the aggregator's own user.
    """
    from api.node_register import RegisterChange, RenameRequest  # noqa: PLC0415
    from kilowatch.cli.pki import LEAF_DAYS  # noqa: PLC0415
    from kilowatch.clients.api import part  # noqa: PLC0415
    from kilowatch.pki.authority import Authority, Role  # noqa: PLC0415

    authority = None if folder is None else Authority(folder)
    if authority is not None:
        authority.check_new(Role.NODE, new, authority.valid().get(new))
    api = open_api(config, http, token_file)
    request = RenameRequest(to=new, why=why)
    reply = api.post(f"/api/v1/nodes/{part(old)}/rename", request, RegisterChange)
    place = f"nodes/{new}"
    if authority is not None:
        with authority.locked():
            if new not in authority.valid():
                authority.issue(Role.NODE, new, LEAF_DAYS)
            place = str(authority.folder / "nodes" / new)
            authority.publish()
    if as_json:
        print_json(reply.row)
        return
    echo(f"{old} is {new} from its next start on; its history is found under both")
    steps = [] if authority is not None else [f"kilowatch pki node {new}"]
    steps += [
        "copy broker/ of the authority to the broker, systemctl reload mosquitto",
        f"copy {place}/ to /etc/kilowatch on the node, systemctl restart kilowatch-collector",
        f"kilowatch pki revoke {old}, and broker/ to the broker again",
    ]
    for number, step in enumerate(steps, 1):
        echo(f"  {number}. {step}")


def _change(
    name: str, action: str, why: str, config: Path | None, http: str | None, token_file: Path | None
) -> RegisterRow:
    """Send a change of the register, and return the row of its node."""
    from api.node_register import RegisterChange, RegisterRequest  # noqa: PLC0415
    from kilowatch.clients.api import part  # noqa: PLC0415

    api = open_api(config, http, token_file)
    where = f"/api/v1/nodes/{part(name)}/{action}"
    reply: RegisterChange = api.post(where, RegisterRequest(why=why), RegisterChange)
    return reply.row
