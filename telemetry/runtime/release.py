"""The release of kilowatch."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version


@cache
def release() -> str:
    """Return the version of the installed distribution, `unknown` when run from loose files."""
    try:
        return version("kilowatch")
    except PackageNotFoundError:
        return "unknown"
