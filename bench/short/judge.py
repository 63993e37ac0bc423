"""Verdicts on what is measured in two trees, and the marks that decisions have moved."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from statistics import median

import msgspec

from bench.report import text

FILE = Path(__file__).with_name("marks.toml")
COUNTED, CPU, MEMORY = 1.05, 1.10, 1.10
"""Most of what was, of instructions, of CPU seconds of whole processes, which differ by more from round to round, and
of memory."""


class CostVerdict(StrEnum):
    """Verdict about a part."""

    SAME = "as it was"
    BETTER = "better"
    MOVED = "worse, as decided"
    WORSE = "WORSE"
    UNCLEAR = "UNCLEAR"
    """The rounds differ by more than could be told."""
    NOT_COMPARABLE = "NOT COMPARABLE"

    @property
    def bad(self) -> bool:
        """Whether the ratchet fails by it."""
        return self in {CostVerdict.WORSE, CostVerdict.UNCLEAR, CostVerdict.NOT_COMPARABLE}


class MovedMark(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A part that may cost more than at the commit."""

    part: str
    times: float
    """0 where the commit's code cannot run it."""
    decision: int
    reason: str


class Marks(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Commit that this tree is compared with, and what was allowed since."""

    commit: str
    moved: tuple[MovedMark, ...] = ()


@dataclass(frozen=True, slots=True)
class Measured:
    """A part in both trees."""

    part: str
    unit: str
    limit: float
    base: Sequence[float] = ()
    """A figure a round."""
    now: Sequence[float] = ()
    spread: float | None = None
    """Share by which the ratio may be wrong; None: by its rounds."""
    problem: str = ""
    """Reason why it could not be measured in both."""

    least: bool = False
    """Whether the least of the rounds are compared: of memory, which a busy machine only adds to."""

    @property
    def _ratios(self) -> list[float]:
        return [now / base for base, now in zip(self.base, self.now, strict=True)]

    @property
    def figures(self) -> tuple[float, float]:
        """The figures of the two trees."""
        choose = min if self.least else median
        return choose(self.base), choose(self.now)

    @property
    def ratio(self) -> float:
        """Cost of this tree over that of the commit's."""
        base, now = self.figures
        return now / base if self.least else median(self._ratios)

    @property
    def uncertainty(self) -> float:
        """Share by which the ratio may be wrong: half of what lies between the rounds, or how far the two least are
        apart."""
        if self.spread is not None:
            return self.spread
        if self.least:
            pairs = [sorted(each)[:2] for each in (self.base, self.now)]
            return max(pair[-1] / pair[0] - 1 for pair in pairs)
        return (max(self._ratios) - min(self._ratios)) / 2


@dataclass(frozen=True, slots=True)
class JudgedPart:
    """A line of the table."""

    measured: Measured
    verdict: CostVerdict
    moved: MovedMark | None = field(default=None)


def load(file: Path = FILE) -> Marks:
    """Return the marks."""
    return msgspec.convert(tomllib.loads(file.read_text(encoding="utf-8")), Marks)


def judge(measured: Measured, moved: Mapping[str, MovedMark]) -> JudgedPart:
    """Return the verdict on a part."""
    mark = moved.get(measured.part)
    if measured.problem:
        excused = mark is not None and not mark.times
        return JudgedPart(measured, CostVerdict.MOVED if excused else CostVerdict.NOT_COMPARABLE, mark)
    allowed = mark.times if mark is not None and mark.times else 1.0
    if measured.ratio <= measured.limit:
        better = measured.ratio < 2 - measured.limit
        sure = measured.uncertainty < measured.limit - 1
        good = CostVerdict.BETTER if better else CostVerdict.SAME
        return JudgedPart(measured, good if sure else CostVerdict.UNCLEAR, mark)
    within = measured.ratio <= allowed * measured.limit
    return JudgedPart(measured, CostVerdict.MOVED if within and mark else CostVerdict.WORSE, mark)


def judged(found: Sequence[Measured], marks: Marks) -> list[JudgedPart]:
    """Return the verdicts on all parts."""
    moved = {mark.part: mark for mark in marks.moved}
    return [judge(one, moved) for one in found]


def unknown(marks: Marks, parts: Collection[str], decisions: Collection[int]) -> list[str]:
    """Return what the marks name that does not exist."""
    return [
        f"{mark.part}: no {what}"
        for mark in marks.moved
        for what, there in (
            ("such part", mark.part in parts),
            (f"decision {mark.decision}", mark.decision in decisions),
            ("reason", mark.reason.strip()),
        )
        if not there
    ]


def table(rows: Sequence[JudgedPart]) -> str:
    """Return the rows as Markdown."""
    lines = [
        "| part | unit | base | now | ratio | spread | verdict |",
        "| --- | --- | ---: | ---: | ---: | ---: | --- |",
    ]
    for row in rows:
        one, why = row.measured, row.verdict.value
        if row.verdict is CostVerdict.MOVED and row.moved is not None:
            why += f": decision {row.moved.decision}, {row.moved.reason}"
        figures = ["", "", "", ""]
        if one.problem:
            why += f": {one.problem}"
        else:
            figures = [
                *(text(float(each)) for each in one.figures),
                f"{one.ratio:.3f}",
                f"{100 * one.uncertainty:.1f} %",
            ]
        lines.append(f"| {one.part} | {one.unit} | {' | '.join(figures)} | {why} |")
    return "\n".join(lines)
