"""The campaign names tests of other parts: they must be there when the long form asks for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.report import ELSEWHERE, TABLE, Report, kept_of

ROOT = Path(__file__).resolve().parents[2]
DEMANDED = {*range(1, 13), *range(16, 28), *range(31, 38)}
"""Of the list of faults, those that concern the way from driver to store and page."""


@pytest.mark.parametrize("test", [test for tests in ELSEWHERE.values() for test in tests])
def test_every_test_that_is_played_elsewhere_exists(test: str) -> None:
    """A test that was renamed would end the long form before it begins."""
    path, _, name = test.partition("::")
    assert re.search(rf"^(async )?def {name}\(", (ROOT / path).read_text(), re.MULTILINE)


def test_every_fault_that_is_demanded_has_a_scenario() -> None:
    """Its number stands at a test of ours, or with a test of another part."""
    texts = [path.read_text() for path in Path(__file__).parent.glob("test_*.py")]
    told = [number for text in texts for number in re.findall(r'@fault\(\s*"([^"]+)"', text)]
    numbers = {int(each) for text in (*told, *ELSEWHERE) for each in re.findall(r"\d+", text)}
    assert numbers >= DEMANDED


def test_a_few_scenarios_run_again_replace_their_rows_and_no_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the page says by which command."""
    page = tmp_path / "faults.md"
    rows = ["| 4 | away | flat | +1 MiB | 3 | 0 | 1, 2, 3 |", "| 11 | storm | back | 14 s | 2 | 0 | 2, 3 |"]
    page.write_text("\n".join(["# Head", "", "Last run: then.", "", *TABLE, *rows, ""]))
    monkeypatch.setattr("tests.faults.report.PAGE", page)
    report = Report("unused", page=True, again="python -m tests.faults --only storm --again")
    told = {"number": "11", "scenario": "storm", "expected": "back", "seed": 1, "observed": "9 s"}
    report.pytest_runtest_logreport(
        pytest.TestReport(
            "t::test_storm[1]", ("t", 1, "x"), {}, "passed", None, "call", user_properties=list(told.items())
        )
    )
    assert "**Not finished**" in page.read_text()
    report.done()
    text = page.read_text()
    assert rows[0] in text
    assert "| 11 | storm | back | 9 s | 1 | 0 | 1 |" in text
    assert "14 s" not in text
    assert "Not finished" not in text
    assert "by `python -m tests.faults --only storm --again`: 11." in text
    assert kept_of(text)[1].keys() == {("4", "away"), ("11", "storm")}
