"""Decoders of JSON and MessagePack into types, each built once, and one at a time.

msgspec (0.22) builds what it knows of a struct when it first decodes one, and lets other threads run meanwhile. One of
them that decodes into the same struct, or into one that has it as a field, uses what is built in part, which ends the
process with a segmentation fault. Nothing else in the packages makes a decoder (tests/test_structure.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import cache
from typing import Any, TypeVar, overload

import msgspec

T = TypeVar("T")
Hook = Callable[[type, Any], Any]
"""Makes a value of a type that msgspec does not know, of what was decoded."""
_BUILDING = threading.RLock()


@overload
def of_json(kind: type[T], dec_hook: Hook | None = None) -> msgspec.json.Decoder[T]: ...
@overload
def of_json(kind: Any, dec_hook: Hook | None = None) -> msgspec.json.Decoder[Any]: ...
def of_json(kind: Any, dec_hook: Hook | None = None) -> msgspec.json.Decoder[Any]:
    """Return the decoder of JSON into a type, or into one of a union."""
    return _of_json(kind, dec_hook)


@overload
def of_msgpack(kind: type[T]) -> msgspec.msgpack.Decoder[T]: ...
@overload
def of_msgpack(kind: Any) -> msgspec.msgpack.Decoder[Any]: ...
def of_msgpack(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Return the decoder of MessagePack into a type, or into one of a union."""
    return _of_msgpack(kind)


def converted(tree: object, kind: type[T], *, strict: bool = True, dec_hook: Hook | None = None) -> T:
    """Return dicts and lists as a type. Raises `msgspec.ValidationError`."""
    with _BUILDING:
        return msgspec.convert(tree, kind, strict=strict, dec_hook=dec_hook)


@cache
def _of_json(kind: Any, dec_hook: Hook | None) -> msgspec.json.Decoder[Any]:
    with _BUILDING:
        return msgspec.json.Decoder(kind, dec_hook=dec_hook)


@cache
def _of_msgpack(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    with _BUILDING:
        return msgspec.msgpack.Decoder(kind)
