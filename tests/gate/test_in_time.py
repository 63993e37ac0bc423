"""Heavy tests that the gate leaves out where all would take too long."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.gate.__main__ import main
from tests.gate.in_time import MINUTES, MOST_MINUTES, left_out
from tests.gate.record import PROCESSORS, WORKERS, Record
from tests.gate.test_gate import BAD, GOOD, Repository

ROOM = MINUTES * 60 * WORKERS
"""Seconds by the record that fit into a gate."""


def test_what_is_near_runs_and_what_is_far_is_left_out() -> None:
    heavy = {"t/near.py::a": ROOM / 4, "t/far.py::b": ROOM / 4, "t/none.py::c": ROOM / 4, "t/own.py::d": ROOM}
    far = {"t/near.py": 1, "t/far.py": 2, "t/own.py": 0}
    few = Record({"t/near.py": ROOM / 2}, {test: its for test, its in heavy.items() if "own" not in test})
    assert left_out(few, far, 1, "") == ("t/none.py::c",)
    assert left_out(few, far, 1, "", {"t/near.py"}) == ()
    assert left_out(few, {}, MOST_MINUTES / MINUTES * 2, "") == tuple(sorted(few.heavy)), "on a slow machine"
    assert left_out(few, far, 1, "", processors=2 * PROCESSORS) == ()
    assert left_out(Record({}, heavy), far, 1, "") == tuple(sorted(few.heavy)), "what is touched runs in any case"


def test_what_is_as_far_runs_in_turn() -> None:
    """Of twenty, of which half has room, each ran at one of ten landings."""
    record = Record({}, {f"t/far.py::test[{number}]": ROOM / 10 for number in range(20)})
    each = [{*left_out(record, {"t/far.py": 3}, 1, f"landing {number}")} for number in range(10)]
    assert {len(out) for out in each} == {10}
    assert set.intersection(*each) == set()
    assert each[0] == {*left_out(record, {"t/far.py": 3}, 1, "landing 0")}, "and the same ones if it is run again"


def test_the_gate_leaves_out_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Only that test, not one whose name begins as its does."""
    repository = Repository(tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("KILOWATCH_PATIENCE", "1")
    monkeypatch.setattr("os.cpu_count", lambda: PROCESSORS)
    monkeypatch.setattr("tests.gate.__main__.TIERS", ({"shared": ("-n", "0")},))
    repository.write("Makefile", "check:\n\ttrue\n")
    repository.write("checks/__init__.py", "")
    repository.write("checks/test_heavy.py", BAD + "def test_bad_luck():\n    assert True\n")
    repository.write("tests/gate/seconds.toml", f'[heavy]\n"checks/test_heavy.py::test_bad" = {2 * ROOM}\n')
    repository.git("init", "-q", "-b", "main")
    repository.commit()
    repository.git("checkout", "-q", "-b", "change")
    repository.write("test_good.py", GOOD)
    repository.commit()
    code, text = main(["--calm", "0", "--base", "main"]), capsys.readouterr().out
    assert (code, "gate: 2 passed, 0 failed" in text) == (0, True), text
    assert "LEFT OUT 1 tests for their time, in build/gate/too_long.txt: make nightly" in text
    repository.write("checks/test_heavy.py", BAD)
    assert main(["--calm", "0", "--base", "main"]) == 1, "it is touched now"
