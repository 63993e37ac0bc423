"""The command: reads flags and files, wires the parts together, prints what they say."""

from __future__ import annotations


def version() -> str:
    """Which release this is."""
    # Loaded when somebody asks: it takes as long as all the rest of a small command.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        return version("kilowatch")
    except PackageNotFoundError:  # run from a source tree that nobody installed
        return "0.source"
