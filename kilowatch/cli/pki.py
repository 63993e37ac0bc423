"""`kilowatch pki`: certificates and the broker's access list, for those who have no authority."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from kilowatch.cli.arguments import json_option
from kilowatch.init.cluster_folder import exists
from kilowatch.output import echo, print_json
from kilowatch.pki.access_list import access_list
from kilowatch.pki.authority import AGGREGATOR, BROKER, DAY, Authority, PkiSettings, Role, date, members_to_show
from telemetry.errors import ConfigError
from telemetry.text import duration
from telemetry.wire.topics import check_name

BROKER_FOLDER = "/etc/mosquitto/kilowatch"
CA_DAYS, LEAF_DAYS = 3650, 825


OWN_FOLDER, CLUSTER_FOLDER = Path("kilowatch-pki"), Path("kilowatch-cluster")
"""Folders of `kilowatch pki init` and of `kilowatch init`, unless others are named."""


def folder_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--folder`, of an authority that is there."""
    return click.option(
        "--folder",
        type=click.Path(file_okay=False, path_type=Path),
        callback=lambda _context, _option, value: _authority_folder(value),
        help="Folder of the authority, or of the whole cluster that `kilowatch init` has made. "
        f"[default: {OWN_FOLDER} or {CLUSTER_FOLDER}]",
    )(command)


def _authority_folder(named: Path | None) -> Path:
    """Return the folder of the authority: the one that is named, or the only one here. Raises `ConfigError`."""
    if named is not None:
        return named / "pki" if exists(named) else named
    found = [path for path in (OWN_FOLDER, CLUSTER_FOLDER / "pki") if (path / "pki.json").exists()]
    if len(found) > 1:
        raise ConfigError(
            "kilowatch pki",
            f"there are two authorities here, {OWN_FOLDER} and {CLUSTER_FOLDER}",
            f"Name one: --folder {OWN_FOLDER} or --folder {CLUSTER_FOLDER}.",
        )
    return found[0] if found else OWN_FOLDER


def days_option(default: int) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Add `--days`."""
    return click.option(
        "--days", type=click.IntRange(1, 36500), default=default, show_default=True, help="Days for which it is valid."
    )


@click.group()
def pki() -> None:
    """Make a certificate authority, certificates, and mosquitto's access list (docs/deploy.md)."""


@pki.command()
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=OWN_FOLDER,
    show_default=True,
    help="Folder of the authority. Keep it off the nodes, and keep a copy of it.",
)
@click.option("--cluster", required=True, help="The cluster's name in the settings of all nodes.")
@click.option(
    "--broker",
    "names",
    required=True,
    multiple=True,
    help="Host name or address of the broker; repeat it for more. Clients connect to the first.",
)
@click.option("--port", type=click.IntRange(1, 65535), default=8883, show_default=True)
@click.option(
    "--broker-folder", default=BROKER_FOLDER, show_default=True, help="Where the broker's files will be on its machine."
)
@days_option(CA_DAYS)
def init(folder: Path, cluster: str, names: tuple[str, ...], port: int, broker_folder: str, days: int) -> None:
    """Make the authority, the broker's certificate, its access list and its mosquitto.conf."""
    asked = PkiSettings(cluster=cluster, names=names, port=port, place=broker_folder.rstrip("/"))
    if (folder / "pki.json").exists():
        authority = Authority(folder)
        if authority.settings != asked:
            raise ConfigError(
                str(folder),
                f"an authority for another cluster or broker is there "
                f"({authority.settings.cluster}, {', '.join(authority.settings.names)})",
                "Name another --folder; nothing was changed.",
            )
        echo(f"{folder}: is there already, valid until {date(authority.until)}")
        return
    authority = Authority.create(folder, asked, days)
    echo(
        f"{folder}: authority for the cluster {cluster}, valid until {date(authority.until)}\n"
        f"{folder}/broker: put it on the broker as {asked.place}, owned by mosquitto's user\n"
        f"Next: kilowatch pki aggregator{_words(folder)}; kilowatch pki node NAME...{_words(folder)}"
    )


@pki.command()
@folder_option
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
@days_option(LEAF_DAYS)
def node(folder: Path, names: tuple[str, ...], days: int) -> None:
    """Make a node's certificate and settings, and let it onto the broker."""
    _issue(folder, Role.NODE, names, days)


@pki.command()
@folder_option
@click.argument("name", default=AGGREGATOR)
@days_option(LEAF_DAYS)
def aggregator(folder: Path, name: str, days: int) -> None:
    """Make the aggregator's certificate and settings. A second aggregator needs a NAME of its own."""
    _issue(folder, Role.AGGREGATOR, (name,), days)


