"""Commands find the aggregator that their user runs here, on whatever port, and never guess between two."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from kilowatch.cli import aggregator
from kilowatch.cli.aggregator import HOME, home
from telemetry.files import local_token
from tests.brokers import free_port

Runs = Callable[[str, int], None]


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Runs]:
    """Let an aggregator of this user run at an address; nobody listens at the default one."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    monkeypatch.setattr(local_token, "SYSTEM", ())
    monkeypatch.setattr(aggregator, "is_free", lambda _host, _port: True)
    with ExitStack() as alive:
        yield lambda host, port: alive.enter_context(
            local_token.published(tmp_path / "kilowatch", [(host, port)], "secret")
        )


def test_where_none_runs_the_default_is_asked(runs: Runs) -> None:
    assert home() == HOME


@pytest.mark.parametrize(("host", "found"), [("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "127.0.0.1"), ("::1", "[::1]")])
def test_the_only_one_is_asked_and_said(runs: Runs, host: str, found: str, capsys: pytest.CaptureFixture[str]) -> None:
    runs(host, 17009)
    assert home() == f"{found}:17009"
    assert capsys.readouterr().err == f"Asking the aggregator that runs here, {found}:17009.\n"


def test_of_several_that_of_the_default_address_is_asked_and_else_none(runs: Runs) -> None:
    runs("127.0.0.1", 17009)
    runs("127.0.0.1", 17010)
    with pytest.raises(click.UsageError, match=r"127\.0\.0\.1:17009, 127\.0\.0\.1:17010\. Name one"):
        home()
    runs("127.0.0.1", 9400)
    assert home() == HOME


def test_a_service_at_the_default_address_is_not_passed_over(runs: Runs, monkeypatch: pytest.MonkeyPatch) -> None:
    runs("127.0.0.1", 17009)
    monkeypatch.setattr(aggregator, "is_free", lambda _host, _port: False)
    assert home() == HOME


@pytest.mark.parametrize("command", ["status", "alerts", "circuits", "jobs", "report --month 2026-11", "drift"])
def test_every_command_goes_there(runs: Runs, command: str) -> None:
    port = free_port()
    runs("127.0.0.1", port)
    result = CliRunner().invoke(main, command.split())
    assert result.exit_code == 3, "nobody listens there"
    assert f"Asking the aggregator that runs here, 127.0.0.1:{port}." in result.output
    assert CliRunner().invoke(main, [*command.split(), "--http", HOME]).output.count("Asking") == 0
