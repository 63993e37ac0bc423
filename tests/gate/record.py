"""`tests/gate/seconds.toml`: how long tests take, by which the gate and `make quick` choose."""

from __future__ import annotations

import tomllib
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.gate.judge import file_of, tally
from tests.gate.outcomes import Outcome

RECORD = Path("tests/gate/seconds.toml")
HEAVY = 3.0
"""Seconds from which a test has a line of its own."""
WORKERS, PROCESSORS = 3, 2
"""Tests that ran at the same time when it was made, and on how many processors."""
UNKNOWN = 1.0
"""Seconds that a file without a record is taken to need."""


@dataclass(frozen=True, slots=True)
class Record:
    """Seconds that tests take on a fast machine."""

    files: dict[str, float]
    """Without the heavy ones of each."""
    heavy: dict[str, float]
    """Single tests, by node id."""

    def seconds(self, file: str) -> float:
        """Return what a file takes without its heavy tests."""
        return self.files.get(file, UNKNOWN)


def load(file: Path = RECORD) -> Record:
    """Return the record of a checkout; an empty one where there is none."""
    found = tomllib.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    return Record(found.get("files", {}), found.get("heavy", {}))


def write(outcomes: Iterable[Outcome], file: Path = RECORD, slow: float = 1.0) -> None:
    """Record what tests took where all takes `slow` times as long as on a fast machine. Files that did not run, and are
    still there, keep what they have."""
    before, seconds = load(file), tally(outcomes).seconds
    ran = {file_of(test) for test in seconds}
    files: defaultdict[str, float] = defaultdict(float)
    heavy = {}
    for test, spent in seconds.items():
        if spent / slow >= HEAVY:
            heavy[test] = spent / slow
        files[file_of(test)] += spent / slow if test not in heavy else 0.0
    files |= {one: its for one, its in before.files.items() if _left_out(one, ran)}
    heavy |= {test: its for test, its in before.heavy.items() if _left_out(file_of(test), ran)}
    lines = [
        "# Written by `python -m tests.gate.quick --record build/gate/*.jsonl`: what the gate and `make quick` choose by."
    ]
    for title, table in (("files", files), ("heavy", heavy)):
        lines += ["", f"[{title}]"]
        lines += [f"{_quoted(name)} = {table[name]:.1f}" for name in sorted(table)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")


def _left_out(file: str, ran: set[str]) -> bool:
    return file not in ran and Path(file).exists()


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
