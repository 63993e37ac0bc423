"""`kilowatch token`, and commands that need none because their user runs the aggregator."""

from __future__ import annotations

import asyncio
import json
import stat
import urllib.error
import urllib.request
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from aggregator.access.tokens import hashed, read
from aggregator.http.config import HttpConfig
from kilowatch.__main__ import main
from telemetry.files import local_token
from tests.aggregator.test_http_alerts import SILENCE, hot
from tests.second_user import as_nobody, needs_root, open_folder


def kilowatch(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, list(arguments))


def token(folder: Path, *arguments: str) -> Result:
    """Run `kilowatch token` for the aggregator of a folder."""
    return kilowatch("token", *arguments, "--data", str(folder))


def test_a_token_is_made_listed_and_revoked_and_its_secret_is_nowhere(tmp_path: Path) -> None:
    made = token(tmp_path / "data", "add", "ann", "--scope", "ack", "--scope", "read")
    assert made.exit_code == 0, made.output
    secret = made.stdout.strip()
    path = tmp_path / "data" / "tokens.json"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert secret not in path.read_text()
    (found,) = read(path)
    assert (found.name, found.scopes, found.sha256) == ("ann", ("read", "ack"), hashed(secret))
    kept = tmp_path / "grafana.token"
    other = token(tmp_path / "data", "add", "grafana", "--for", "90d", "--out", str(kept))
    assert other.stdout == ""
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert kept.read_text().strip() not in other.output
    listed = token(tmp_path / "data", "list").stdout
    assert [line.split()[0] for line in listed.splitlines()] == ["NAME", "ann", "grafana"]
    assert "read, ack" in listed
    as_json = json.loads(token(tmp_path / "data", "list", "--json").stdout)
    assert [(each["name"], each["sha256"]) for each in as_json] == [("ann", None), ("grafana", None)]
    assert token(tmp_path / "data", "revoke", "ann").exit_code == 0
    assert [each.name for each in read(path)] == ["grafana"]


def test_a_token_of_a_user_is_named_as_such(tmp_path: Path) -> None:
    made = token(tmp_path, "add", "ada-laptop", "--user", "ada")
    assert made.exit_code == 0, made.output
    assert "ada-laptop: jobs of ada." in made.stderr
    (found,) = read(tmp_path / "tokens.json")
    assert (found.user, found.scopes) == ("ada", ())
    assert "jobs of ada" in token(tmp_path, "list").stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "ann (root)"), "is no name of a token"),
        (("add", "twice"), "there is a token of that name"),
        (("add", "bob", "--scope", "write"), "'write' is not one of"),
        (("add", "ada", "--user", ""), "'' is no user"),
        (("add", "ada", "--user", "a\nb"), "is no user"),
        (("add", "ada", "--user", "ada", "--scope", "read"), "a token of the user ada has none"),
        (("revoke", "twic"), "Did you mean 'twice'?"),
    ],
)
def test_a_mistake_is_one_line(tmp_path: Path, arguments: tuple[str, ...], words: str) -> None:
    assert token(tmp_path, "add", "twice").exit_code == 0
    wrong = token(tmp_path, *arguments)
    assert wrong.exit_code == 64
    assert words in wrong.stderr
    assert [each.name for each in read(tmp_path / "tokens.json")] == ["twice"]


def test_a_tokens_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    token(tmp_path, "add", "ann")
    (tmp_path / "tokens.json").chmod(0o666)
    wrong = token(tmp_path, "list")
    assert wrong.exit_code == 64
    assert "chmod 600" in wrong.stderr


async def test_the_user_of_the_aggregator_needs_no_flag_and_others_may_not_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both call `kilowatch silence` alike: one finds the token of the aggregator, the other finds none."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "ours"))
    config = HttpConfig(listen="127.0.0.1:0", state_folder=local_token.state_folders()[0])
    async with hot(tmp_path / "hot", config) as client:
        asked = ["silence", "node=n1", "--for", "1h", "--why", "fans"]
        asked += ["--http", f"127.0.0.1:{client.door.port}"]
        ours = await asyncio.to_thread(kilowatch, *asked)
        assert ours.exit_code == 0, ours.output
        listed = (await client.get("/api/v1/silences"))["silences"]
        assert [one["why"] for one in listed] == ["fans"]
        (file,) = (tmp_path / "ours" / "kilowatch" / "local-tokens").iterdir()
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "theirs"))
        monkeypatch.setattr(local_token, "SYSTEM", ())
        monkeypatch.setenv("HOME", str(tmp_path / "theirs"))
        theirs = await asyncio.to_thread(kilowatch, *asked)
        assert theirs.exit_code == 3
        assert "a token is needed" in theirs.stderr
        assert "--token-file FILE" in theirs.stderr
        assert len((await client.get("/api/v1/silences"))["silences"]) == 1
    assert not file.exists()


@pytest.mark.parametrize("arguments", [("web",), ("web", "127.0.0.1:9400", "--listen", "0.0.0.0:1")])
def test_web_was_removed_and_names_what_to_use(arguments: tuple[str, ...]) -> None:
    gone = kilowatch(*arguments)
    assert gone.exit_code == 64
    assert "kilowatch web was removed. Use `kilowatch top ADDRESS`" in gone.stderr
    assert "\n  web " not in kilowatch("--help").output


def test_top_wants_a_terminal() -> None:
    wrong = kilowatch("top", "127.0.0.1:1")
    assert wrong.exit_code == 64
    assert "this is no terminal. For pipes and logs there is `kilowatch status`" in wrong.stderr


@needs_root
async def test_another_user_of_the_machine_reads_no_token_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real one, whose file permissions are the kernel's."""
    with open_folder() as folder:
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "home"))
        config = HttpConfig(listen="127.0.0.1:0", state_folder=local_token.state_folders()[0])
        async with hot(folder / "hot", config) as client:
            url = client.door.url
            (file,) = (folder / "home" / "kilowatch" / "local-tokens").iterdir()
            assert local_token.find(url)

            def found() -> str | None:
                return local_token.find(url)

            def opened() -> str:
                return file.read_text()

            def changed() -> int:
                asked = urllib.request.Request(
                    f"{url}/api/v1/silences", json.dumps(SILENCE).encode(), {"Content-Type": "application/json"}
                )
                try:
                    return int(urllib.request.urlopen(asked, timeout=30).status)
                except urllib.error.HTTPError as error:
                    return error.code

            def read() -> int:
                return int(urllib.request.urlopen(f"{url}/api/v1/nodes", timeout=30).status)

            assert await asyncio.to_thread(as_nobody, found) is None
            assert await asyncio.to_thread(as_nobody, opened) == "PermissionError"
            assert await asyncio.to_thread(as_nobody, changed) == 401
            assert await asyncio.to_thread(as_nobody, read) == 200
            assert (await client.get("/api/v1/silences"))["silences"] == []
