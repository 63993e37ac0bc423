"""Tests of what is built from a few files, and takes minutes: the gate leaves them out where none of these changed.

A night's run takes all (`make test-systems` too). What a package carries is held by the test of the wheel, always.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

BUILT = (
    "tests/kilowatch/test_debian_package.py",
    "tests/packaging/test_image.py",
    "tests/packaging/test_role.py",
    "tests/packaging/test_rpm.py",
)
SOURCES = ("deploy/", "tests/packaging/", "constraints.txt", *BUILT)
"""Files, and folders with a slash."""
PROJECT = "pyproject.toml"
"""File of which `packaged` alone makes packages: linters and contracts have their settings in it too."""

Git = Callable[..., str]
"""Takes the arguments of git and returns what it prints; nothing where it fails."""


def began(git: Git, base: str) -> str:
    """Return the commit at which the change began: the merge base; where that is HEAD itself, as in a clone of what
    is offered, the last one that is a day older. Empty where git knows neither."""
    head, merged = git("rev-parse", "HEAD"), git("merge-base", "HEAD", base)
    if merged and merged != head:
        return merged
    at = git("show", "-s", "--format=%ct", "HEAD")
    return git("rev-list", "-1", f"--before={int(at) - 86_400}", "HEAD") if at else ""


def left_out(git: Git, base: str) -> tuple[str, ...]:
    """Return the files of tests that need not run for this change; none where it is not known what changed."""
    begin = began(git, base)
    if not begin:
        return ()
    changed = git("diff", "--name-only", begin).splitlines()
    changed += git("ls-files", "--others", "--exclude-standard").splitlines()
    again = any(name.startswith(SOURCES) for name in changed) or (
        PROJECT in changed and packaged(git("show", f"{begin}:{PROJECT}")) != packaged(_now())
    )
    return () if again else BUILT


def packaged(text: str) -> dict[str, Any]:
    """Return what packages are made by of a pyproject.toml."""
    settings = tomllib.loads(text)
    tools = settings.get("tool", {})
    return {
        "build-system": settings.get("build-system"),
        "project": settings.get("project"),
        "setuptools": tools.get("setuptools"),
    }


def _now() -> str:
    path = Path(PROJECT)
    return path.read_text(encoding="utf-8") if path.is_file() else ""
