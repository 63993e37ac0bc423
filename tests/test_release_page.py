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


KINDS = ("CHANGE", "FEATURE", "ENHANCEMENT", "BUGFIX")
MOST = 240
"""Characters of an entry: what needs more has a page."""


def faults(changelog: str) -> list[str]:
    """Return what is wrong with the form of a CHANGELOG."""
    found: list[str] = []
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for section in sections:
        name, *lines = section.splitlines()
        for line in filter(None, lines):
            entry = re.fullmatch(rf"- \[({'|'.join(KINDS)})\] [A-Z][^:]*: .+", line)
            if entry is None or len(line) > MOST:
                found.append(f"{name}: {line}")
        kinds = [KINDS.index(each) for each in re.findall(r"^- \[([A-Z]+)\]", section, re.MULTILINE) if each in KINDS]
        if name != "Unreleased" and kinds != sorted(kinds):
            found.append(f"{name}: kinds in another order than {', '.join(KINDS)}")
    names = [section.partition("\n")[0] for section in sections]
    order = sorted(names[1:], key=lambda each: tuple(map(int, each.split("."))), reverse=True)
    if names != ["Unreleased", *order]:
        found.append(f"versions: {', '.join(names)}")
    return found


def numbers(page: str) -> list[str]:
    """Return the versions that head sections of a page."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(r"^## (\d{4}\.\d+)$", text, re.MULTILINE)


def test_it_uses_these_programs_and_no_other() -> None:
    assert {words[0] for words in COMMANDS} == {"make", "git", ".venv/bin/python"}


@pytest.mark.parametrize("words", [each for each in COMMANDS if each[0] == "make"], ids=" ".join)
def test_make_has_its_targets(words: list[str]) -> None:
    ended = subprocess.run(["make", "--dry-run", *words[1:]], cwd=ROOT, capture_output=True, text=True, check=False)
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
    assert numbers("CHANGELOG.md")[0] == VERSION


def test_the_changelog_is_by_version_with_a_line_for_each_entry() -> None:
    assert faults((ROOT / "CHANGELOG.md").read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("## Unreleased\n\n- [FEATURE] Web: new.\n- [CHANGE] Web: other.\n\n## 2026.11\n\n## 2026.2\n", 0),
        ("## Unreleased\n\n- New.\n", 1),
        ("## Unreleased\n\n- [FEATURE] Web: new\n  in two lines.\n", 1),
        (f"## Unreleased\n\n- [FEATURE] Web: {'long ' * 60}\n", 1),
        ("## Unreleased\n\n## 2026.11\n\n- [FEATURE] Web: new.\n- [CHANGE] Web: other.\n", 1),
        ("## Unreleased\n\n## 2026.2\n\n## 2026.11\n", 1),
    ],
)
def test_another_form_is_found(text: str, count: int) -> None:
    assert len(faults(text)) == count
