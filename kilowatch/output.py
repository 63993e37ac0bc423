"""Output of commands: the only module that writes text to the terminal.

What it writes may quote names and messages of other machines, so all of it is made printable here
(`telemetry.text.printable`); colours and the clearing of the screen are arguments, never part of a text.
"""

from __future__ import annotations

import click
import msgspec

from telemetry.text.printable import printable_json, printable_lines

_CLEAR = "\x1b[H\x1b[2J"


def echo(
    text: str, *, err: bool = False, nl: bool = True, mark: str = "", fg: str | None = None, clear: bool = False
) -> None:
    """Print lines of text, on standard error with `err`. `mark` is printed before them in the colour
    `fg`, all of the text when there is no mark; `clear` empties the screen first."""
    shown = printable_lines(text)
    if mark:
        shown = click.style(printable_lines(mark), fg=fg) + shown
    elif fg is not None:
        shown = click.style(shown, fg=fg)
    click.echo(_CLEAR + shown if clear else shown, err=err, nl=nl)


def echo_json(document: str, *, clear: bool = False) -> None:
    """Print a JSON document; what no terminal should get is an escape in it."""
    click.echo((_CLEAR if clear else "") + printable_json(document))


def print_json(body: object) -> None:
    """Print a value as indented JSON."""
    echo_json(msgspec.json.format(msgspec.json.encode(body)).decode())
