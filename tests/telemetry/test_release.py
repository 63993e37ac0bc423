"""Two builds of one release are told apart."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from telemetry.runtime.release import STAMP, commit_of, release

ROOT = Path(__file__).parents[2]


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "init.defaultBranch=main")
    done = subprocess.run(["git", *identity, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "first")
    return folder


def test_a_checkout_is_of_the_commit_that_is_checked_out(checkout: Path) -> None:
    assert commit_of(checkout, checkout) == git(checkout, "rev-parse", "HEAD")
    git(checkout, "commit", "-q", "--allow-empty", "-m", "second")
    second = git(checkout, "rev-parse", "HEAD")
    assert commit_of(checkout, checkout) == second
    git(checkout, "pack-refs", "--all")
    assert commit_of(checkout, checkout) == second
    git(checkout, "worktree", "add", "-q", "-b", "side/branch", str(checkout / "tree"))
    git(checkout / "tree", "commit", "-q", "--allow-empty", "-m", "third")
    assert commit_of(checkout, checkout / "tree") == git(checkout / "tree", "rev-parse", "HEAD")
    git(checkout, "checkout", "-q", "--detach", "HEAD~1")
    assert commit_of(checkout, checkout) == git(checkout, "rev-parse", "HEAD") != second


def test_what_was_built_is_of_the_commit_that_was_stamped(checkout: Path, tmp_path: Path) -> None:
    stamped = "0123456789abcdef0123456789abcdef01234567"
    (tmp_path / STAMP).write_text(f"{stamped}\n")
    assert commit_of(tmp_path, checkout) == stamped
    assert commit_of(tmp_path, tmp_path) == stamped


@pytest.mark.parametrize("text", ["", "ref: refs/heads/none", "ref: ../../etc/passwd", "not a commit", "\x00"])
def test_no_commit_is_none(text: str, tmp_path: Path) -> None:
    assert commit_of(tmp_path, tmp_path) == ""
    (tmp_path / ".git").mkdir()
    assert commit_of(tmp_path, tmp_path) == ""
    (tmp_path / ".git/HEAD").write_text(text)
    assert commit_of(tmp_path, tmp_path) == ""


def test_the_release_names_it() -> None:
    commit = commit_of(ROOT / "telemetry/runtime", ROOT)
    assert commit
    assert release().endswith(f"+g{commit[:8]}")
