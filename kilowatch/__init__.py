"""The command `kilowatch`: reads flags and files, connects the parts, prints their results."""

from __future__ import annotations


def version() -> str:
    """Return the release."""
    # Imported on demand: it takes as long as all the rest of a small command.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("kilowatch")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "0.source"
