"""Secrets of channels: in a file or in the environment, never in the settings themselves."""

from __future__ import annotations

import os
from pathlib import Path

from telemetry.errors import ConfigError


def read(where: str, file: Path | None, variable: str) -> str:
    """Return the secret that a file or an environment variable holds. Raises `ConfigError`.

    It is read anew for each message, so that a key can be changed without a restart.
    """
    if file is not None:
        try:
            text = file.read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            problem = getattr(error, "strerror", None) or str(error)
            raise ConfigError(
                where, f"{file} can't be read: {problem}", "Let kilowatch's user read it."
            ) from error
        if not text:
            raise ConfigError(where, f"{file} is empty", "Put the secret in it, alone.")
        return text
    text = os.environ.get(variable, "").strip()
    if not text:
        raise ConfigError(
            where, f"the environment has no {variable}", "Set it for the service, or name a file."
        )
    return text
