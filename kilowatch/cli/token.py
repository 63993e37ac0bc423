"""`kilowatch token`: tokens of the aggregator's HTTP, in a file that it reads again by itself."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import wraps
from pathlib import Path

import click
import msgspec

from aggregator.access.tokens import MOST_TOKENS, TOKENS, AccessScope, AccessToken, check_user, make, read, write
from kilowatch import settings
from kilowatch.cli.arguments import DurationParam, json_option, settings_option
from kilowatch.output import echo, print_json
from kilowatch.text.table import columns
from telemetry.errors import ConfigError, did_you_mean
from telemetry.files import private_file
from telemetry.text import timestamp


def _file_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add `--config` and `--data`, and pass the tokens file in place of them."""

    @settings_option
    @click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        help="The aggregator's folder of data, where it was started with --data.",
    )
    @wraps(command)
    def found(config: Path | None, data: Path | None, **rest: object) -> None:
        aggregator = settings.load(config).aggregator
        path = aggregator.tokens_file or (data or aggregator.data_dir) / TOKENS
        command(path=path, **rest)

    return found


@click.group()
def token() -> None:
    """Tokens of the aggregator's HTTP: make, list and revoke them. The aggregator reads changes by itself.

    Reading on the aggregator's machine needs none, and neither does what its own user does there.
    """


@token.command()
@click.argument("name")
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    type=click.Choice([str(scope) for scope in AccessScope]),
    help="What it permits; again for more. admin permits everything. [default: read]",
)
@click.option("--user", help="A token of this user: it shows the user's own jobs alone, and has no scope.")
@click.option("--for", "seconds", type=DurationParam(), help="Expire after this time: 90d. [default: never]")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Write the token to this file, mode 0600, instead of showing it.",
)
@_file_options
def add(
    name: str, scopes: tuple[str, ...], user: str | None, seconds: float | None, out: Path | None, path: Path
) -> None:
    """Make a token for NAME, a person or a program, and show it once. NAME signs what is done with it."""
    if user is not None:
        check_user(user)  # an empty one, of a variable that is not set, must not become a reader of all
    if user is not None and scopes:
        raise ConfigError(
            "--scope",
            f"a token of the user {user} has none: it shows that user's jobs alone",
            "Leave --scope or --user out.",
        )
    known = read(path)
    if any(each.name == name for each in known):
        raise ConfigError(name, "there is a token of that name", f"Revoke it first: kilowatch token revoke {name}")
    if len(known) >= MOST_TOKENS:
        raise ConfigError(str(path), f"it has {len(known)} tokens already", "Revoke some.")
    now = time.time_ns()
    expires = None if seconds is None else now + round(seconds * 1e9)
    permitted = scopes or ("read",) if user is None else ()
    made, secret = make(name, map(AccessScope, permitted), now, expires, user or "")
    if out is not None:
        _write_secret(out, secret)
    write(path, [*known, made])
    if out is None:
        echo(secret)
    where = f"It is in {out}" if out is not None else "It is shown this once"
    echo(f"{name}: {_scopes(made)}. {where}; {path} has its hash.", err=True)
    if not made.user and not made.allows(AccessScope.READ):
        echo("Without the scope read it sees nothing: --scope read --scope ...", err=True)


@token.command("list")
@json_option
@_file_options
def list_tokens(as_json: bool, path: Path) -> None:
    """Show names, scopes and times; secrets are nowhere."""
    known = read(path)
    if as_json:
        print_json([{**msgspec.to_builtins(each), "sha256": None} for each in known])
        return
    if not known:
        echo(f"no token in {path}; the aggregator's own user needs none")
        return
    rows = [("NAME", "SCOPES", "MADE", "EXPIRES"), *map(_row, known)]
    echo("\n".join(columns(rows)))


@token.command()
@click.argument("name")
@_file_options
def revoke(name: str, path: Path) -> None:
    """Revoke the token of NAME, from now on."""
    known = read(path)
    kept = [each for each in known if each.name != name]
    if len(kept) == len(known):
        hint = did_you_mean(name, [each.name for each in known]) or "kilowatch token list shows all."
        raise ConfigError(name, f"there is no such token in {path}", hint)
    write(path, kept)
    echo(f"{name}: revoked")


def _row(token: AccessToken) -> tuple[str, ...]:
    if token.expires is None:
        end = "never"
    else:
        end = timestamp(token.expires)
        if token.expires <= time.time_ns():
            end += " (expired)"
    return token.name, _scopes(token), timestamp(token.created), end


def _scopes(token: AccessToken) -> str:
    return f"jobs of {token.user}" if token.user else ", ".join(token.scopes)


def _write_secret(path: Path, secret: str) -> None:
    import os  # noqa: PLC0415

    try:
        os.close(private_file.write(path, f"{secret}\n"))
    except OSError as error:
        raise ConfigError(str(path), f"it can't be written: {error.strerror}") from error
