"""`kilowatch init`: the files of a whole cluster, or of one machine, in a folder."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from collector.config import short_hostname
from kilowatch.cli.pki import CA_DAYS, CLUSTER_FOLDER, LEAF_DAYS
from kilowatch.init.cluster_folder import BROKER_PLACE, ClusterFolder, exists
from kilowatch.output import echo
from kilowatch.pki.authority import PkiSettings
from telemetry.errors import ConfigError

PORT = 8883


@click.command()
@click.argument("nodes", nargs=-1, metavar="[NODE]...")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=CLUSTER_FOLDER,
    show_default=True,
    help="Where to write. Keep it off the nodes, and keep a copy of it.",
)
@click.option("--cluster", help="The cluster's name. [asked for]")
@click.option(
    "--broker",
    "names",
    multiple=True,
    help="Host name or address of the broker; repeat it for more. Clients connect to the first.",
)
@click.option("--port", type=click.IntRange(1, 65535), help=f"Port of the broker. [default: {PORT}]")
@click.option("--one-machine", is_flag=True, help="Broker, aggregator and node are this machine.")
@click.option("--node", "more", multiple=True, help="Add a node to the folder: one file for it.")
@click.option("--overwrite", is_flag=True, help="Replace files with another content.")
@click.option(
    "--broker-folder", default=BROKER_PLACE, show_default=True, help="Where the broker's files will be on its machine."
)
@click.option(
    "--days",
    type=click.IntRange(1, 36500),
    default=LEAF_DAYS,
    show_default=True,
    help="Days for which certificates are valid.",
)
def init(
    nodes: tuple[str, ...],
    folder: Path,
    cluster: str | None,
    names: tuple[str, ...],
    port: int | None,
    one_machine: bool,
    more: tuple[str, ...],
    overwrite: bool,
    broker_folder: str,
    days: int,
) -> None:
    """Write all that a cluster needs: certificates, broker, settings, units, Prometheus, Grafana.

    NODE... are the names of the nodes. What is missing is asked for on a terminal. Run again, it adds the
    nodes that are new, and leaves every file that you changed. docs/deploy.md has the steps.
    """
    begun, settings = exists(folder), None
    if more and (nodes or one_machine):
        raise ConfigError("--node", "it adds to a folder that is there", "Leave out the other names.")
    if begun and (cluster or names or port):
        raise ConfigError(
            str(folder),
            "--cluster, --broker and --port belong to the beginning of a cluster",
            "Leave them out, or name another --folder.",
        )
    if not begun and not more:
        cluster, names, nodes, one_machine = _asked(cluster, names, nodes, one_machine)
        place = broker_folder.rstrip("/")
        settings = PkiSettings(cluster=cluster, names=names, port=port or PORT, place=place)
    with _nothing_left(folder):
        _write(folder, settings, nodes, more, days, one_machine=one_machine, overwrite=overwrite)


@contextmanager
def _nothing_left(folder: Path) -> Iterator[None]:
    """Remove what was begun where a cluster could not be: else the next run would take it for one."""
    ours = next((place for place in (folder, folder / "pki") if not place.exists()), None)
    try:
        yield
    except BaseException as error:
        if ours is not None:
            shutil.rmtree(ours, ignore_errors=True)
        if isinstance(error, OSError):
            place = str(error.filename or folder)
            raise ConfigError(
                place, f"it can't be written: {error.strerror or error}", "Name another --folder."
            ) from error
        raise


def _write(
    folder: Path,
    settings: PkiSettings | None,
    nodes: tuple[str, ...],
    more: tuple[str, ...],
    days: int,
    *,
    one_machine: bool,
    overwrite: bool,
) -> None:
    made = ClusterFolder.opened(folder, settings, (CA_DAYS, days), lambda path: overwrite or _replace(path))
    machine = one_machine or (folder / "machine.tar").exists()
    if machine and settings is None and (nodes or more):
        raise ConfigError(str(folder), "it is for one machine alone", "Name another --folder.")
    made.add([*nodes, *more])
    if more:
        made.write_broker()
        for name in more:
            echo(str(made.write_node(name)))
        echo(f"{folder}/broker.tar: unpack it on the broker again, and systemctl reload mosquitto", err=True)
        return
    made.write_cluster(one_machine=machine)
    for path in made.kept:
        echo(f"{path}: differs from what would be written, and is left as it is; --overwrite replaces it", err=True)
    echo(f"{folder}: {len(made.written)} files written; {folder}/INSTALL.md has the next steps")


def _asked(
    cluster: str | None, names: tuple[str, ...], nodes: tuple[str, ...], one_machine: bool
) -> tuple[str, tuple[str, ...], tuple[str, ...], bool]:
    """Return what begins a cluster; what was not given is asked for. Raises `ConfigError` where nobody
    can be asked."""
    if not sys.stdin.isatty():
        missing = [
            flag
            for flag, given in (
                ("--cluster", cluster),
                ("--broker", names or one_machine),
                ("NODE", nodes or one_machine),
            )
            if not given
        ]
        if missing:
            raise ConfigError(
                "kilowatch init",
                f"{', '.join(missing)} must be given where there is no terminal",
                "kilowatch init --cluster lab --broker broker.example dgx01 dgx02",
            )
    here = short_hostname()
    if cluster is None:
        cluster = click.prompt("Name of the cluster", default="default")
    if not nodes and not one_machine:
        text = click.prompt(
            "Names of the nodes, with spaces between (none: this machine is all there is)",
            default="",
            show_default=False,
        )
        nodes = tuple(text.split())
        one_machine = not nodes
    if one_machine:
        nodes = nodes or (here,)
        names = names or ("localhost",)
        if len(nodes) != 1:
            raise ConfigError("--one-machine", f"{len(nodes)} nodes are more than one machine", "Name one, or none.")
    if not names:
        names = (click.prompt("Host name of the MQTT broker", default=here),)
    return str(cluster), names, nodes, one_machine


def _replace(path: Path) -> bool:
    """Ask whether a file with another content is to be replaced; no, where nobody can be asked."""
    return sys.stdin.isatty() and click.confirm(f"{path} differs from what would be written. Replace it?")
