"""Texts that are kept in files, to be read as a whole. UPDATE_SNAPSHOTS=1 keeps what is said now: look at it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from present.row import FactRow

FOLDER = Path(__file__).parent / "golden"


def told(rows: Iterable[FactRow]) -> Iterator[str]:
    """Yield each row as a line: label, text, short form and tone."""
    for row in rows:
        column = "" if row.column in {row.text, row.whole} else f"  | {row.column}"
        tone = f"  [{row.tone}]" if row.tone else ""
        yield f"{row.label:<26} {row.whole}{column}{tone}".rstrip()


def check(name: str, blocks: Mapping[str, Iterable[str]]) -> None:
    """Compare texts with those that are kept under a name."""
    text = "\n\n".join("\n".join([f"== {head}", *lines]) for head, lines in blocks.items()) + "\n"
    path = FOLDER / f"{name}.txt"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")
