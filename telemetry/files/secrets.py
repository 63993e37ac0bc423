"""Secrets in files, as settings and flags name them: never in the settings themselves."""

from __future__ import annotations

import os
from pathlib import Path

from telemetry.errors import ConfigError

CREDENTIALS = "CREDENTIALS_DIRECTORY"
"""Variable in which systemd names the folder of what a unit loads by `LoadCredential=`."""


def secret_path(where: str, path: Path) -> Path:
    """Return the path of a secret, with a leading `~` or `$CREDENTIALS_DIRECTORY` replaced.

    A file that this user can't read is looked up by its name among the credentials that systemd
    loaded: `LoadCredential=node.key:/etc/kilowatch/node.key` needs no other settings than root's.
    Raises `ConfigError` where systemd has given this process none. `where`: the setting.
    """
    folder = os.environ.get(CREDENTIALS)
    if path.parts[:1] != (f"${CREDENTIALS}",):
        path = path.expanduser()
        if folder and not os.access(path, os.R_OK) and (loaded := Path(folder, path.name)).exists():
            return loaded
        return path
    if not folder:
        raise ConfigError(
            where,
            f"{path}: systemd has given this process no credentials",
            f"Start it as the unit with LoadCredential=, or as root beside the running unit with "
            f"{CREDENTIALS}=/run/credentials/UNIT in the environment.",
        )
    return Path(folder, *path.parts[1:])


def check_readable(where: str, path: Path) -> None:
    """Raise `ConfigError` for a file that this user can't read."""
    try:
        path.open("rb").close()
    except OSError as error:
        raise _unreadable(where, path, error.strerror or str(error)) from error


def read_secret(where: str, path: Path, kind: str = "secret", *, multiline: bool = False) -> str:
    """Return the text of a file without its blanks at both ends. Raises `ConfigError` when it can't
    be read, is empty, or has several lines without `multiline`. `where`: the setting; `kind`: the
    word for it."""
    path = secret_path(where, path)
    try:
        text = path.read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise _unreadable(where, path, getattr(error, "strerror", None) or str(error)) from error
    if not text:
        raise ConfigError(where, f"{path} is empty", f"Write the {kind} alone into it.")
    if "\n" in text and not multiline:
        raise _none(where, path, kind)
    return text


def read_token(where: str, path: Path) -> str:
    """Return the token in a file: one word, fit for a header. Raises `ConfigError`."""
    text = read_secret(where, path, "token")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise _none(where, path, "token")
    return text


def _unreadable(where: str, path: Path, problem: str) -> ConfigError:
    return ConfigError(where, f"{path} can't be read: {problem}", "Name a file that this user may read.")


def _none(where: str, path: Path, kind: str) -> ConfigError:
    return ConfigError(where, f"{path} does not hold a {kind}", f"Write the {kind} alone into it.")
