"""docs/home.md: its settings are read, its commands run, its table is that of the program."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from aggregator.electrical.site_loader import load_site
from aggregator.homeassistant.entities import CIRCUIT_ENTITIES, COST, GPU_ENTITIES, STATES, TRIP_STATES, Topics
from alerts.notifiers.ntfy import Ntfy
from kilowatch import settings
from kilowatch.__main__ import main
from tests.aggregator.test_homeassistant import home
from tests.brokers import Mosquitto, free_port
from tests.kit.waiting import until

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "home.md").read_text()
TOML, PLUG = re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)
COMMANDS = [line for block in re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
NTFY = "https://ntfy.sh/CHOOSE-A-LONG-RANDOM-NAME"
HERE = 'host = "homeassistant.local"'


def written(folder: Path, text: str = TOML) -> Path:
    """The settings of the page, with the password that they name."""
    password = folder / "mqtt.password"
    password.write_text("secret\n")
    password.chmod(0o600)
    path = folder / "kilowatch.toml"
    path.write_text(text)
    return path


def test_its_settings_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = written(tmp_path)
    loaded = settings.load(path, {})
    assert loaded.aggregator.homeassistant.enabled
    assert loaded.aggregator.homeassistant.broker is not None
    site = load_site("power", loaded.aggregator.power)
    assert site.layout is not None
    assert list(site.layout.circuits) == ["office"]
    result = CliRunner().invoke(main, ["config", "check"])
    assert (result.exit_code, result.output) == (0, "kilowatch.toml: ok\n")


def test_a_plug_takes_one_line_of_its_circuit(tmp_path: Path) -> None:
    section, line = PLUG.splitlines()
    assert section in TOML
    text = TOML.replace(section, f"{section}\n{line}")
    site = load_site("power", settings.load(written(tmp_path, text), {}).aggregator.power)
    assert {name for _, name in site.metered} == {"office"}


def test_a_phone_takes_three_lines(tmp_path: Path) -> None:
    section = TOML.partition("[alerts.channels.phone]")[2].partition("\n\n")[0].splitlines()
    lines = ["[alerts.channels.phone]", *filter(None, section)]
    assert len(lines) == 3
    (channel,) = settings.load(written(tmp_path, "\n".join(lines)), {}).alerts.notifiers().values()
    assert isinstance(channel, Ntfy)


def test_its_commands_are_those_of_the_program() -> None:
    ours = [shlex.split(line)[1:] for line in COMMANDS if shlex.split(line)[0].endswith("kilowatch")]
    assert ["notify", "test", "phone"] in ours
    ours += [shlex.split(found)[1:] for found in re.findall(r"`(kilowatch [^`]+)`", PAGE)]
    for words in ours:
        while words:  # the longest beginning that is a command
            result = CliRunner().invoke(main, [*words, "--help"])
            if result.exit_code == 0 and " ".join(w for w in words if w[0] != "-") in result.output:
                break
            words.pop()
        assert words


def test_its_table_has_every_entity() -> None:
    rows = dict(re.findall(r"^\| ([A-Z][\w ]+) \| ([\w, ]+) \|", PAGE, re.MULTILINE))
    for kind, entities in (("GPU", (*GPU_ENTITIES, COST)), ("circuit", (*CIRCUIT_ENTITIES, COST))):
        assert {name for name, of in rows.items() if kind in of} == {each.name for each in entities}
    assert all(f"`{state}`" in PAGE for state in TRIP_STATES)


def test_what_it_lets_home_assistant_read_is_what_is_published() -> None:
    topics = Topics("homeassistant", "lab", "all")
    assert topics.announced.startswith("homeassistant/")
    assert f"topic read {STATES}/#" in PAGE
    assert f"topic write {topics.birth}" in PAGE


@pytest.mark.systems
async def test_home_assistant_has_its_entities_by_the_settings(mosquitto: Mosquitto, tmp_path: Path) -> None:
    """A simulated desktop and Home Assistant's broker; tests/endtoend/test_first_minutes.py plays the whole page."""
    environment = {
        **os.environ,
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "STATE_DIRECTORY": "",
        "PYTHONPATH": str(ROOT),
    }
    address, program = f"127.0.0.1:{free_port()}", (sys.executable, "-m", "kilowatch")
    async with home(mosquitto.config) as seen:
        broker = f'host = "127.0.0.1", port = {mosquitto.port}'
        written(tmp_path, TOML.replace(NTFY, "http://127.0.0.1:1/nobody").replace(HERE, broker))
        running = await asyncio.create_subprocess_exec(
            *program,
            "run",
            "--no-ui",
            "--source",
            "simulated:desktop-4x5090",
            "--http",
            address,
            "--data",
            str(tmp_path / "state"),
            cwd=tmp_path,
            env=environment,
            stderr=asyncio.subprocess.DEVNULL,
        )
        try:
            await until(lambda: seen.value("kilowatch_default_circuit_office_power") not in {"unavailable", None})
            await until(lambda: sum("temperature" in topic for topic in seen.found) == 4)
        finally:
            running.terminate()
            await running.wait()


@pytest.mark.systems
async def test_a_start_without_settings_offers_the_first_step_of_the_page(tmp_path: Path) -> None:
    """Will the breaker hold? That needs no file; the command answers as it is printed."""
    running = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "kilowatch",
        "run",
        "--no-ui",
        "--source",
        "simulated:two-dgx-h100",
        "--for",
        "1s",
        "--http",
        "127.0.0.1:0",
        "--broker-port",
        str(free_port()),
        "--data",
        str(tmp_path / "data"),
        cwd=tmp_path,
        env={**os.environ, "XDG_STATE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    text, _ = await running.communicate()
    offered = re.search(r"Will a breaker hold\? kilowatch (plan .*) says so", text.decode())
    assert offered is not None, text.decode()
    assert CliRunner().invoke(main, shlex.split(offered[1])).stdout.startswith("No: ")
    assert f"kilowatch {offered[1]}" == COMMANDS[0]
