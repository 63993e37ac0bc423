"""The token that programs of one user find by themselves, and nobody else."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from telemetry.files import local_token, private_file

ADDRESS = ("127.0.0.1", 9400)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A state folder of this user, and no other."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(local_token, "SYSTEM", ())
    return tmp_path / "kilowatch"


@pytest.mark.parametrize("url", ["http://127.0.0.1:9400", "http://localhost:9400/", "https://127.0.0.1:9400"])
def test_it_is_found_by_the_address_while_the_aggregator_lives(folder: Path, url: str) -> None:
    with local_token.published(folder, [ADDRESS], "secret"):
        assert local_token.find(url) == "secret"
        assert local_token.find("http://127.0.0.1:9401") is None
        assert local_token.find("http://[bad") is None
    assert local_token.find(url) is None
    assert not list((folder / "local-tokens").iterdir())


@pytest.mark.parametrize(("bound", "url"), [("0.0.0.0", "http://127.0.0.1:9400"), ("::", "http://[::1]:9400")])
def test_a_listener_on_all_addresses_is_found_on_loopback(folder: Path, bound: str, url: str) -> None:
    with local_token.published(folder, [(bound, 9400)], "secret"):
        assert local_token.find(url) == "secret"


def test_a_token_of_an_aggregator_that_was_killed_is_shown_to_nobody(folder: Path) -> None:
    """Another user may listen at its address by then."""
    code = (
        "import sys, time; from pathlib import Path; from telemetry.files import local_token\n"
        f"with local_token.published(Path({str(folder)!r}), [{ADDRESS!r}], 'secret'):\n"
        "    print('up', flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        assert local_token.find("http://127.0.0.1:9400") == "secret"
        process.kill()
        process.wait(30)
    assert len(list((folder / "local-tokens").iterdir())) == 1
    assert local_token.find("http://127.0.0.1:9400") is None
    with local_token.published(folder, [ADDRESS], "next"):
        assert local_token.find("http://127.0.0.1:9400") == "next"


def test_a_file_that_others_can_read_or_have_placed_is_not_believed(folder: Path) -> None:
    with local_token.published(folder, [ADDRESS], "secret"):
        (file,) = (folder / "local-tokens").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        file.chmod(0o644)
        assert local_token.find("http://127.0.0.1:9400") is None
        file.chmod(0o600)
        moved = folder / "elsewhere"
        file.rename(moved)
        file.symlink_to(moved)
        assert local_token.find("http://127.0.0.1:9400") is None


def test_a_later_aggregator_at_the_same_address_keeps_its_own_file(folder: Path) -> None:
    first = local_token.published(folder, [ADDRESS], "first")
    first.__enter__()
    with local_token.published(folder, [ADDRESS], "second"):
        first.__exit__(None, None, None)
        assert local_token.find("http://127.0.0.1:9400") == "second"


def test_a_private_file_is_whole_and_of_its_owner_alone_whatever_the_umask_is(tmp_path: Path) -> None:
    path = tmp_path / "a" / "b" / "secret"
    before = os.umask(0)
    try:
        private_file.make_folder(path.parent)
        for text in ("first", "second"):
            os.close(private_file.write(path, text))
    finally:
        os.umask(before)
    assert path.read_text() == "second"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == ["secret"]
