"""Tables of the gate name what is in this checkout; they are tested also where its other tests are left out."""

from __future__ import annotations

import re

from tests.conftest import ROOT
from tests.gate import quarantine
from tests.gate.__main__ import CLUSTER
from tests.gate.judge import file_of
from tests.gate.unchanged import GROUPS, MEMBERS


def test_what_needs_the_machine_to_itself_is_where_its_tier_looks() -> None:
    mark = ".".join(("mark", "alone"))
    files = [file for file in (ROOT / "tests").rglob("*.py") if mark in file.read_text("utf-8")]
    assert files
    assert all(file.is_relative_to(ROOT / CLUSTER) for file in files), files
    named = {file.relative_to(ROOT).as_posix() for file in files}
    assert named <= {*MEMBERS.files}, "left out together, no tier is left without a test"


def test_what_may_be_left_out_and_what_it_holds_are_there() -> None:
    """A folder that moves must not take a campaign out of every gate."""
    for group in GROUPS:
        for name in (*group.files, *group.sources):
            assert (ROOT / name).is_dir() if name.endswith("/") else (ROOT / name).is_file(), name


def test_what_is_in_quarantine_here_may_be() -> None:
    for test in quarantine.load(ROOT / quarantine.FILE):
        assert (ROOT / file_of(test)).exists(), test


def test_what_packages_are_made_of_is_there() -> None:
    """Their tests run only where what makes them has changed."""
    text = (ROOT / "deploy/debian/build.sh").read_text("utf-8")
    named = set(re.findall(r"(?<![\w/])(?:deploy|grafana)/[\w./-]*\w", text))
    assert "deploy/kubernetes" in named
    assert [name for name in named if not (ROOT / name).exists()] == []
