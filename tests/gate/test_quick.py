"""`make quick` takes the tests nearest to a change, and says what it leaves out."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LONG, ROOT, long_files
from tests.gate.outcomes import Outcome
from tests.gate.quick import BUDGET, FAR, LONGEST, choose, of_slow_tier
from tests.gate.reach import Tree
from tests.gate.record import HEAVY, Record, load, write
from tests.gate.unchanged import PACKAGES

PASS = "def test_it():\n    pass\n"
FILES = {
    "core/__init__.py": "",
    "core/__main__.py": "import core.middle\n",
    "core/base.py": "VALUE = 1\n",
    "core/middle.py": "from core.base import VALUE\n",
    "core/rules.py": 'FILES = __import__("pathlib").Path(__file__).parent.glob("*.toml")\n',
    "core/one.toml": "a = 1\n",
    "deploy/units/it.service": "[Unit]\n",
    "docs/page.md": "text\n",
    "checks/__init__.py": "",
    "checks/conftest.py": "import core.base\n",
    "checks/helper.py": 'COMMAND = ["-m", "core"]\n',
    "checks/room/__init__.py": "",
    "checks/room/conftest.py": "import core.rules\n",
    "checks/room/test_room.py": PASS,
    "checks/test_base.py": f"from core.base import VALUE\n{PASS}",
    "checks/test_middle.py": "def test_it():\n    import core.middle\n",
    "checks/test_started.py": f"import checks.helper\n{PASS}",
    "checks/test_units.py": f'FOLDER = "deploy/units"\n{PASS}',
    "checks/test_page.py": f'PAGE = __import__("pathlib").Path() / "docs" / "page.md"\n{PASS}',
    "checks/test_source.py": 'def test_it():\n    list(__import__("pathlib").Path().rglob("*.py"))\n',
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A small checkout."""
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("changed", "reached"),
    [
        ("core/base.py", {"test_base": 1, "test_middle": 2, "test_started": 4, "test_source": 1}),
        ("core/middle.py", {"test_middle": 1, "test_started": 3, "test_source": 1}),
        ("core/rules.py", {"room/test_room": 2, "test_source": 1}),
        ("core/one.toml", {"room/test_room": 3}),
        ("checks/conftest.py", dict.fromkeys(
            ["test_base", "test_middle", "test_started", "test_units", "test_page", "test_source",
             "room/test_room"], 1)),
        ("checks/room/conftest.py", {"room/test_room": 1, "test_source": 1}),
        ("checks/test_base.py", {"test_base": 0, "test_source": 1}),
        ("deploy/units/it.service", {"test_units": 1}),
        ("docs/page.md", {"test_page": 1}),
        ("docs/other.md", {}),
        ("core/gone.py", {"test_source": 1}),
    ],
)  # fmt: skip
def test_a_change_reaches_what_imports_starts_or_reads_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, changed: str, reached: dict[str, int]
) -> None:
    monkeypatch.syspath_prepend(str(folder))
    assert Tree(folder).reached([changed]) == {f"checks/{name}.py": far for name, far in reached.items()}


@pytest.fixture(scope="module")
def ours() -> Tree:
    """This checkout."""
    return Tree(ROOT)


@pytest.mark.parametrize(
    ("changed", "reader"),
    [
        ("alerts/rules/node_rules.toml", "tests/alerts/test_rules.py"),
        ("telemetry/statements/node.toml", "tests/telemetry/test_node_statements.py"),
        ("deploy/systemd/kilowatch-collector.service", "tests/kilowatch/test_units.py"),
        ("deploy/slurm/prolog", "tests/collector/jobs/test_slurm.py"),
        ("deploy/helm/kilowatch/values.yaml", "tests/packaging/test_chart.py"),
        ("grafana/dashboards/kilowatch-gpu.json", "tests/grafana/test_dashboards.py"),
        ("aggregator/web/static/pages.css", "tests/web/test_in_browser.py"),
        ("docs/deploy.md", "tests/kilowatch/test_deploy_page.py"),
        ("docs/deploy.md", "tests/test_page_links.py"),
        ("README.md", "tests/test_site.py"),
        ("docs/sites/hall.toml", "tests/test_worked_sites.py"),
        ("docs/decisions/0001-x.md", "tests/test_page_links.py"),
        ("tests/tui/snapshots/help.svg", "tests/tui/test_snapshots.py"),
        ("tests/power/cases/homes.toml", "tests/power/test_cases.py"),
        ("tests/fake_nvml/device.c", "tests/collector/test_nvml_values.py"),
        ("tests/quarantine.toml", "tests/gate/test_gate.py"),
        ("pyproject.toml", "tests/test_package_data.py"),
        ("kilowatch/cli/diagnose.py", "tests/kilowatch/test_exit_codes.py"),
    ],
)
def test_files_of_this_project_reach_the_tests_that_read_them(ours: Tree, changed: str, reader: str) -> None:
    assert reader in ours.reached([changed])


def test_the_nearest_are_taken_until_the_seconds_are_spent() -> None:
    record = Record({"far": 1.0, "near": 1.0, "dear": BUDGET - 1, "long": LONGEST + 1, "own": 999.0}, {})
    reached = {"far": 2, "near": 1, "dear": 2, "own": 0, "slow": 0, "slower": 1, "last": FAR}
    chosen = choose({**reached, "long": 1, "farther": FAR + 1}, record, {"slow", "slower"}, 1003.0)
    assert list(chosen.taken) == ["own", "near", "far", "last"]
    assert chosen.left == {"dear": 2, "long": 1, "farther": FAR + 1}
    assert chosen.slow == ["slow"]
    assert chosen.seconds == 1002.0


