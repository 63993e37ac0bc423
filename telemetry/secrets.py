"""Secrets in files, as settings and flags name them: never in the settings themselves."""

from __future__ import annotations

from pathlib import Path

from telemetry.errors import ConfigError


def read_secret(where: str, path: Path, kind: str = "secret", *, multiline: bool = False) -> str:
    """Return the text of a file without its blanks at both ends. Raises `ConfigError` when it can't
    be read, is empty, or has several lines without `multiline`. `where`: the setting; `kind`: the
    word for it."""
    try:
        text = path.expanduser().read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        problem = getattr(error, "strerror", None) or str(error)
        raise ConfigError(
            where, f"{path} can't be read: {problem}", "Name a file that this user may read."
        ) from error
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


def _none(where: str, path: Path, kind: str) -> ConfigError:
    return ConfigError(where, f"{path} does not hold a {kind}", f"Write the {kind} alone into it.")
