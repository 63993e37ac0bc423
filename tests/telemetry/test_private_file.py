"""Folders and files of one user: made so, and closed where an older release left them open."""

from __future__ import annotations

import logging
import os
import stat
from pathlib import Path

import pytest

from telemetry.files import private_file
from tests.second_user import NOBODY, needs_root


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_new_folder_is_for_its_owner_alone_with_its_parents(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        private_file.claim_folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [mode(tmp_path / each) for each in ("a", "a/b", "a/b/c")] == [0o700] * 3


def test_an_open_folder_is_closed_once_and_the_log_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    folder.chmod(0o755)
    private_file.claim_folder(folder)
    private_file.claim_folder(folder)
    assert mode(folder) == 0o700
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert "could enter it (mode 0755); now 0700" in record.getMessage()


@pytest.mark.parametrize("path", ["/srv", "/var/lib", "/opt/data", "~"])
def test_a_folder_that_holds_more_than_ours_is_not_closed_to_its_users(path: str) -> None:
    """`state_dir = "/var/lib"`, as root, must not end the machine."""
    assert private_file._is_shared(Path(path).expanduser())


@pytest.mark.parametrize("path", ["/var/lib/kilowatch", "/data/kilowatch-2", "/srv/gpu/state"])
def test_a_folder_of_ours_is_known_by_name_or_depth(path: str) -> None:
    assert not private_file._is_shared(Path(path))


@needs_root
def test_a_folder_of_another_user_and_one_for_all_stay_as_they_are(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    theirs, common = tmp_path / "theirs", tmp_path / "common"
    for path, rights in ((theirs, 0o755), (common, 0o1777)):
        path.mkdir()
        path.chmod(rights)
    os.chown(theirs, NOBODY, NOBODY)
    for path in (theirs, common):
        private_file.claim_folder(path)
    assert (mode(theirs), mode(common)) == (0o755, 0o1777)
    assert caplog.text.count("name a folder of kilowatch's own") == 2


def test_a_file_is_written_whole_where_the_system_takes_a_part_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is nearly full takes a part of a write, and fails at the next one only."""
    write, sizes = os.write, list[int]()

    def short(handle: int, body: memoryview) -> int:
        sizes.append(len(body))
        return write(handle, body[:7])

    monkeypatch.setattr(os, "write", short)
    private_file.write(tmp_path / "token", "twenty-three characters")
    assert (tmp_path / "token").read_text() == "twenty-three characters"
    assert sizes == [23, 16, 9, 2]