def _issue(folder: Path, role: Role, names: tuple[str, ...], days: int) -> None:
    authority = Authority(folder)
    with authority.locked():
        valid = authority.valid()
        for name in names:
            authority.check_new(role, name, valid.get(name))
        for name in dict.fromkeys(names):
            old = valid.get(name)
            if old is not None:
                echo(
                    f"{name}: has a certificate until {date(old.until)}; a new one: "
                    f"kilowatch pki renew {name}{_words(folder)}"
                )
                continue
            place = authority.issue(role, name, days)
            echo(f"{name}: {place}, valid until {date(time.time() + days * DAY)}")
        _published(authority)


@pki.command()
@folder_option
@click.argument("names", nargs=-1, metavar="NAME...")
@click.option("--broker", is_flag=True, help="The broker's own certificate too.")
@days_option(LEAF_DAYS)
def renew(folder: Path, names: tuple[str, ...], broker: bool, days: int) -> None:
    """Make a new key and certificate for names that have one.

    The old certificate is valid until it expires; `kilowatch pki revoke` withdraws it."""
    authority = Authority(folder)
    with authority.locked():
        valid = authority.valid()
        found = {name: valid.get(name) for name in names}
        missing = [name for name, old in found.items() if old is None]
        if missing or not (names or broker):
            raise ConfigError(
                "kilowatch pki renew",
                f"{missing[0]!r} has no certificate" if missing else "no name was given",
                f"`kilowatch pki show{_words(folder)}` lists those that are issued; --broker is the broker's.",
            )
        roles = {name: old.role for name, old in found.items() if old is not None}
        if broker:
            roles[BROKER] = Role.BROKER
        for name, role in roles.items():
            place = authority.issue(role, name, days)
            echo(f"{name}: {place}, valid until {date(time.time() + days * DAY)}")
        _published(authority)


@pki.command()
@folder_option
@click.argument("names", nargs=-1, required=True, metavar="NAME...")
def revoke(folder: Path, names: tuple[str, ...]) -> None:
    """Withdraw all certificates of a name: a node that is gone, or whose key was stolen."""
    authority = Authority(folder)
    with authority.locked():
        for name in dict.fromkeys(names):
            authority.revoke(name)
            echo(f"{name}: revoked")
        _published(authority)


def _words(folder: Path) -> str:
    """Return what a suggested command needs to find an authority again: nothing where it is the one here."""
    try:
        found = _authority_folder(None)
    except ConfigError:
        found = None
    whole = folder.parent if folder.name == "pki" and exists(folder.parent) else folder
    return "" if found is not None and found.absolute() == folder.absolute() else f" --folder {whole}"


def _published(authority: Authority) -> None:
    whole = authority.folder.parent
    if authority.folder.name == "pki" and exists(whole):
        authority.publish()
        echo(
            f"{whole}: kilowatch init --folder {whole} writes its archives anew; unpack broker.tar on the "
            "broker again, and systemctl reload mosquitto"
        )
        return
    echo(f"{authority.publish()}: copy it to the broker, then have mosquitto read it: systemctl reload mosquitto")


@pki.command()
@folder_option
@json_option
def show(folder: Path, as_json: bool) -> None:
    """List names, roles, and when their certificates expire."""
    authority = Authority(folder)
    found = members_to_show(authority.certificates())
    if as_json:
        print_json({"until": authority.until, "certificates": found})
        return
    now = time.time()
    echo(f"cluster {authority.settings.cluster}, authority until {date(authority.until)}")
    for each in found:
        left = "revoked" if each.revoked else f"{duration(each.until - now)} left"
        left = "expired" if each.until < now and not each.revoked else left
        echo(f"{each.role:10}  {each.name:32}  {date(each.until)}  {left}")


@pki.command()
@click.option("--cluster", required=True, help="The cluster's name in the settings of all nodes.")
@click.option("--aggregator", "aggregators", multiple=True, default=(AGGREGATOR,))
@click.argument("names", nargs=-1, metavar="NODE...")
def acl(cluster: str, aggregators: tuple[str, ...], names: tuple[str, ...]) -> None:
    """Print mosquitto's access list for certificates of another authority."""
    check_name("--cluster", cluster)
    for name in (*aggregators, *names):
        check_name("kilowatch pki acl", name)
    both = set(aggregators) & set(names)
    if both:
        raise ConfigError("kilowatch pki acl", f"{both.pop()!r} is node and aggregator", "Rename it.")
    echo(access_list(cluster, aggregators, names), nl=False)
