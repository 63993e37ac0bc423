"""Every command of `kilowatch`, for manual pages and the reference."""

from __future__ import annotations

from collections.abc import Iterator

import click


def contexts(command: click.Command, name: str, parent: click.Context | None = None) -> Iterator[click.Context]:
    """Yield the context of a command and of everything below it, hidden commands left out."""
    # With its settings: click keeps the help option that it first makes, and `-h` is one of them.
    context = click.Context(command, info_name=name, parent=parent, **command.context_settings)
    yield context
    if isinstance(command, click.Group):
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                yield from contexts(found, each, context)
