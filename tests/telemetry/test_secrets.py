"""Secrets in files: one reader for tokens and passwords of every client."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from telemetry.errors import ConfigError
from telemetry.files.secrets import read_secret, read_token, secret_path
from telemetry.wire.mqtt import BrokerConfig
from tests.second_user import NOBODY, as_nobody, needs_root, open_folder


def written(folder: Path, content: bytes) -> Path:
    """Return a file with some bytes."""
    path = folder / "secret"
    path.write_bytes(content)
    return path


def test_blanks_at_both_ends_are_no_part_of_a_secret(tmp_path: Path) -> None:
    assert read_secret("a.password_file", written(tmp_path, b" two words \n")) == "two words"
    assert read_token("a.token_file", written(tmp_path, b"abc\n")) == "abc"


@pytest.mark.parametrize(
    ("content", "problem"), [(b"", "is empty"), (b" \n", "is empty"), (b"one\ntwo\n", "does not hold a password")]
)
def test_a_file_without_one_line_is_an_error_with_its_place(tmp_path: Path, content: bytes, problem: str) -> None:
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


def test_a_secret_that_systemd_loads_is_named_by_its_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`LoadCredential=password:/etc/...` in the unit, and the path in the settings."""
    named = Path("$CREDENTIALS_DIRECTORY/secret")
    written(tmp_path, b"from systemd\n")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert read_secret("a.password_file", named) == "from systemd"
    assert secret_path("a.key_file", Path("~/k")) == Path.home() / "k"
    closed = Path("/etc/kilowatch/secret")  # of root alone: the service has systemd's copy
    assert read_secret("a.password_file", closed) == "from systemd"
    assert secret_path("a.key_file", Path("/etc/kilowatch/other")) == Path("/etc/kilowatch/other")
    monkeypatch.delenv("CREDENTIALS_DIRECTORY")
    assert secret_path("a.password_file", closed) == closed
    with pytest.raises(ConfigError, match=r"a\.password_file: .*has given this process no creden"):
        read_secret("a.password_file", named)


@pytest.mark.parametrize("name", ["ca_file", "cert_file", "key_file"])
def test_a_tls_file_that_can_not_be_read_is_named(tmp_path: Path, name: str) -> None:
    """Python's own error names no file."""
    found = {each: written(tmp_path, b"") for each in ("ca_file", "cert_file", "key_file")}
    broker = BrokerConfig(tls=True, **{**found, name: tmp_path / "nothing"})
    with pytest.raises(ConfigError, match=rf"broker\.{name}: .*nothing can't be read: No such file"):
        broker.context()


def test_the_key_of_a_broker_may_be_a_credential(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broker = BrokerConfig(tls=True, key_file=Path("$CREDENTIALS_DIRECTORY/node.key"))
    with pytest.raises(ConfigError, match=r"broker\.key_file: .*LoadCredential="):
        broker.context()
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    (tmp_path / "node.key").write_bytes(b"")
    broker.context()


@needs_root
def test_a_key_of_root_alone_is_found_among_the_credentials_of_the_unit() -> None:
    """The settings name /etc/kilowatch/node.key; the service is another user."""
    with open_folder() as folder:
        key, loaded = folder / "node.key", folder / "credentials"
        key.write_text("secret")
        key.chmod(0o600)
        loaded.mkdir()
        shutil.copy(key, loaded)
        for path in (loaded, loaded / key.name):
            os.chown(path, NOBODY, NOBODY)

        def read(credentials: bool) -> str:
            if credentials:
                os.environ["CREDENTIALS_DIRECTORY"] = str(loaded)
            return read_secret("broker.password_file", key)

        assert as_nobody(lambda: read(credentials=True)) == "secret"
        assert as_nobody(lambda: read(credentials=False)) == "ConfigError"
