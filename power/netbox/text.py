"""Text of a translation: commented TOML."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from power.netbox.mapping import MappedCircuit, Translated
from telemetry.text.printable import printable

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def write(found: Translated, origin: str) -> str:
    """Return the [power] section; `origin`: the NetBox it is from."""
    lines = [f"# From NetBox at {_plain(origin)}: read it before you use it.", "[power]"]
    lines += [f"# {_plain(comment)}" for comment in found.comments]
    tables = (("panels", found.panels), ("circuits", found.circuits), ("nodes", found.nodes))
    for section, entries in tables:
        for name, entry in entries.items():
            lines += ["", *_table(section, name, entry)]
    return "\n".join(lines) + "\n"


def _table(section: str, name: str, entry: MappedCircuit) -> Iterator[str]:
    yield f"[power.{section}.{_key(name)}]"
    yield from (f"# {_plain(comment)}" for comment in entry.comments)
    yield from (f"{_key(key)} = {_value(value)}" for key, value in entry.values.items())


def _value(value: object) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case int() | float():
            return f"{value:g}" if value == round(value, 3) and abs(value) < 1e6 else repr(value)
        case list():
            inner = ", ".join(_value(one) for one in value)
            return f"[{inner}]"
        case Mapping():
            inner = ", ".join(f"{_key(str(key))} = {_value(one)}" for key, one in value.items())
            return f"{{ {inner} }}"
        case _:
            return _quoted(str(value))


def _key(name: str) -> str:
    return name if _BARE.fullmatch(name) else _quoted(name)


def _quoted(text: str) -> str:
    """A basic string; JSON's escapes are TOML's too, but for DEL, which TOML requires escaped."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _plain(text: str) -> str:
    """A name must not end a comment and begin a setting."""
    return printable(text)
