"""`make nightly` finds tests that pass by luck: by their order, or by when their waits wake."""

from __future__ import annotations

import ast
import datetime
import os
import re
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.gate.nightly import changed_lately, runs, with_waits, within
from tests.gate.reach import Tree
from tests.gate.shuffle import shuffled
from tests.gate.test_gate import QUARANTINE
from tests.gate.wakes import WAKES, polls

LIGHT = """
import asyncio

from tests.kit.waiting import until, wait_until

LOOKS = []


async def test_something_else_than_what_is_waited_for():
    seen = []
    async def light():
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append("green")
        for _ in range(5):
            await asyncio.sleep(0)
        seen.append("counted")
    task = asyncio.create_task(light())
    await until(lambda: seen, every=0.4)
    assert seen == ["green", "counted"]
    await task


async def test_a_state_that_passes():
    loop, seen = asyncio.get_running_loop(), []
    loop.call_later(0.05, seen.append, "green")
    loop.call_later(0.25, seen.clear)
    await until(lambda: seen, seconds=0.5)


async def test_what_is_waited_for():
    loop, seen = asyncio.get_running_loop(), []
    loop.call_later(0.05, seen.append, "green")
    await until(lambda: seen)


def test_a_thread_is_waited_for():
    looks = []
    wait_until(lambda: looks.append(1) or len(looks) == 3)
"""
ORDER = "SEEN = []\ndef test_first():\n    SEEN.append(1)\ndef test_second():\n    assert SEEN\n"
TWO = [f"checks/test_order.py::test_{name}" for name in ("first", "second")]
NIGHT = """
import pytest
from tests.kit.night import seed, size


@pytest.mark.nightly
def test_search():
    assert (size("short", "long"), seed(1)) == ("short", 1)


def test_other():
    pass
"""


class Checkout:
    """A folder with tests and their history, and what a night says of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "checks").mkdir()
        self.write("checks/__init__.py", "")
        self.write(
            "pytest.ini",
            "[pytest]\naddopts = -p no:hypothesispytest\nasyncio_default_fixture_loop_scope = function\nmarkers =\n    nightly: x\n    alone: x\n    systems: x\n",
        )
        self.write(".gitignore", "build/\n__pycache__/\n.pytest_cache/\n")
        self.git("init", "-q", "-b", "main")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(exist_ok=True)
        (self.folder / name).write_text(text)

    def git(self, *arguments: str, at: str = "2026-11-20T12:00:00Z") -> None:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments]
        when = {**os.environ, "GIT_AUTHOR_DATE": at, "GIT_COMMITTER_DATE": at}
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True, env=when)

    def commit(self, at: str) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x", at=at)

    def night(self, *arguments: str) -> tuple[int, str]:
        """Return the exit status and what was printed."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.gate.nightly", "--workers", "0", *arguments], cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A folder with one good test."""
    made = Checkout(tmp_path)
    made.write("checks/test_good.py", "def test_good():\n    pass\n")
    return made


def test_a_search_is_long_at_night(checkout: Checkout) -> None:
    checkout.write("checks/test_search.py", NIGHT)
    code, text = checkout.night("search", "--seed", "4")
    assert code == 1
    assert "FAILED search, seed 4: checks/test_search.py::test_search" in text
    assert "test_other" not in text
    checkout.write("checks/test_search.py", NIGHT.replace('("short", 1)', '("long", 4)'))
    code, text = checkout.night("search", "--seed", "4")
    assert code == 0
    assert text.endswith("nightly: passed, seed 4\n")


@pytest.mark.parametrize(
    ("how", "failed"), [("early", "something_else_than_what_is_waited_for"), ("late", "a_state_that_passes")]
)
def test_waits_wake_early_and_late(tmp_path: Path, how: str, failed: str) -> None:
    """What is asserted without being waited for fails, and nothing else."""
    (tmp_path / "test_light.py").write_text(LIGHT)
    (tmp_path / "pytest.ini").write_text(
        "[pytest]\naddopts = -p no:hypothesispytest\nasyncio_mode = auto\nasyncio_default_fixture_loop_scope = function\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.gate.wakes"], cwd=tmp_path, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), WAKES: how}, capture_output=True, text=True,
    )  # fmt: skip
    assert f"FAILED test_light.py::test_{failed}" in done.stdout
    assert "1 failed, 3 passed" in done.stdout


def test_a_sleep_between_two_looks_is_known() -> None:
    tree = ast.parse(
        """
async def _until(holds):
    while not holds():
        publish()
        await asyncio.sleep(0.3)
