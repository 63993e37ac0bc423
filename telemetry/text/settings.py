"""Values that people write, converted to their types; a fault has a place, a problem and a hint.

msgspec reports a fault as one line of text, "Expected `int`, got `str` - at `$.broker.port`". This
is the only place that reads such a line; settings files, meters, channels, rules and the bodies of
HTTP requests all use it.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from telemetry.errors import ConfigError, did_you_mean
from telemetry.text.decoders import converted

T = TypeVar("T")

_FAULT = re.compile(r"(?P<problem>.*?)(?: - at `(?:\w+` in `)?\$\.?(?P<place>.*)`)?", re.DOTALL)
_KEY = re.compile(r"Object (contains unknown|missing required) field `(.*)`")
_WORD = re.compile(r"invalid (?:enum )?value (['\"])(.*)\1", re.DOTALL)
_STEP = re.compile(r"(\w+)|\[[^]]*\]")
"""A step into a value: into a field of an object, or into an item of a table or list."""


class Fault(NamedTuple):
    """A fault in a value that people wrote."""

    place: str
    """Path of the value within the whole, `broker.port`; empty when it is the whole."""
    problem: str
    unknown: str | None
    """The key that the object at `place` does not have, if that is the problem."""
    missing: str | None
    """The key that it lacks, if that is the problem."""
    known: tuple[str, ...]
    """Keys that it may have."""
    words: tuple[str, ...] = ()
    """Words that the value may be, if the problem is that it is another one."""

    @property
    def hint(self) -> str:
        """The closest known key, as a question; the closest of the words that are allowed, and all of them."""
        if wrong := _WORD.fullmatch(self.problem):
            *more, last = self.words or ("",)
            words = f"{', '.join(more)} or {last}" if more else last
            close = did_you_mean(wrong[2], self.words)
            return f"{close} Write {words}.".lstrip() if words else ""
        return did_you_mean(self.unknown, self.known) if self.unknown is not None else ""


def fault_of(error: msgspec.ValidationError, kind: Any) -> Fault:
    """Return the fault that msgspec found while it decoded a `kind`."""
    found = _FAULT.fullmatch(str(error))
    problem, place = found.group("problem", "place") if found else (str(error), None)
    key = _KEY.fullmatch(problem)
    word = key[2] if key else None
    known = tuple(dict.fromkeys(key for each in _at(kind, place or "") for key in fields_of(each)))
    missing = key is not None and key[1].startswith("missing")
    problem = problem[0].lower() + problem[1:]
    return Fault(
        place or "",
        problem,
        unknown=None if missing else word,
        missing=word if missing else None,
        known=known,
        words=tuple(dict.fromkeys(_words_at(kind, place or ""))) if _WORD.fullmatch(problem) else (),
    )


def convert(
    kind: type[T],
    raw: object,
    where: str,
    *,
    strict: bool = True,
    hint: Callable[[Fault], str] = lambda fault: fault.hint,
) -> T:
    """Return what people wrote as a `kind`; paths may begin with `~`.

    Raises `ConfigError` whose place begins with `where` ("file.toml:", "alerts.channels.chat").
    Not `strict`: numbers may be text, as environment variables are.
    """
    try:
        return converted(raw, kind, strict=strict, dec_hook=_path)
    except msgspec.ValidationError as error:
        fault = fault_of(error, kind)
        place, problem = fault.place, fault.problem
        if fault.unknown is not None:
            place, problem = f"{place}.{fault.unknown}".lstrip("."), "there is no such key"
        raise ConfigError(_join(where, place), problem, hint(fault)) from error


@cache
def fields_of(kind: Any) -> Mapping[str, Any]:
    """Return the type of each key of a struct, by the name that it has in a file."""
    hints = get_type_hints(kind)
    return {field.encode_name: hints[field.name] for field in msgspec.structs.fields(kind)}


def structs_in(hint: Any) -> Iterator[type[msgspec.Struct]]:
    """Yield the structs that a type is, or is a union or collection of."""
    for each in get_args(hint) or (hint,):
        if isinstance(each, type) and issubclass(each, msgspec.Struct):
            yield each
        elif get_args(each):
            yield from structs_in(each)


def _at(kind: Any, place: str) -> list[type[msgspec.Struct]]:
    """Return the structs that are allowed at a place within a `kind`."""
    found = list(structs_in(kind))
    for step in _STEP.finditer(place):
        if step[1]:
            hints = [fields_of(each).get(step[1]) for each in found]
            found = [struct for hint in hints for struct in structs_in(hint)]
    return found


def _words_at(kind: Any, place: str) -> Iterator[str]:
    """Yield the words that are allowed at a place within a `kind`."""
    fields = [step for step in _STEP.finditer(place) if step[1]]
    if not fields:
        yield from _words_of(kind)
        return
    for each in _at(kind, place[: fields[-1].start()]):
        if each.__struct_config__.tag_field == fields[-1][1]:
            yield str(each.__struct_config__.tag)
        yield from _words_of(fields_of(each).get(fields[-1][1]))


def _words_of(hint: Any) -> Iterator[str]:
    """Yield the words that a type is, or is a union or collection of."""
    if isinstance(hint, type) and issubclass(hint, Enum):
        yield from (str(each.value) for each in hint)
    elif get_origin(hint) is Literal:
        yield from (str(each) for each in get_args(hint))
    else:
        for each in get_args(hint):
            yield from _words_of(each)


def _join(where: str, place: str) -> str:
    if not place:
        return where.removesuffix(":")
    between = " " if where.endswith(":") else "" if place.startswith("[") else "."
    return f"{where}{between}{place}"


def _path(kind: type, value: object) -> object:
    """Return a path; msgspec knows none."""
    if kind is not Path:
        raise TypeError(f"no setting is a {kind}")
    if not isinstance(value, str) or not value:
        raise ValueError(f"expected a path as text, got {value!r}")
    return Path(value).expanduser()


def read_toml(path: Path) -> dict[str, Any]:
    """Return what a TOML file holds. Raises `ConfigError`."""
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except FileNotFoundError as error:
        raise ConfigError(str(path), "there is no such file") from error
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(str(path), f"it is not TOML: {error}") from error
    except RecursionError as error:
        raise ConfigError(str(path), "its lists or tables are nested too deep") from error
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"it can't be read: {error}") from error
