"""Declaration of the owner of a job: `kilowatch: gpus=6 checkpoint=15m idle=ok` in the job's comment. Pure."""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from telemetry.text import parse_duration
from telemetry.text.decoders import converted

MOST_PURPOSE = 128
"""Characters of a declaration."""
_DECLARED = re.compile(r"\bkilowatch:([^;\n]*)", re.IGNORECASE)
_WORD = re.compile(r"(gpus|checkpoint|idle)=([A-Za-z0-9.]+)")
MOST_PAUSE = 86_400.0
"""s; a job that stands still for longer has no purpose that says so."""


class Purpose(msgspec.Struct, frozen=True):
    """Declaration about a job; what it does not name is judged as of any other."""

    gpus: int = 0
    """Number of its GPUs that work, the others are spare; 0 where it is not declared."""
    checkpoint: float = 0.0
    """Longest pause of its GPUs that it makes by itself, s; 0 where it is not declared."""
    idle: bool = False
    """Whether it may wait, as a service or a person's session does."""


def declared(comment: str) -> str:
    """Return the part of a comment that is meant for us, at most `MOST_PURPOSE` long; nothing else of it leaves the node."""
    found = _DECLARED.search(comment)
    text = "" if found is None else " ".join(found[1].split())
    return "".join(each for each in text if each.isprintable())[:MOST_PURPOSE]


@lru_cache(maxsize=4096)
def purpose_of(text: str) -> tuple[Purpose, str]:
    """Return what a declaration says, and the words of it that say nothing, "" where all do."""
    known: dict[str, object] = {}
    wrong = []
    for word in text.split():
        match = _WORD.fullmatch(word)
        name, value = (match[1], match[2]) if match else ("", "")
        seconds = parse_duration(value) if name == "checkpoint" else None
        if name == "gpus" and value.isdecimal() and 0 < int(value) < 1 << 20:
            known[name] = int(value)
        elif seconds is not None and 0 < seconds <= MOST_PAUSE:
            known[name] = seconds
        elif name == "idle" and value in {"ok", "no"}:
            known[name] = value == "ok"
        else:
            wrong.append(word)
    return converted(known, Purpose), " ".join(wrong)
