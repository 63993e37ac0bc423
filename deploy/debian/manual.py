"""Write the manual pages, one for each command, from the help of the commands: manual.py FOLDER."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path

import click

from kilowatch.__main__ import main
from kilowatch.cli.tree import contexts
from telemetry.runtime.release import release


def quoted(text: str) -> str:
    """Escape a text for roff: backslashes, hyphens, and dots that would be requests."""
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("\b", "")
    return "\n".join(f"\\&{line}" if line[:1] in {".", "'"} else line for line in escaped.splitlines())


def page(context: click.Context) -> str:
    """Return the manual page of a command, in roff."""
    command, path = context.command, context.command_path
    name = path.replace(" ", "-")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH "{quoted(name.upper())}" 1 "" "kilowatch {release()}" ""',
        ".SH NAME",
        f"{quoted(name)} \\- {quoted(command.get_short_help_str(200))}",
        ".SH SYNOPSIS",
        f".B {quoted(path)}",
        quoted(usage),
        ".SH DESCRIPTION",
    ]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        verbatim = paragraph.startswith("\b")
        lines += [".PP", *([".nf"] if verbatim else []), quoted(paragraph.strip("\b\n"))]
        lines += [".fi"] if verbatim else []
    options = [
        record
        for each in command.get_params(context)
        if isinstance(each, click.Option) and (record := each.get_help_record(context))
    ]
    if options:
        lines.append(".SH OPTIONS")
        for option, words in options:
            lines += [".TP", f".B {quoted(option)}", quoted(words)]
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            if found is not None and not found.hidden:
                lines += [".TP", f".B {quoted(name)}\\-{quoted(each)}(1)", quoted(found.get_short_help_str(200))]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    for each in contexts(main, "kilowatch"):
        name = each.command_path.replace(" ", "-")
        (folder / f"{name}.1").write_text(page(each), encoding="utf-8")
