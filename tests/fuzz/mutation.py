"""Changes of valid values: types, edges of numbers, hostile text, depth, length, order; and of bytes.

A tree is what JSON or MessagePack decode to. `mutate` changes a copy of it in one to four places.
"""

from __future__ import annotations

import copy
import json
import math
import random
import struct
from collections.abc import Callable
from typing import Any

import msgspec

NUMBERS: tuple[float, ...] = (
    0, 1, -1, 2, 7, 127, 128, 255, 256, 2**15, 2**16, 2**31 - 1, 2**31, 2**31 + 1, 2**32, 2**53,
    2**53 + 1, 2**62, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**200, -(2**31), -(2**31) - 1, -(2**63),
    -(2**63) - 1, 0.5, -0.0, 1e-320, 5e-324, 1e38, 3.5e38, 1e308, -1e308, math.nan, math.inf,
    -math.inf, 1_763_700_300, 1_763_700_300 * 10**9, 4_102_444_800 * 10**9, 1e300,
)  # fmt: skip
TEXTS: tuple[str, ...] = (
    "", " ", "0", "-1", "NaN", "null", "a" * 300, "a" * 20_000, "\x00", "\x1b]0;owned\x07",
    "\x9b31m", "\u202eabc", "\u2028", "\ufeff", "\ud800", "\U0010ffff", "é" * 40, "日本", "[red]x[/red]",
    "[@click=app.quit]x[/]", "../../../etc/passwd", "a/b", "+", "#", "$SYS", "%s%n", "{0}", "{node}",
    "' or 1=1 --", '"; drop table frames; --', "<script>", "\r\nX: y", "n1\nERROR forged", "GPU-", "*",
    "honest-1", "default", "~/x", "__class__", "9" * 400, "1e999", "0x", "-", "١٢", "\u212a",
)  # fmt: skip


def mutate(tree: Any, rng: random.Random) -> Any:
    """Return a changed copy of a tree."""
    box = [copy.deepcopy(tree)]
    if not isinstance(tree, dict | list):
        return value(rng)
    if rng.random() < 0.5:  # what decodes, and is wrong behind it
        holder, key = _field(box, rng)
        _quiet(_nudge)(holder, key, rng, box)
        return box[0]
    for _ in range(rng.choice((1, 1, 1, 2, 2, 4))):
        if box:
            holder, key = _place(box, rng)
            rng.choice(_CHANGES)(holder, key, rng, box)
    return box[0] if box else None


def _field(box: list[Any], rng: random.Random) -> tuple[Any, Any]:
    """Return the place of a single value; each field of a message is chosen alike, however many items
    have it."""
    fields: dict[str, list[tuple[Any, Any]]] = {"": [(box, 0)]}
    waiting: list[tuple[str, Any]] = [("", box[0])]
    while waiting:
        path, holder = waiting.pop()
        if isinstance(holder, dict):
            inner = [(f"{path}.{key}", key) for key in holder]
        else:  # a few items are like all
            inner = [(f"{path}[]", at) for at in sorted({*range(len(holder))[:2], *range(len(holder))[-1:]})]
        for name, key in inner:
            if isinstance(holder[key], dict | list):
                waiting.append((name, holder[key]))
            else:
                fields.setdefault(name, []).append((holder, key))
    return rng.choice(fields[rng.choice(list(fields))])


def _place(box: list[Any], rng: random.Random) -> tuple[Any, Any]:
    """Return a holder and its key: each level is chosen alike, so that a field of one GPU is met as
    often as one of a thousand links."""
    holder: Any = box
    key: Any = 0
    while holder is box or rng.random() < 0.85:
        inner = holder[key]
        if not isinstance(inner, dict | list) or not inner:
            break
        keys = list(inner) if isinstance(inner, dict) else list(range(len(inner)))
        if rng.random() < 0.5:  # go deeper, where that is possible
            keys = [each for each in keys if isinstance(inner[each], dict | list)] or keys
        holder, key = inner, rng.choice(keys)
    return holder, key


