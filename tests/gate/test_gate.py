"""The gate on a small repository: what it tells, what it forgives once, and what it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.conftest import ROOT
from tests.gate import machine, quarantine
from tests.gate.__main__ import Flaky, git, main
from tests.gate.judge import MOST_FAILED, MOST_FLAKY
from tests.gate.unchanged import Group, changed_since
from tests.kit.waiting import FACTOR

GOOD = "def test_good():\n    assert True\n"
BAD = "def test_bad():\n    assert 0\n"
ONCE = """
from pathlib import Path

def first(name):
    mark = Path(__file__).with_name(name)
    seen = mark.exists()
    mark.touch()
    return not seen
"""
"""True at the first call for a name, as the state of a machine is at the first try."""
FLAKY_TEST = ONCE + "def test_once():\n    assert not first('once')\n"
HANGS = ONCE + "import time\ndef test_hangs():\n    time.sleep(300 if first('hangs') else 0)\n"
CRASHES = ONCE + "import os\ndef test_crashes():\n    first('crashes') and os._exit(3)\n"
SKIPS = ONCE + "import pytest\ndef test_skips():\n    assert not first('s')\n    "


class Repository:
    """A folder with tests, and what the gate says of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "conftest.py").write_text("")
        (folder / ".gitignore").write_text("build/\nonce\nhangs\n__pycache__/\n.pytest_cache/\n")
        (folder / "pytest.ini").write_text("[pytest]\ntimeout = 60\naddopts = -p no:hypothesispytest\n")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / name).write_text(text)

    def git(self, *arguments: str) -> str:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments]
        return subprocess.run(command, cwd=self.folder, check=True, capture_output=True, text=True).stdout.strip()

    def commit(self) -> str:
        """Commit all files; return the hash of the tree."""
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "x")
        return self.git("rev-parse", "HEAD^{tree}")

    def judge(self, *, base: str = "origin/main", workers: int = 0) -> tuple[int, str]:
        """Run the gate; return its exit status and what it printed."""
        command = [sys.executable, "-m", "tests.gate", "--calm", "0", "--base", base]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        done = subprocess.run(
            [*command, "--", "-n", str(workers)],
            cwd=self.folder, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr

    @property
    def recorded(self) -> list[Flaky]:
        file = self.folder / "build/flaky.jsonl"
        lines = file.read_bytes().splitlines() if file.exists() else []
        return [msgspec.json.decode(line, type=Flaky) for line in lines]


@pytest.fixture(autouse=True)
def fast_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine whose speed is not measured by each gate."""
    monkeypatch.setenv("KILOWATCH_PATIENCE", "1")


@pytest.fixture
def repository(tmp_path: Path) -> Repository:
    """A folder without git, with one good test."""
    made = Repository(tmp_path)
    made.write("test_good.py", GOOD)
    return made


def test_a_test_that_fails_once_is_told_and_recorded_and_refuses_nothing(repository: Repository) -> None:
    repository.write("test_flaky.py", FLAKY_TEST)
    code, text = repository.judge()
    assert code == 0
    assert "FLAKY test_flaky.py::test_once: failed at load " in text
    assert "gate: 2 passed, 0 failed, 0 skipped\nPASSED" in text
    assert [(one.test, one.hung) for one in repository.recorded] == [("test_flaky.py::test_once", False)]


def test_a_test_that_fails_twice_refuses(repository: Repository) -> None:
    repository.write("test_bad.py", BAD)
    code, text = repository.judge()
    assert code == 1
    assert "FAILED TWICE test_bad.py::test_bad\ngate: 1 passed, 1 failed, 0 skipped\nREFUSED" in text
    assert repository.recorded == []


def test_a_flaky_test_of_a_file_that_the_change_touches_refuses(repository: Repository) -> None:
    repository.git("init", "-q", "-b", "main")
    repository.write("test_flaky.py", GOOD)
    repository.commit()
    repository.git("checkout", "-q", "-b", "change")
    repository.write("test_flaky.py", FLAKY_TEST)
    repository.commit()
    code, text = repository.judge(base="main")
    assert code == 1
    assert "FLAKY AND CHANGED test_flaky.py::test_once" in text
    (repository.folder / "once").unlink()
    assert repository.judge(base="change")[0] == 0, "the change touches nothing"
    (repository.folder / "once").unlink()
    repository.write("test_flaky.py", FLAKY_TEST + "ADDED = 1\n")
    assert repository.judge(base="change")[0] == 1, "what is not committed is touched too"
    assert repository.judge(base="nowhere")[0] == 0, "without a base nothing is"


def test_a_flaky_test_of_a_file_whose_imports_alone_changed_refuses_nothing(repository: Repository) -> None:
    """A moved module changes the imports of hundreds of tests."""
    repository.git("init", "-q", "-b", "main")
    repository.write("test_flaky.py", "import json\n\n" + FLAKY_TEST)
    repository.commit()
    repository.git("checkout", "-q", "-b", "change")
    repository.write("test_flaky.py", "import re\nfrom os import (\n    path,\n)\n" + FLAKY_TEST)
    repository.commit()
    code, text = repository.judge(base="main")
    assert (code, "FLAKY test_flaky.py::test_once" in text) == (0, True), text
    (repository.folder / "once").unlink()
    repository.write("test_flaky.py", "import re\n" + FLAKY_TEST + "ADDED = 1\n")
    repository.commit()
    code, text = repository.judge(base="main")
    assert (code, "FLAKY AND CHANGED" in text) == (1, True), text


def test_a_file_that_is_laid_out_anew_is_not_changed(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another length of line touches all files."""
    repository.git("init", "-q", "-b", "main")
    texts = {
        "same.py": ("def f(\n    a,\n):  # fmt: skip\n    return [a, 1]\n", "def f(a):\n    return [\n  a, 1]\n"),
        "other.py": ("def f(a):\n    return [a, 1]\n", "def f(a):\n    return [a, 2]\n"),
        "moved.py": ("import json\nprint(json)\n", "import re as json\nprint(json)\n"),
        "broken.py": ("def f(:\n", "def f( :\n"),
        "page.md": ("a\n", "a \n"),
        "gone.py": ("a = 1\n", None),
    }
    for name, (before, _) in texts.items():
        repository.write(name, before)
    repository.commit()
    for name, (_, now) in texts.items():
        if now is None:
            (repository.folder / name).unlink()
        else:
            repository.write(name, now)
    repository.write("new.py", "a = 1\n")
    monkeypatch.chdir(repository.folder)
    found = changed_since(git, "main")
    assert sorted(found) == ["broken.py", "gone.py", "moved.py", "new.py", "other.py", "page.md"]


@pytest.mark.parametrize("count", [MOST_FLAKY, MOST_FLAKY + 1])
def test_so_many_tests_may_be_flaky(repository: Repository, count: int) -> None:
    tests = "".join(f"def test_{n}():\n    assert not first('once{n}')\n" for n in range(count))
    repository.write("test_flaky.py", ONCE + tests)
    code, text = repository.judge()
    assert code == int(count > MOST_FLAKY)
    assert ("TOO MANY FLAKY" in text) == (count > MOST_FLAKY)
    assert len(repository.recorded) == count


def test_a_hang_counts_double(repository: Repository) -> None:
    repository.write("pytest.ini", f"[pytest]\ntimeout = {FACTOR}\n")
    repository.write("test_hangs.py", HANGS)
    code, text = repository.judge()
    assert code == 0
    assert "FLAKY test_hangs.py::test_hangs: hung at load " in text
    repository.write("test_again.py", HANGS.replace("'hangs'", "'again'"))
    (repository.folder / "hangs").unlink()
    assert repository.judge()[0] == 1
    assert [one.hung for one in repository.recorded] == [True] * 3


def test_a_test_that_ends_its_worker_is_tried_again_as_one_that_hung(repository: Repository) -> None:
    repository.write("test_crashes.py", CRASHES)
    code, text = repository.judge(workers=1)
    assert code == 0
    assert "FLAKY test_crashes.py::test_crashes: hung at load " in text
    assert "gate: 2 passed, 0 failed, 0 skipped\nPASSED" in text


def test_a_second_try_that_is_skipped_has_not_passed(repository: Repository) -> None:
    repository.write("test_skips.py", SKIPS + "pytest.skip('no reason')\n")
    code, text = repository.judge()
    assert code == 1
    assert "FAILED TWICE test_skips.py::test_skips" in text


def test_a_test_of_a_series_is_tried_again_with_those_before_it(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    tests = "SEEN = []\ndef test_a():\n    SEEN.append(1)\ndef test_b():\n    assert SEEN and not first('once')\n"
    repository.write("test_series.py", ONCE + tests)
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    assert main(["--calm", "0", "--", "-n", "0"]) == 1, "alone the first has not been"
    (repository.folder / "once").unlink()
    monkeypatch.setattr("tests.gate.__main__.SERIES", {"test_series.py": ("-k", "test_")})
    assert main(["--calm", "0", "--", "-n", "0"]) == 0


def test_with_many_failures_nothing_is_tried_again(repository: Repository) -> None:
    tests = [f"def test_{n}():\n    assert not first('once{n}')\n" for n in range(MOST_FAILED + 1)]
    repository.write("test_many.py", ONCE + "".join(tests))
    code, text = repository.judge()
    assert code == 1
    assert "no second try" in text
    assert text.count("FAILED test_many.py::test_") >= MOST_FAILED + 1
    assert repository.recorded == []


def test_a_file_that_can_not_be_collected_refuses(repository: Repository) -> None:
    repository.write("test_broken.py", "import nothing_of_this_name\n")
    code, text = repository.judge()
    assert code == 1
    assert "BROKEN given tier: pytest ended with 2" in text
    assert "FAILED TWICE test_broken.py" in text


def test_no_tests_are_no_pass(tmp_path: Path) -> None:
    code, text = Repository(tmp_path).judge()
    assert code == 1
    assert "no test was found" in text


def test_a_tree_that_passed_is_marked_where_it_is_what_is_committed(
    repository: Repository, monkeypatch: pytest.MonkeyPatch
) -> None:
    repository.git("init", "-q", "-b", "main")
    repository.write("Makefile", "check:\n\ttrue\n")
    tree = repository.commit()
    mark = repository.folder / "build/gate" / tree
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("tests.gate.__main__.TIERS", ({"fast": ("-n", "0")},))
    repository.write("test_more.py", GOOD)
    assert main(["--calm", "0"]) == 0
    assert not mark.exists(), "what was judged is not what is committed"
    (repository.folder / "test_more.py").unlink()
    assert main(["--calm", "0", "--", "test_good.py"]) == 0
    assert not mark.exists(), "not all was judged"
    assert main(["--calm", "0"]) == 0
    assert mark.read_text().startswith("1 passed, 0 failed, 0 skipped, 0 flaky, ")
    mark.unlink()
    repository.write("Makefile", "check:\n\tfalse\n")
    repository.commit()
    assert main(["--calm", "0"]) == 1, "checks judge too"


def test_tiers_that_run_at_the_same_time_are_judged_each(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("Makefile", "check:\n\ttrue\n")
    repository.write("test_bad.py", BAD)
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    row = {"alone": ("-n", "0", "test_good.py"), "beside": ("-n", "0", "test_bad.py")}
    monkeypatch.setattr("tests.gate.__main__.TIERS", (row,))
    assert main(["--calm", "0"]) == 1
    text = capsys.readouterr().out
    assert "FAILED TWICE test_bad.py::test_bad\ngate: 1 passed, 1 failed" in text
    repository.write("test_bad.py", GOOD)
    assert main(["--calm", "0"]) == 0
    assert "gate: 2 passed, 0 failed" in capsys.readouterr().out


def test_on_a_slow_machine_fewer_tests_run_at_the_same_time_and_have_more_patience(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    repository.write("Makefile", "check:\n\ttrue\n")
    repository.write(
        "test_slow.py",
        "import os\n\ndef test_slow():\n    assert os.environ['KILOWATCH_PATIENCE'] == '2'\n"
        f"    assert os.environ['PYTEST_XDIST_WORKER_COUNT'] == '{machine.workers(2)}'\n",
    )
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.delenv("KILOWATCH_PATIENCE")
    monkeypatch.setattr("tests.gate.machine.slowness", lambda: 2.0)
    monkeypatch.setattr("tests.gate.__main__.SLOW_TIERS", ({"shared": ("-n", "auto")},))
    assert main(["--calm", "0"]) == 0
    assert "gate: this machine takes 2 times as long" in capsys.readouterr().out
    assert machine.workers(2) < machine.workers(1)


@pytest.mark.parametrize(("fast_seconds", "slow"), [(1e-6, True), (1e6, False)])
def test_a_machine_is_slow_by_the_time_that_python_takes(
    fast_seconds: float, slow: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.gate.machine.FAST_SECONDS", fast_seconds)
    monkeypatch.setattr("tests.gate.machine.ROUNDS", 1)
    found = machine.slowness()
    assert found > machine.SLOW if slow else found == 1.0


def test_what_holds_a_few_files_is_left_out_where_these_did_not_change(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a clone of what is offered, whose main is the change itself: there a day of history is looked at."""
    [day, two] = ["2026-01-02T00:00:00Z", "2026-01-04T00:00:00Z"]
    monkeypatch.chdir(repository.folder)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setattr("tests.gate.__main__.TIERS", ({"shared": ("-n", "0")},))
    monkeypatch.setattr("tests.gate.unchanged.GROUPS", (Group(("test_long.py",), ("ring/",)),))
    repository.write("test_long.py", BAD)
    repository.write("Makefile", "check:\n\ttrue\n")
    assert main(["--calm", "0"]) == 1, "without git nothing is known to be unchanged"
    repository.git("init", "-q", "-b", "main")
    monkeypatch.setenv("GIT_COMMITTER_DATE", day)
    repository.commit()
    assert main(["--calm", "0", "--base", "main"]) == 1, "nor is it in a history of one commit"
    monkeypatch.setenv("GIT_COMMITTER_DATE", two)
    repository.write("test_more.py", GOOD)
    repository.commit()
    capsys.readouterr()
    assert main(["--calm", "0", "--base", "main"]) == 0
    assert "LEFT OUT test_long.py: nothing that it holds" in capsys.readouterr().out
    repository.write("ring/ring.py", "")
    assert main(["--calm", "0", "--base", "main"]) == 1, "its source"
    (repository.folder / "ring/ring.py").unlink()
    repository.write("pyproject.toml", "[tool.ruff]\nline-length = 90\n")
    assert main(["--calm", "0", "--base", "main"]) == 0, "no package is made by a linter"
    repository.write("pyproject.toml", "[project]\nname = 'other'\n")
    assert main(["--calm", "0", "--base", "main"]) == 1, "what is not committed counts"
    repository.commit()
    assert main(["--calm", "0", "--base", "main"]) == 1
    assert main(["--calm", "0", "--base", "HEAD~1"]) == 1


QUARANTINE = """
[[test]]
test = "test_bad.py::test_bad"
cause = "{cause}"
since = {since}
last_day = {last_day}
"""


def test_a_test_in_quarantine_is_told_and_does_not_judge(repository: Repository) -> None:
    repository.write("test_bad.py", BAD)
    (repository.folder / "tests").mkdir()
    day = {"since": "2026-01-01", "last_day": "2026-01-10"}
    repository.write("tests/quarantine.toml", QUARANTINE.format(cause="a clock", **day))
    code, text = repository.judge()
    assert code == 0
    assert "QUARANTINED test_bad.py::test_bad: failed, and does not judge: a clock" in text
    assert "QUARANTINE OVER test_bad.py::test_bad: since 2026-01-10" in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (QUARANTINE.format(cause=" ", since="2026-01-01", last_day="2026-01-02"), "has no cause"),
        (QUARANTINE.format(cause="x", since="2026-01-01", last_day="2026-02-01"), "at most 14 days"),
        (QUARANTINE.format(cause="x", since="2026-01-02", last_day="2026-01-01"), "at most 14 days"),
        (QUARANTINE.format(cause="x", since="2026-01-01", last_day="2026-01-02") * 6, "6 tests"),
    ],
)
def test_a_quarantine_is_short_and_has_causes(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "quarantine.toml"
    file.write_text(text)
    with pytest.raises(ValueError, match=said):
        quarantine.load(file)