def test_what_a_gate_measured_is_recorded(tmp_path: Path) -> None:
    file = tmp_path / "seconds.toml"
    heavy = 'checks/test_a.py::test_b["x\\\\y"]'
    outcomes = [
        Outcome("checks/test_a.py::test_a", "setup", "passed", 0.5),
        Outcome("checks/test_a.py::test_a", "call", "passed", 0.75),
        Outcome(heavy, "call", "passed", HEAVY),
    ]
    assert load(file) == Record({}, {})
    write(outcomes, file)
    assert load(file) == Record({"checks/test_a.py": 1.2}, {heavy: HEAVY})
    assert load(file).seconds("checks/test_new.py") > 0


def test_the_record_of_this_project_is_one() -> None:
    record = load(ROOT / "tests/gate/seconds.toml")
    assert len(record.files) > 200
    assert min(record.heavy.values()) >= HEAVY


def test_files_that_take_a_minute_begin_first() -> None:
    """Also one whose single tests alone make it so, and none by a name that is gone."""
    record, first = load(ROOT / "tests/gate/seconds.toml"), long_files()
    assert first.keys() > {file for file, spent in record.files.items() if spent > LONG}
    assert first.keys() & {*PACKAGES.files}, "of which the gate that was recorded had none"
    assert [file for file in first if not (ROOT / file).is_file()] == []
    assert len(first) < 60, "what is first if all are?"


def test_the_slow_tier_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    files = ["tests/endtoend/test_demo.py", "tests/web/test_in_browser.py", "tests/test_structure.py"]
    assert of_slow_tier(files) == set(files[:2])


class Checkout:
    """The small checkout with its history, and what `make quick` says of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.git("init", "-q", "-b", "main")
        (folder / ".gitignore").write_text("__pycache__/\n.pytest_cache/\n.ruff_cache/\n")
        (folder / "pytest.ini").write_text("[pytest]\nmarkers =\n    systems: x\n")
        self.commit()

    def git(self, *arguments: str) -> None:
        command = ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments]
        subprocess.run(command, cwd=self.folder, check=True, capture_output=True)

    def commit(self) -> None:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")

    def write(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)

    def quick(self, *arguments: str) -> tuple[int, str]:
        """Return the exit status and what was printed."""
        done = subprocess.run(
            [sys.executable, "-m", "tests.gate.quick", *arguments], cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stdout + done.stderr


@pytest.fixture
def checkout(folder: Path) -> Checkout:
    """The small checkout, all of it committed."""
    return Checkout(folder)


def test_what_differs_from_the_base_is_tested_committed_or_not(checkout: Checkout) -> None:
    checkout.git("checkout", "-q", "-b", "change")
    checkout.write("core/middle.py", "from core.base import VALUE\n\nMORE = VALUE\n")
    checkout.commit()
    checkout.write("checks/test_new.py", "def test_it():\n    assert 0\n")
    code, text = checkout.quick("--base", "main")
    assert code == 1
    assert "quick: 2 files differ from main: " in text
    assert "FAILED checks/test_new.py::test_it" in text
    assert "1 failed, 3 passed" in text
    assert "quick: FAILED after " in text
    checkout.write("checks/test_new.py", "def test_it():\n    pass\n")
    code, text = checkout.quick("--base", "main")
    assert (code, "4 passed" in text, "quick: passed after " in text) == (0, True, True)


def test_without_the_base_the_newest_commit_is_the_change(checkout: Checkout) -> None:
    checkout.write("core/rules.py", "FILES = []\n")
    checkout.commit()
    code, text = checkout.quick()
    assert code == 0
    assert "quick: 1 files differ from HEAD~1" in text
    assert "2 passed" in text


def test_a_change_that_ruff_would_write_otherwise_fails(checkout: Checkout) -> None:
    checkout.write("core/rules.py", "FILES  =  []\n")
    code, text = checkout.quick("--base", "main")
    assert code == 1
    assert "core/rules.py" in text


def test_heavy_tests_and_the_slow_tier_are_left_out_and_told(checkout: Checkout) -> None:
    bad = "def test_heavy():\n    assert 0\n\n\ndef test_light():\n    pass\n"
    slow = "import pytest\n\npytestmark = pytest.mark.systems\n\n\ndef test_it():\n    assert 0\n"
    (checkout.folder / "tests/gate").mkdir(parents=True)
    checkout.write("tests/gate/seconds.toml", '[heavy]\n"checks/test_base.py::test_heavy" = 9.0\n')
    checkout.commit()
    checkout.write("checks/test_base.py", bad)
    checkout.write("checks/test_slow.py", slow)
    code, text = checkout.quick("--base", "main")
    assert code == 0, text
    assert "  checks/test_base.py::test_heavy" in text
    assert "quick: left out checks/test_slow.py, which changed: make test-systems" in text
    assert "2 passed, 1 deselected" in text


def test_the_last_commits_are_played_again(checkout: Checkout) -> None:
    checkout.write("docs/page.md", "more text\n")
    checkout.commit()
    code, text = checkout.quick("--replay", "1")
    assert code == 0
    assert re.search(r"^[0-9a-f]+ +1 +1 +0 +\d+ +a change$", text, re.MULTILINE)
