"""Files that a process goes on with: what can't be used is set aside by name, and nothing is deleted."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from telemetry.files import state_file
from telemetry.files.state_file import FileAside, find_aside, json_of, make_folder, read, set_aside
from tests.faults.damaged_files import as_a_user


class Kept(msgspec.Struct):
    """Content of a file."""

    version: int = 2
    names: list[str] = []


def test_a_file_is_read_and_one_that_is_not_there_is_nothing(tmp_path: Path) -> None:
    path = tmp_path / "kept.json"
    assert read(path, json_of(Kept), "") is None
    path.write_text('{"version": 1, "names": ["a"], "later": 7}')
    assert read(path, json_of(Kept), "") == Kept(version=1, names=["a"])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    ("content", "ending"),
    [
        (b"", "damaged"),
        (b'{"names": [', "damaged"),
        (b'{"names": "\xff"}', "damaged"),
        (b'{"names": [1]}', "damaged"),
        (b'{"names":' + b"[" * 100_000, "damaged"),
        (b'{"version": 3, "names": ["a"]}', "newer"),
        (b'{"version": 3, "names": {"a": "another form"}}', "newer"),
    ],
    ids=["empty", "torn", "no UTF-8", "another type", "deep", "newer", "newer and other"],
)
def test_what_can_not_be_used_is_kept_under_another_name(
    tmp_path: Path, content: bytes, ending: str, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "kept.json"
    for number in (1, 2):
        path.write_bytes(content)
        assert read(path, json_of(Kept), "Names are missing.") is None
        assert not path.exists()
        assert path.with_name(f"kept.json.{ending}-{number}").read_bytes() == content
    assert "was renamed to kept.json" in caplog.text
    assert "Names are missing." in caplog.text
    newer = ending == "newer"
    assert find_aside([tmp_path, tmp_path / "none"]) == [
        FileAside(tmp_path / f"kept.json.{ending}-{number}", "kept.json", newer) for number in (1, 2)
    ]


def test_whatever_a_decoder_raises_is_damage(tmp_path: Path) -> None:
    """A list of exceptions always lacks one."""
    path = tmp_path / "kept"
    path.write_bytes(b"x")

    def decode(_: bytes) -> str:
        raise ZeroDivisionError

    assert read(path, decode, "") is None
    assert path.with_name("kept.damaged-1").exists()


def test_another_ending_is_no_report(tmp_path: Path) -> None:
    (tmp_path / "copy").write_text("copy")
    assert set_aside(tmp_path / "copy", "why", "", name="log", ending="torn") == tmp_path / "log.torn-1"
    assert find_aside([tmp_path]) == []


def test_what_can_not_be_renamed_stays_and_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "kept.json").write_text("{")
    folder.chmod(0o500)
    with as_a_user():
        assert read(folder / "kept.json", json_of(Kept), "") is None
    folder.chmod(0o700)
    assert (folder / "kept.json").read_text() == "{"
    assert "nor renamed: Permission denied" in caplog.text


def test_a_folder_is_made_in_place_of_anything_else(tmp_path: Path) -> None:
    make_folder(tmp_path / "a/b", "")
    make_folder(tmp_path / "a/b", "")
    (tmp_path / "c").write_text("no folder")
    make_folder(tmp_path / "c", "")
    assert (tmp_path / "c").is_dir()
    assert (tmp_path / "c.damaged-1").read_text() == "no folder"
    assert state_file.json_of(list[int])(b"[1]") == [1]
