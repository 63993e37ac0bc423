"""docs/deploy.md: its commands are those of the program, and those on names run as typed, in their order."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import sys
from pathlib import Path

import click
import msgspec
import pytest

from kilowatch.__main__ import main
from tests.aggregator.test_service import config, running
from tests.brokers import Broker
from tests.kit.waiting import until

PAGE = (Path(__file__).parents[2] / "docs" / "deploy.md").read_text()
COMMANDS = [
    line.strip().removeprefix("/opt/kilowatch/bin/")
    for line in PAGE.splitlines()
    if re.match(r" {4}(/opt/kilowatch/bin/)?kilowatch ", line)
]
"""The commands in its blocks."""
ON_NAMES = [each for each in COMMANDS if each.split()[1] in {"pki", "nodes", "token"}]
"""Those that change who belongs to the cluster."""


@pytest.mark.parametrize("typed", COMMANDS)
def test_every_command_has_the_form_that_the_program_takes(typed: str) -> None:
    command: click.Command = main
    arguments = shlex.split(typed)[1:]
    context = click.Context(main)
    while isinstance(command, click.Group):
        found = command.get_command(context, arguments[0])
        assert found is not None, typed
        command, arguments = found, arguments[1:]
    with command.make_context("kilowatch", arguments):
        pass


def test_the_page_says_what_people_did_not_find() -> None:
    assert {"expect", "list", "rename", "retire"} <= {
        each.split()[2] for each in ON_NAMES if each.split()[1] == "nodes"
    }
    assert any("token add prometheus --scope read" in each for each in ON_NAMES)


@pytest.mark.systems
@pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")
async def test_the_commands_on_names_run_as_typed(
    mosquitto: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = tmp_path / "state"
    monkeypatch.setenv("XDG_STATE_HOME", str(state))
    monkeypatch.setenv("STATE_DIRECTORY", "")
    settings = msgspec.structs.replace(config(mosquitto.config, tmp_path / "data"), listen="127.0.0.1:0")
    async with running(settings) as aggregator:
        await until(lambda: aggregator.http_address is not None)
        await until(lambda: aggregator.stats.bus_connected)
        host, port = aggregator.http_address or ("", 0)
        (tmp_path / "kilowatch.toml").write_text(
            f'[aggregator]\nlisten = "{host}:{port}"\ndata_dir = "{tmp_path}/data"\n'
        )
        for typed in ON_NAMES:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "kilowatch",
                *shlex.split(typed)[1:],
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.STDOUT,
                cwd=tmp_path,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )
            text, _ = await process.communicate()
            assert process.returncode == 0, f"{typed}\n{text.decode()}"
        rows = aggregator.register.reply(aggregator.fleet, aggregator.now(), 0).nodes
        assert {row.node: str(row.state) for row in rows} == {
            "dgx01": "missing", "dgx02": "retired", "dgx03": "renamed", "dgx13": "missing",
        }  # fmt: skip
    listed = (tmp_path / "kilowatch-pki" / "broker" / "access.acl").read_text()
    users = set(re.findall(r"^user (\S+)$", listed, re.MULTILINE))
    assert {"dgx01", "dgx13", "kilowatch-aggregator"} <= users
    assert not {"dgx02", "dgx03"} & users