Change = Callable[[Any, Any, random.Random, list[Any]], None]


def value(rng: random.Random) -> Any:
    """Return any value."""
    return rng.choice(
        (
            lambda: rng.choice(NUMBERS),
            lambda: rng.choice(TEXTS),
            lambda: rng.choice((None, True, False)),
            lambda: rng.randrange(-(2**65), 2**65),
            lambda: rng.uniform(-1e6, 1e6),
            list,
            dict,
            lambda: [rng.choice(NUMBERS) for _ in range(rng.randrange(9))],
            lambda: {rng.choice(TEXTS): rng.choice(NUMBERS)},
            lambda: rng.randbytes(rng.randrange(40)),
        )
    )()


def _set(holder: Any, key: Any, rng: random.Random, _: list[Any]) -> None:
    holder[key] = value(rng)


def _nudge(holder: Any, key: Any, rng: random.Random, _: list[Any]) -> None:
    """Change a value to a near one of its own type."""
    old = holder[key]
    match old:
        case bool():
            holder[key] = not old
        case int():
            near = (old + 1, old - 1, -old, old * 2, old ^ (1 << rng.randrange(64)))
            edge = int(rng.choice([n for n in NUMBERS if math.isfinite(n)]))
            holder[key] = rng.choice((edge, rng.choice(near)))
        case float():
            holder[key] = rng.choice(
                (-old, old * 1e300, old / 3, float(rng.choice(NUMBERS[:-1])) if rng.random() < 0.5 else math.nan)
            )
        case str():
            holder[key] = text(old, rng)
        case bytes():
            holder[key] = raw(old, rng)
        case list():
            holder[key] = old[: rng.randrange(len(old) + 1)]
        case _:
            holder[key] = value(rng)


def _remove(holder: Any, key: Any, rng: random.Random, _: list[Any]) -> None:
    del rng
    if (isinstance(holder, dict) and key in holder) or (isinstance(holder, list) and key < len(holder)):
        del holder[key]


def _repeat(holder: Any, key: Any, rng: random.Random, box: list[Any]) -> None:
    """Repeat an item, or the items of a list, up to a thousand times; what is long already stays."""
    if _size(box[0]) > 2000:
        return
    old = holder[key]
    if isinstance(old, list) and old:
        holder[key] = (old * rng.choice((2, 3, 40, 1000)))[:5000]
    elif isinstance(old, dict):
        holder[key] = {**old, **{f"k{n}": n for n in range(rng.choice((1, 300)))}}
    elif isinstance(holder, list):
        holder.insert(rng.randrange(len(holder) + 1), copy.deepcopy(old))
    else:
        holder[key] = [old] * rng.choice((1, 2, 100))


def _size(tree: Any) -> int:
    """Return how many values there are below, counted to a few thousand."""
    waiting, count = [tree], 0
    while waiting and count < 5000:
        inner = waiting.pop()
        if isinstance(inner, dict | list):
            count += len(inner)
            waiting += inner.values() if isinstance(inner, dict) else inner
    return count


def _swap(holder: Any, key: Any, rng: random.Random, box: list[Any]) -> None:
    """Swap two values, of any places."""
    other, place = _place(box, rng)
    try:
        mine, theirs = copy.deepcopy(holder[key]), copy.deepcopy(other[place])
    except (KeyError, IndexError):
        return
    holder[key], other[place] = theirs, mine


def _nest(holder: Any, key: Any, rng: random.Random, _: list[Any]) -> None:
    """Put a value below many levels."""
    inner = holder[key]
    for _ in range(rng.choice((1, 3, 40, 300))):
        inner = [inner] if rng.random() < 0.5 else {"a": inner}
    holder[key] = inner