async def test_it():
    while not found:
        await asyncio.sleep(0.1)
        assert time.monotonic() < end
    while not found:
        publish()
        await asyncio.sleep(0.1)
    while True:
        time.sleep(0.1)
    time.sleep(0.1)
"""
    )
    assert sorted(set(polls(tree))) == [5, 8]


def test_early_and_late_are_all_files_whose_waits_or_helpers_wait() -> None:
    files = with_waits(Tree(ROOT))
    assert {"tests/kit/test_waiting.py", "tests/aggregator/test_alerting.py"} <= set(files)
    assert "tests/alerts/test_rules.py" not in files
    assert within(files, ["tests/kit"]) == ["tests/kit/test_waiting.py"]
    assert within(["tests/kitchen/test_a.py"], ["tests/kit"]) == []


def test_a_seed_is_an_order_of_files_and_of_the_tests_in_each() -> None:
    tests = [f"{file}.py::test_{number}" for file in "abc" for number in range(9)]
    first, second = shuffled(tests, "1"), shuffled(tests, "2")
    assert first == shuffled(tests, "1") != second
    assert sorted(first) == sorted(second) == tests
    assert len([test for before, test in pairwise(first) if before[0] != test[0]]) == 2
    assert [test for test in shuffled(tests, "1", {"a.py"}) if test[0] == "a"] == tests[:9]


def test_another_order_finds_a_test_that_needs_another(checkout: Checkout) -> None:
    checkout.write("checks/test_order.py", ORDER)
    good, bad = (next(seed for seed in map(str, range(99)) if shuffled(TWO, seed)[-1] == TWO[last]) for last in (1, 0))
    code, text = checkout.night("order", "--seed", good, "--in", "checks/test_order.py")
    assert (code, "2 passed,   0 failed" in text) == (0, True)
    code, text = checkout.night("order", "--seed", bad, "--in", "checks/test_order.py")
    assert code == 1
    assert f"FAILED order, seed {bad}: {TWO[1]}" in text


def test_files_that_changed_within_a_day_of_the_newest_commit_are_repeated(
    checkout: Checkout, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout.commit("2026-11-20T12:00:00Z")
    checkout.write("checks/test_new.py", "def test_new():\n    pass\n")
    checkout.write("checks/test_gone.py", "def test_gone():\n    pass\n")
    checkout.commit("2026-11-21T13:00:00Z")
    (checkout.folder / "checks/test_gone.py").unlink()
    checkout.write("checks/helper.py", "")
    checkout.commit("2026-11-22T12:00:00Z")
    monkeypatch.chdir(checkout.folder)
    assert changed_lately() == ["checks/test_new.py"]
    assert list(runs("repeat", ["checks/test_good.py"], 1, 20)) == []
    code, text = checkout.night("repeat", "--repeats", "3")
    assert code == 0
    assert text.count(" 1 passed,   0 failed") == 3


def test_what_is_over_in_quarantine_fails_the_night_and_what_is_in_it_does_not(checkout: Checkout) -> None:
    checkout.write("checks/test_bad.py", "def test_bad():\n    assert 0\n")
    (checkout.folder / "tests").mkdir()
    today = datetime.datetime.now(datetime.UTC).date()
    begun, days = today - datetime.timedelta(10), datetime.timedelta(1)
    for last_day, code in ((today + days, 0), (today - days, 1)):
        entry = QUARANTINE.format(cause="a clock", since=begun, last_day=last_day)
        checkout.write("tests/quarantine.toml", entry.replace("test_bad.py", "checks/test_bad.py"))
        found, text = checkout.night("order")
        assert found == code, text
        assert ("QUARANTINE OVER checks/test_bad.py::test_bad" in text) == bool(code)


def test_a_file_that_can_not_be_collected_fails_the_night(checkout: Checkout) -> None:
    checkout.write("checks/test_broken.py", "import nothing_of_this_name\n")
    code, text = checkout.night("order")
    assert code == 1
    assert re.search("^(FAILED|BROKEN) order, seed .*", text, re.MULTILINE)


@pytest.mark.parametrize("code", [0, 1])
def test_what_costs_more_than_the_stored_commit_fails_the_night(checkout: Checkout, code: int) -> None:
    """The night runs the ratchet of its own tree."""
    checkout.write("bench/__init__.py", "")
    checkout.write("bench/short.py", f"print('| rules |')\nraise SystemExit({code})\n")
    found, text = checkout.night("speed")
    assert found == code
    assert "| rules |" in text
    assert ("FAILED speed: python -m bench.short ended with 1" in text) is bool(code)


def test_an_unknown_part_is_refused(checkout: Checkout) -> None:
    code, text = checkout.night("ordr")
    assert code == 2
    assert "no part is called ordr: speed, search, early, late, order, alone, repeat" in text
