"""CI fails what is skipped elsewhere for want of something that can be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

SKIPPED = """
import pytest

@pytest.fixture
def broker():
    pytest.skip("mosquitto is not installed")

def test_by_its_fixture(broker):
    assert broker

@pytest.mark.skipif(True, reason="apt-get install openssl")
def test_by_its_mark():
    assert 0

@pytest.mark.parametrize("each", [])
def test_of_nothing(each):
    assert each

def test_by_a_module():
    assert pytest.importorskip("no_such_module")

@pytest.mark.skipif(True, reason="no ../shared/data/captures")
def test_of_what_is_lent():
    assert 0
"""


@pytest.mark.parametrize(("ci", "end"), [("true", "1 failed, 1 skipped, 3 errors in "), ("", "5 skipped in ")])
def test_ci_takes_few_reasons_to_skip(tmp_path: Path, ci: str, end: str) -> None:
    (tmp_path / "test_skipped.py").write_text(SKIPPED)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "tests.kit.skips", "-rN", str(tmp_path)],
        cwd=tmp_path, env={**os.environ, "CI": ci, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert end in done.stdout, done.stdout + done.stderr
    assert done.stdout.count("CI must run this: Skipped: ") == (4 if ci else 0)