def _shuffle(holder: Any, key: Any, rng: random.Random, _: list[Any]) -> None:
    if isinstance(holder[key], list):
        rng.shuffle(holder[key])
    else:
        _set(holder, key, rng, [])


def _quiet(change: Change) -> Change:
    def guarded(holder: Any, key: Any, rng: random.Random, box: list[Any]) -> None:
        try:
            change(holder, key, rng, box)
        except (KeyError, IndexError, OverflowError, ValueError, RecursionError):
            return  # a change before it removed the place, or no float holds the number

    return guarded


_CHANGES: tuple[Change, ...] = tuple(
    map(_quiet, (_set, _set, _nudge, _nudge, _nudge, _remove, _repeat, _swap, _nest, _shuffle))
)


def text(old: str, rng: random.Random) -> str:
    """Return a changed text."""
    at = rng.randrange(len(old) + 1)
    return rng.choice(
        (
            lambda: rng.choice(TEXTS),
            lambda: old[:at],
            lambda: old[:at] + rng.choice(TEXTS) + old[at:],
            lambda: old * rng.choice((2, 50)),
            lambda: old[:at] + chr(rng.choice((0, 9, 10, 27, 0x7F, 0x9B, 0x202E, 0xD800, 0x1F600))) + old[at:],
            old.swapcase,
            lambda: old[::-1],
        )
    )()


_FLOATS = [struct.pack("<f", number) for number in (math.nan, math.inf, -math.inf, 3.4e38, -1.0, 1e-45, 0.0)] + [
    struct.pack("<d", number) for number in (math.nan, math.inf, 1.7e308, -1.0, 2.0**63, 0.0)
]


def raw(old: bytes, rng: random.Random) -> bytes:
    """Return changed bytes: flipped, cut, longer, doubled, with special floats."""
    data = bytearray(old)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(len(data) + 1)
        match rng.randrange(9):
            case 0 if data:
                data[at % len(data)] ^= 1 << rng.randrange(8)
            case 1:
                del data[at:]
            case 2:
                data[at:at] = rng.randbytes(rng.choice((1, 2, 8, 500)))
            case 3:
                del data[at : at + rng.choice((1, 4, 8, 64))]
            case 4:
                data += data[:at]
            case 5:
                data[at : at + 8] = rng.choice(_FLOATS)
            case 6 if data:
                number = rng.choice((0, 1, 0x7F, 0x80, 0xFF, 0xC1, 0xDD))
                data[at % len(data)] = number
            case 7:
                data[at:at] = rng.choice(TEXTS).encode("utf-8", "surrogatepass")
            case _:
                data[at : at + 4] = struct.pack("<I", rng.choice((0, 1, 2**31, 2**32 - 1)))
    return bytes(data)


def as_json(tree: Any, rng: random.Random) -> bytes:
    """Return the JSON of a tree; NaN and lone surrogates too, which JSON does not allow."""
    try:
        found = json.dumps(tree, ensure_ascii=rng.random() < 0.7, default=repr)
    except (ValueError, RecursionError, TypeError):
        return b"{"
    return found.encode("utf-8", "surrogatepass")


def as_msgpack(tree: Any) -> bytes:
    """Return the MessagePack of a tree; numbers and texts that it can't hold are others."""
    try:
        return msgspec.msgpack.encode(tree)
    except (OverflowError, ValueError, TypeError, RecursionError, UnicodeEncodeError):
        return msgspec.msgpack.encode(_packable(tree, 0))


def _packable(tree: Any, depth: int) -> Any:
    match tree:
        case _ if depth > 80:
            return None
        case bool() | None | float() | bytes():
            return tree
        case int():
            return tree if -(2**63) <= tree < 2**64 else float("inf")
        case str():
            return tree.encode("utf-8", "replace").decode()
        case list():
            return [_packable(item, depth + 1) for item in tree]
        case dict():
            return {_packable(str(key), depth): _packable(item, depth + 1) for key, item in tree.items()}
        case _:
            return repr(tree)
