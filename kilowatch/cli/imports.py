"""`kilowatch power import`: circuits that another system knows already."""

from __future__ import annotations

import tomllib
from pathlib import Path

import click

from kilowatch.clients.netbox import NetBox
from power.netbox import translate, write
from power.site.decode import decode
from power.site.layout import lay_out
from telemetry.errors import ConfigError

STATUSES = ("active", "planned", "offline", "failed")


@click.group("import")
def import_group() -> None:
    """Take circuits over from another system; nothing is changed there or here."""


@import_group.command()
@click.argument("url")
@click.option("--token-file", type=click.Path(dir_okay=False, path_type=Path), help="File with an API token alone; reading is enough.")  # fmt: skip
@click.option("--status", "statuses", multiple=True, type=click.Choice(STATUSES), default=("active",), help="Feeds of this status; again for more. [default: active]")  # fmt: skip
@click.option("--site", metavar="SLUG", help="Of one site alone.")
@click.option("--draws", is_flag=True, help="Take each device's draw in NetBox as its watts, for devices without a collector.")  # fmt: skip
@click.option("--ca-file", type=click.Path(dir_okay=False, path_type=Path), help="Certificates to trust beside those of this machine.")  # fmt: skip
@click.option("--insecure", is_flag=True, help="Do not check the certificate.")
def netbox(
    url: str,
    token_file: Path | None,
    statuses: tuple[str, ...],
    site: str | None,
    draws: bool,
    ca_file: Path | None,
    insecure: bool,
) -> None:
    """Print NetBox's panels, feeds and cords as a [power] section.

    What NetBox does not know, and what it knows and kilowatch does not, is a comment.
    """
    source = NetBox(url, _token(token_file), ca_file=ca_file, verify=not insecure)
    pages = source.pages(statuses, site)
    if not pages["power-feeds"]:
        raise ConfigError(source.base, f"it has no power feed that is {' or '.join(statuses)}", "Draw feeds in NetBox first, or choose --status and --site otherwise.")  # fmt: skip
    text = write(translate(source.base, pages, draws=draws), source.base)
    click.echo(text, nl=False)
    try:
        laid_out = lay_out("imported", decode("imported", tomllib.loads(text)))
    except ConfigError as error:
        # NetBox allows what no breaker does; the text is still the way to correct it.
        click.echo(f"Correct this before you use it: {error}", err=True)
        return
    for notice in laid_out.notices:
        click.echo(f"note (E24): {notice}", err=True)


def _token(file: Path | None) -> str | None:
    if file is None:
        return None
    try:
        token = file.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"--token-file {file}", f"it can't be read: {error}") from error
    if not token.isascii() or not token.isprintable() or not token or " " in token:
        raise ConfigError(f"--token-file {file}", "it does not hold a token", "Write the token alone into it.")  # fmt: skip
    return token
