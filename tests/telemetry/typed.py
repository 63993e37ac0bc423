"""A message as a value that compares by type too: a member of a `StrEnum` equals its text, and is not one."""

from __future__ import annotations

from typing import Any

import msgspec


def typed(value: object, *, texts: bool = True) -> Any:
    """Return nested types and values; without `texts`, all texts and the names in a dictionary count as equal."""
    kind = type(value)
    if isinstance(value, msgspec.Struct):
        fields = value.__struct_fields__
        return kind, [(name, typed(getattr(value, name), texts=texts)) for name in fields]
    if isinstance(value, dict):
        return kind, [(typed(k, texts=texts), typed(v, texts=texts)) for k, v in value.items()]
    if isinstance(value, list | tuple):
        return kind, [typed(item, texts=texts) for item in value]
    return (kind, value) if texts or kind is not str else (kind,)
