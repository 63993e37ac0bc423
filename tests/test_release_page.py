"""RELEASE.md: its commands are there; and the places that state the version agree."""

from __future__ import annotations

import re
import shlex
import subprocess
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "RELEASE.md").read_text(encoding="utf-8")
COMMANDS = [shlex.split(line) for line in PAGE.splitlines() if line.startswith("       ")]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


def numbers(page: str) -> list[str]:
    """Return the versions that head sections of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^## (\d{4}\.\d+)$", text, re.MULTILINE)


def test_it_uses_these_programs_and_no_other() -> None:
    assert {words[0] for words in COMMANDS} == {"make", "git", ".venv/bin/python"}


@pytest.mark.parametrize("words", [each for each in COMMANDS if each[0] == "make"], ids=" ".join)
def test_make_has_its_targets(words: list[str]) -> None:
    ended = subprocess.run(
        ["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr


def test_its_files_are_there() -> None:
    named = re.findall(r"`([\w./-]+\.(?:md|toml|yaml|py))`", PAGE)
    named += [word for words in COMMANDS for word in words if word.startswith("tests/")]
    assert [name for name in named if not (ROOT / name).is_file()] == []
    assert len(named) > 6


def test_a_tag_is_made_as_it_says(tmp_path: Path) -> None:
    """In a repository of its own; the tag is a version."""
    (words,) = (each for each in COMMANDS if each[0] == "git")
    who = ["-c", "user.name=a", "-c", "user.email=a@b"]
    for command in (["init", "-q"], ["commit", "-qm", "one", "--allow-empty"], words[1:]):
        subprocess.run(["git", *who, *command], cwd=tmp_path, check=True)
    tags = subprocess.run(["git", "tag"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert re.fullmatch(r"\d{4}\.\d+\n", tags.stdout)


def test_the_version_is_stated_alike() -> None:
    """What step 2 sets by hand."""
    assert re.fullmatch(r"\d{4}\.\d+", VERSION)
    chart = yaml.safe_load((ROOT / "deploy/helm/kilowatch/Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (f"{VERSION}.0", VERSION)
    assert VERSION in numbers("docs/upgrading.md")
