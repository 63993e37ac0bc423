"""The campaign names tests of other parts: they must be there when the long form asks for them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.faults.report import ELSEWHERE

ROOT = Path(__file__).resolve().parents[2]
DEMANDED = {*range(1, 13), *range(16, 28), *range(31, 35)}
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
