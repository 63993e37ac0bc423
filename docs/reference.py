"""Reference pages that are made from types: every setting, and every command."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Iterator
from enum import Enum
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

import click
import msgspec

from alerts.notifiers import KINDS
from alerts.notifiers.channel import Channel
from kilowatch.__main__ import main
from kilowatch.cli.tree import contexts
from kilowatch.settings import Settings
from power.meters.base import MeterConfig
from power.meters.config import TYPES
from power.site.config import PowerConfig
from telemetry.text.field_texts import field_texts
from telemetry.text.settings import fields_of, structs_in

Struct = type[msgspec.Struct]

UNDECODED: dict[str, Struct] = {"power": PowerConfig, "aggregator.power": PowerConfig}
"""Sections that the settings hold as plain tables, and what decodes them."""
_TYPED: dict[str, tuple[Struct, dict[str, Struct]]] = {
    "alerts.channels": (Channel, dict(KINDS)),
    "power.meters": (MeterConfig, dict(TYPES)),
}
"""Sections whose key `type` decides on their other keys: what all have, and each type."""
_WORDS = {bool: "true or false", int: "whole number", float: "number", str: "text", Path: "path"}


def settings_page() -> str:
    """Return docs/settings.md: every key of the settings file."""
    lines = [
        "# Settings",
        "",
        "Generated from the types of the settings by `make docs`; do not edit.",
        "",
        "The file is TOML: the one named with `--config`, else `kilowatch.toml` in the folder where a command is",
        "started, else `/etc/kilowatch/kilowatch.toml`. The environment comes after it",
        "(`KILOWATCH__COLLECTOR__INTERVAL=0.5`), flags last. An unknown key is an error. `kilowatch config check`",
        "tells what is wrong, `kilowatch config show` what is in force. A default in [brackets] depends on the",
        "machine or on other keys; an empty one means that nothing is set. NAME is a name of your choice.",
    ]
    for name, kind in sections():
        lines += ["", f"## {_title(name)}", "", *_prose(kind), "", *_table(name, kind)]
        for word, member in _TYPED.get(_plain(name), (kind, {}))[1].items():
            lines += ["", f'### `{_plain(name)}`, `type = "{word}"`', "", *_prose(member), ""]
            lines += _table(name, member, without=kind)
    return "\n".join(lines) + "\n"


def sections() -> Iterator[tuple[str, Struct]]:
    """Yield each section as its heading in a file, and its type; each type once, where it is first."""
    seen: set[Struct] = set()

    def below(name: str, kind: Struct) -> Iterator[tuple[str, Struct]]:
        seen.add(kind)
        yield name, kind
        types = _TYPED[_plain(name)][1].values() if name.endswith(".NAME") and _plain(name) in _TYPED else ()
        for each in (kind, *types):
            for key, hint in fields_of(each).items():
                place = f"{name.strip('[]')}.{key}".lstrip(".")
                for inner in _structs(place, hint):
                    if inner not in seen:
                        yield from below(_heading(place, hint), inner)

    yield from below("", Settings)


def _structs(place: str, hint: Any) -> tuple[Struct, ...]:
    if place in UNDECODED:
        return (UNDECODED[place],)
    return (_TYPED[place][0],) if place in _TYPED else tuple(structs_in(hint))


def _heading(place: str, hint: Any) -> str:
    """Return a section's heading: `a.b`, `[a.b]` for each of a list, `a.b.NAME` for each of a table."""
    origins = {get_origin(each) for each in (hint, *get_args(hint))}
    if place not in UNDECODED and dict in origins:
        return f"{place}.NAME"
    return f"[{place}]" if tuple in origins else place


def _plain(name: str) -> str:
    return name.strip("[]").removesuffix(".NAME")


def _title(name: str) -> str:
    return f"`[{name}]`" if name else "The top of the file"


def _prose(kind: type) -> list[str]:
    return [" ".join(_escaped(part).split()) for part in inspect.cleandoc(kind.__doc__ or "").split("\n\n")][:1]


