"""The ratchet: its verdicts, its parts, and a slow-down that it finds."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from bench.short import judge
from bench.short.__main__ import NAMES, tree_of
from bench.short.counted import count, environment
from bench.short.judge import COUNTED, CPU, MEMORY, CostVerdict, JudgedPart, Measured
from bench.short.parts import PARTS
from tests.conftest import ROOT
from tests.kit.night import NIGHT

DECIDED = judge.MovedMark("rules", 1.2, 106, "a rule more")
NEW = judge.MovedMark("rules", 0, 106, "a part that is new")


@pytest.mark.parametrize(
    ("limit", "ratio", "verdict"),
    [
        (COUNTED, 1.0, CostVerdict.SAME),
        (COUNTED, 1.04, CostVerdict.SAME),
        (COUNTED, 1.06, CostVerdict.WORSE),
        (CPU, 1.06, CostVerdict.SAME),
        (CPU, 1.11, CostVerdict.WORSE),
        (COUNTED, 0.9, CostVerdict.BETTER),
        (MEMORY, 1.06, CostVerdict.SAME),
        (MEMORY, 1.11, CostVerdict.WORSE),
    ],
)
def test_a_planted_ratio_gets_its_verdict(limit: float, ratio: float, verdict: CostVerdict) -> None:
    row = judge.judge(Measured("rules", "x", limit, [100.0], [100.0 * ratio], 0.001), {})
    assert (row.verdict, row.verdict.bad) == (verdict, verdict is CostVerdict.WORSE)


@pytest.mark.parametrize(
    ("ratio", "verdict"), [(1.15, CostVerdict.MOVED), (1.25, CostVerdict.MOVED), (1.27, CostVerdict.WORSE)]
)
def test_a_decision_allows_what_it_says_and_no_more(ratio: float, verdict: CostVerdict) -> None:
    measured = Measured("rules", "x", COUNTED, [100.0], [100.0 * ratio], 0.001)
    row = judge.judge(measured, {"rules": DECIDED})
    assert row.verdict is verdict
    assert ("decision 106, a rule more" in judge.table([row])) is (verdict is CostVerdict.MOVED)
    assert judge.judge(measured, {"circuits": DECIDED}).verdict is CostVerdict.WORSE


def test_rounds_are_compared_one_by_one() -> None:
    """A slow machine slows both trees of a round."""
    slow_round = Measured("ingest-20000", "x", CPU, [1.0, 2.0, 1.0], [1.01, 2.02, 1.01])
    assert slow_round.ratio == pytest.approx(1.01)
    assert slow_round.uncertainty == pytest.approx(0.0)
    one_off = Measured("ingest-20000", "x", CPU, [1.0] * 3, [1.0, 1.12, 1.01])
    assert judge.judge(one_off, {}).verdict is CostVerdict.SAME
    wide = Measured("ingest-20000", "x", CPU, [1.0] * 3, [0.8, 1.0, 1.2])
    assert judge.judge(wide, {}).verdict is CostVerdict.UNCLEAR
    assert CostVerdict.UNCLEAR.bad


def test_of_memory_the_least_of_the_rounds_are_compared() -> None:
    """A busy machine only adds to it."""
    backlog = Measured("ingest-20000-memory", "x", MEMORY, [300, 500, 310], [305, 303, 600], least=True)
    assert backlog.ratio == pytest.approx(1.01)
    assert judge.judge(backlog, {}).verdict is CostVerdict.SAME
    more = Measured("ingest-20000-memory", "x", MEMORY, [300, 301], [340, 341], least=True)
    assert judge.judge(more, {}).verdict is CostVerdict.WORSE


def test_what_cannot_be_compared_is_told_and_fails_until_a_row_says_why() -> None:
    broken = Measured("rules", "x", COUNTED, problem="base: ImportError: no such name")
    row = judge.judge(broken, {})
    assert row.verdict.bad
    assert "NOT COMPARABLE: base: ImportError: no such name" in judge.table([row])
    assert judge.judge(broken, {"rules": DECIDED}).verdict.bad
    excused = judge.judge(broken, {"rules": NEW})
    assert not excused.verdict.bad
    assert "decision 106, a part that is new" in judge.table([excused])
    assert "no such name" in judge.table([excused])


def test_the_marks_name_parts_and_decisions_that_exist() -> None:
    decisions = {int(file.name[:4]) for file in (ROOT / "docs" / "decisions").glob("0*.md")}
    marks = judge.load()
    assert judge.unknown(marks, NAMES, decisions) == []
    assert re.fullmatch("[0-9a-f]{40}", marks.commit)
    wrong = judge.Marks(marks.commit, (judge.MovedMark("rulse", 1.1, 9999, " "),))
    assert len(judge.unknown(wrong, NAMES, decisions)) == 3


def test_every_line_of_the_table_has_a_name_of_its_own() -> None:
    assert len(set(NAMES)) == len(NAMES)
    rows = [JudgedPart(Measured(name, "x", CPU, [1.0], [1.0], 0.0), CostVerdict.SAME) for name in NAMES]
    assert all(f"| {name} |" in judge.table(rows) for name in NAMES)


@pytest.mark.parametrize("name", PARTS)
def test_a_part_does_its_work(name: str, tmp_path: Path) -> None:
    """Of few nodes, without valgrind; it raises where its work was not done."""
    done = subprocess.run(
        [sys.executable, "-m", "bench.short.counted", name, str(tmp_path), "--nodes", "12"],
        check=False, capture_output=True, text=True, cwd=ROOT,
        env=environment(ROOT) | PARTS[name].environment(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr


def test_another_tree_has_its_own_code_and_is_run_by_this_one(tmp_path: Path) -> None:
    tree = tree_of("HEAD", tmp_path)
    assert (tree / "telemetry" / "wire" / "frame.py").is_file()
    assert not (tree / "telemetry").is_symlink()
    assert (tree / "bench").resolve() == ROOT / "bench"
    with pytest.raises(SystemExit, match="is no commit here: git fetch"):
        tree_of("0" * 40, tmp_path)


@pytest.mark.systems
@pytest.mark.nightly
@pytest.mark.skipif(
    NIGHT not in os.environ, reason="by night: it counts for half a minute, and no change to kilowatch changes it"
)
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_a_planted_slow_down_is_refused_and_the_same_again_is_not(tmp_path: Path) -> None:
    """The same tree twice, and one that packs each frame twice."""
    slow = tmp_path / "slow"
    slow.mkdir()
    for each in ROOT.iterdir():
        if each.name != "telemetry" and not each.name.startswith("."):
            (slow / each.name).symlink_to(each)
    shutil.copytree(ROOT / "telemetry", slow / "telemetry")
    file = slow / "telemetry" / "wire" / "frame.py"
    source = file.read_text()
    planted = source.replace(
        "def build(",
        "def build(*given, **named):\n    _build(*given, **named)\n    return _build(*given, **named)\n\n\ndef _build(",
        1,
    )
    assert planted != source
    file.write_text(planted)
    one, again, other = (
        count("collector-reading", tree, tmp_path / str(number)) for number, tree in enumerate((ROOT, ROOT, slow))
    )
    same, worse = (
        judge.judge(Measured("collector-reading", "x", COUNTED, [one.mean], [it.mean], one.spread), {})
        for it in (again, other)
    )
    assert same.verdict is CostVerdict.SAME
    assert worse.verdict is CostVerdict.WORSE
