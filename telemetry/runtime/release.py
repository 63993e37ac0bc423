"""The release of kilowatch, and the commit that it was built from."""

from __future__ import annotations

from functools import cache
from pathlib import Path

STAMP = "commit.txt"
"""File beside this one in what was built: the commit. A checkout has none, for it goes on from commit to commit."""
UNKNOWN = "unknown"
_HERE = Path(__file__).parent
_DIGITS = 8
_NUMBER = 40
"""Hexadecimal digits of a commit."""


@cache
def release() -> str:
    """Return the version with the commit, as `2026.1+g1df438df`, so that two builds of one release differ; without
    it where that is not known, and `unknown` when run from loose files."""
    # Imported on demand: it takes as long as all the rest of a small command.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    try:
        number = version("kilowatch")
    except PackageNotFoundError:
        return UNKNOWN
    commit = commit_of(_HERE, _HERE.parents[1])
    return f"{number}+g{commit[:_DIGITS]}" if commit else number


def commit_of(folder: Path, checkout: Path) -> str:
    """Return the commit that was stamped into `folder`, else that of a git checkout; "" where there is neither."""
    try:
        return _commit((folder / STAMP).read_text())
    except OSError:
        pass
    try:
        git = checkout / ".git"
        if git.is_file():  # a worktree: the file names its folder, and that the common one
            git = checkout / git.read_text().removeprefix("gitdir:").strip()
        head = (git / "HEAD").read_text().strip()
        if not head.startswith("ref: "):
            return _commit(head)
        common = git / "commondir"
        return _of_branch(git / common.read_text().strip() if common.exists() else git, head.removeprefix("ref: "))
    except (OSError, ValueError):
        return ""


def _of_branch(git: Path, name: str) -> str:
    """Return the commit of a branch, which has a file, or a line among those that were packed."""
    if (git / name).is_file():
        return _commit((git / name).read_text())
    lines = (git / "packed-refs").read_text().splitlines()
    return next((_commit(line.split()[0]) for line in lines if line.endswith(f" {name}")), "")


def _commit(text: str) -> str:
    text = text.strip()
    return text if len(text) == _NUMBER and set(text) <= set("0123456789abcdef") else ""
