"""Secrets of channels: in a file or in the environment, never in the settings themselves."""

from __future__ import annotations

import os
from pathlib import Path

from telemetry.errors import ConfigError
from telemetry.files.secrets import read_secret


def read(where: str, file: Path | None, variable: str) -> str:
    """Return the secret that a file or an environment variable holds. Raises `ConfigError`.

    It is read again for each message, so that a key can be changed without a restart.
    """
    if file is not None:
        return read_secret(where, file, multiline=True)
    text = os.environ.get(variable, "").strip()
    if not text:
        raise ConfigError(where, f"the environment has no {variable}", "Set it for the service, or name a file.")
    return text
