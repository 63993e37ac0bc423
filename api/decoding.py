"""Decoding of answers by clients: tolerant of what a newer server adds.

Unknown fields are ignored by msgspec itself. A word that an enumeration does not know yet (a new
severity, a new state) is decoded to itself instead of failing the whole answer, but only within
`lenient`: settings and requests still refuse an unknown word.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from enum import StrEnum
from typing import Self, TypeVar

from telemetry.text.decoders import of_json, of_msgpack

T = TypeVar("T")

_LENIENT: ContextVar[bool] = ContextVar("lenient", default=False)


class OpenEnum(StrEnum):
    """An enumeration that may grow: a client of an older release accepts its newer words."""

    @classmethod
    def _missing_(cls, value: object) -> Self | None:
        if not _LENIENT.get() or not isinstance(value, str):
            return None
        word = str.__new__(cls, value)
        word._name_ = word._value_ = value
        return word


@contextmanager
def lenient() -> Iterator[None]:
    """Accept unknown words within the block."""
    token = _LENIENT.set(True)
    try:
        yield
    finally:
        _LENIENT.reset(token)


def decode(body: bytes, kind: type[T], *, packed: bool = False) -> T:
    """Return the JSON, or with `packed` the MessagePack, of an answer as a type of `api`. Raises
    `msgspec.DecodeError`."""
    with lenient():
        if packed:
            return of_msgpack(kind).decode(body)
        return of_json(kind).decode(body)
