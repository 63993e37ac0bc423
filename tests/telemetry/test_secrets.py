"""Secrets in files: one reader for tokens and passwords of every client."""

from __future__ import annotations

from pathlib import Path

import pytest

from telemetry.errors import ConfigError
from telemetry.secrets import read_secret, read_token


def written(folder: Path, content: bytes) -> Path:
    """Return a file with some bytes."""
    path = folder / "secret"
    path.write_bytes(content)
    return path


def test_blanks_at_both_ends_are_no_part_of_a_secret(tmp_path: Path) -> None:
    assert read_secret("a.password_file", written(tmp_path, b" two words \n")) == "two words"
    assert read_token("a.token_file", written(tmp_path, b"abc\n")) == "abc"


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "is empty"), (b" \n", "is empty"), (b"one\ntwo\n", "does not hold a password")],
)
def test_a_file_without_one_line_is_an_error_with_its_place(
    tmp_path: Path, content: bytes, problem: str
) -> None:
    with pytest.raises(ConfigError, match=rf"a\.password_file: .* {problem}"):
        read_secret("a.password_file", written(tmp_path, content), "password")


@pytest.mark.parametrize("content", [b"two words", "tökén".encode(), b"a\tb"])
def test_a_token_is_one_word_that_fits_a_header(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(ConfigError, match=r"a\.token_file: .* does not hold a token"):
        read_token("a.token_file", written(tmp_path, content))


def test_some_secrets_have_several_lines(tmp_path: Path) -> None:
    assert read_secret("a", written(tmp_path, b"one\ntwo\n"), multiline=True) == "one\ntwo"


@pytest.mark.parametrize("content", [None, b"\xff\xfe"])
def test_a_file_that_can_not_be_read_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "none" if content is None else written(tmp_path, content)
    with pytest.raises(ConfigError, match="can't be read"):
        read_secret("a", path)