def _table(name: str, kind: Struct, without: Struct | None = None) -> list[str]:
    texts, hints = field_texts(kind), fields_of(kind)
    known = fields_of(without) if without is not None else {}
    rows = []
    for field in msgspec.structs.fields(kind):
        key = field.encode_name
        if key in known:
            continue
        place = f"{name.strip('[]')}.{key}".lstrip(".")
        inner = _structs(place, hints[key])
        text = texts.get(field.name) or (_prose(inner[0])[0] if inner else "")
        rows.append(
            f"| `{key}` | {_link(inner[0]) if inner else _type(hints[key])} | {_default(field, bool(inner))} "
            f"| {_cell(_escaped(text))} |"
        )
    if not rows:
        return ["No keys beside those of all."]
    return ["| key | type | default | meaning |", "| --- | --- | --- | --- |", *rows]


def _link(kind: Struct) -> str:
    name = next(name for name, each in sections() if each is kind)
    anchor = re.sub(r"[^\w -]", "", _title(name)).lower().replace(" ", "-")
    return f"[`[{name}]`](#{anchor})"


def _type(hint: Any) -> str:
    """Return a type in words."""
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _type(inside[0])
    if origin is Literal:
        return _cell(" or ".join(f"`{word}`" for word in inside))
    if origin is tuple and inside[-1] is not Ellipsis:
        return "list of " + ", ".join(_type(each) for each in inside)
    if origin is tuple:
        return f"list of {_type(inside[0])}"
    if origin is dict:
        return f"table of {_type(inside[1])}"
    if inside:
        return " or ".join(dict.fromkeys(_type(each) for each in inside if each is not NoneType))
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _cell(" or ".join(f"`{member.value}`" for member in hint))
    return _WORDS[hint]


def _default(field: msgspec.structs.FieldInfo, is_section: bool) -> str:
    if field.required:
        return "" if is_section else "required"
    if is_section or field.default in {None, ""}:
        return ""
    if field.default is msgspec.NODEFAULT:
        made = field.default_factory() if field.default_factory in {dict, list, tuple} else None
        return "" if not made else f"`{_toml(made)}`"
    return f"`{_toml(field.default)}`"


def _toml(value: Any) -> str:
    plain = msgspec.to_builtins(value, enc_hook=str)
    return json.dumps(plain, ensure_ascii=False) if not isinstance(plain, float) else f"{plain:.15g}"


def _escaped(text: str) -> str:
    """Return a text whose `<` and `*` are letters, but within code."""
    parts = re.split(r"(`[^`]*`)", text)
    return "".join(part if part.startswith("`") else part.replace("<", "&lt;").replace("*", r"\*") for part in parts)


def _cell(text: str) -> str:
    return text.replace("|", r"\|")


def commands_page() -> str:
    """Return docs/commands.md: every command with its arguments and options."""
    lines = [
        "# Commands",
        "",
        "Generated from the commands by `make docs`; do not edit. `--help` after any of them shows the same, and the",
        "packages install it as manual pages. Exit codes are those of [one table](exit-codes.md).",
    ]
    for context in contexts(main, "kilowatch"):
        usage = " ".join([context.command_path, *context.command.collect_usage_pieces(context)])
        lines += ["", f"## `{context.command_path}`", "", f"    {usage}"]
        for paragraph in inspect.cleandoc(context.command.help or "").split("\n\n"):
            lines += ["", *_paragraph(paragraph)]
        options = [
            record
            for each in context.command.get_params(context)
            if isinstance(each, click.Option) and (record := each.get_help_record(context))
            if "--help" not in each.opts
        ]
        if options:
            lines += ["", "| option | meaning |", "| --- | --- |"]
            lines += [f"| `{_cell(name)}` | {_cell(_escaped(text))} |" for name, text in options]
    return "\n".join(lines) + "\n"


def _paragraph(text: str) -> list[str]:
    """Return a paragraph of help; what click must not wrap is an example."""
    if not text.startswith("\b"):
        return _escaped(text).splitlines()
    return [f"    {line}".rstrip() for line in text.removeprefix("\b").strip("\n").splitlines()]
