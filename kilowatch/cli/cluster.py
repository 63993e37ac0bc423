"""`kilowatch cluster`: several aggregators as one, on NATS (docs/cluster.md)."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click

from kilowatch import settings
from kilowatch.cli.arguments import json_option, settings_option
from kilowatch.cli.pki import folder_option
from kilowatch.exit_codes import ExitCode
from kilowatch.output import echo, print_json
from telemetry.errors import ConfigError

NATS_DATA = "/var/lib/nats"


@click.group(invoke_without_command=True)
@json_option
@settings_option
@click.pass_context
def cluster(context: click.Context, as_json: bool, config: Path | None) -> None:
    """Show the members of a cluster of aggregators, their shard groups and last moves, as NATS has them.

    Exit code 0: every group has a member. 1: a member that had groups is gone, and others have them. 2: groups
    without a member. 3: NATS does not answer.
    """
    if context.invoked_subcommand is not None:
        return
    from kilowatch.clients.members import read_members  # noqa: PLC0415 - keep --help quick
    from kilowatch.text.members import member_lines  # noqa: PLC0415

    loaded = settings.load(config)
    members = loaded.aggregator.members
    if not members.nats:
        raise ConfigError(
            f"{settings.where(config)}: cluster.nats",
            "this aggregator is a single one",
            'Write [cluster] nats = ["nats://HOST:4222"] (docs/cluster.md).',
        )
    found = asyncio.run(read_members(members, loaded.cluster))
    if as_json:
        print_json(found)
    else:
        for line in member_lines(found, time.time_ns()):
            echo(line)
    if found.unheld:
        sys.exit(ExitCode.PAGE)
    sys.exit(ExitCode.TICKET if found.gone else ExitCode.CLEAN)


@cluster.command("nats-config")
@folder_option
@click.option(
    "--server",
    "named",
    multiple=True,
    required=True,
    metavar="NAME=HOST[:PORT]",
    help="A nats-server, three times at least. HOST is a --broker of the authority; PORT is 4222 unless given, "
    "and the server's other ports lie as far from their usual ones.",
)
@click.option("--print", "shown", metavar="NAME", help="Print the configuration of one server.")
@click.option(
    "--out", type=click.Path(file_okay=False, path_type=Path), help="Write NAME.conf of each server into this folder."
)
@click.option(
    "--data",
    default=NATS_DATA,
    show_default=True,
    help="Folder of JetStream on the servers; each has one below it, by its name.",
)
@click.option(
    "--certificates",
    metavar="FOLDER",
    help="Where broker.crt, broker.key and ca.crt are on the servers. [default: as given to `pki init`]",
)
def nats_config(
    folder: Path, named: tuple[str, ...], shown: str | None, out: Path | None, data: str, certificates: str | None
) -> None:
    """Write the configuration of the nats-servers: TLS, JetStream, and what each certificate may do.

    Each node that the authority knows may publish its own topics and read its commands, over MQTT alone;
    each aggregator may do everything. Write the files anew after each change of the authority's members."""
    from kilowatch.pki import nats_configuration as nats  # noqa: PLC0415 - keep --help quick
    from kilowatch.pki.authority import Authority, Role, replace_private  # noqa: PLC0415

    authority = Authority(folder)
    servers = [nats.parse_server(text) for text in named]
    nats.check_servers(servers, authority.settings.names)
    names = {each.name for each in servers}
    if (shown is None) == (out is None) or (shown is not None and shown not in names):
        raise ConfigError(
            "kilowatch cluster nats-config",
            "it is not said where the configuration goes" if shown is None else f"--print {shown} names no --server",
            f"Give either --out FOLDER, or --print with one of {', '.join(sorted(names))}.",
        )
    if not authority.broker_is_client():
        raise ConfigError(
            str(authority.folder / "broker"),
            "an older release made the broker's certificate, with which servers can't connect to each other",
            "kilowatch pki renew --broker, and copy broker/ to the servers.",
        )
    installed, version = shutil.which("nats-server"), nats.SAFE_VERSION
    if installed is not None:
        version = nats.check_version(server_version(installed))
    valid = authority.valid().values()
    for server in servers:
        text = nats.nats_configuration(
            authority.settings.cluster,
            servers,
            server,
            authority.settings.port,
            (certificates or authority.settings.place).rstrip("/"),
            f"{data.rstrip('/')}/{server.name}",
            [each.name for each in valid if each.role is Role.AGGREGATOR],
            [each.name for each in valid if each.role is Role.NODE],
            version,
        )
        if out is not None:
            out.mkdir(parents=True, exist_ok=True)
            replace_private(out / f"{server.name}.conf", text.encode())
            echo(f"{out / f'{server.name}.conf'}: {server.host}, nats-server -c {server.name}.conf")
        elif server.name == shown:
            echo(text, nl=False)


def server_version(binary: str) -> str:
    """Return what a nats-server says of its version. Raises `ConfigError`."""
    try:
        done = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True, timeout=10)
    except (OSError, subprocess.SubprocessError) as error:
        raise ConfigError("nats-server", f"{binary} does not start: {error}", "Install it anew.") from error
    return done.stdout
