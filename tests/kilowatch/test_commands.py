"""The command line, as people type it: what it prints, and what it says when they err."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterable
from importlib import metadata
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result
from packaging.requirements import Requirement

from collector.config import CollectorConfig
from collector.service import run_collector
from kilowatch.__main__ import COMMANDS, main
from telemetry.runtime.release import release
from tests.brokers import Broker, free_port
from tests.conftest import ROOT
from tests.kit.packages import PACKAGES

SOURCE = "simulated:two-dgx-h100/dgx-01"


def kilowatch(*arguments: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(main, list(arguments))


def test_help_lists_every_command() -> None:
    """A newcomer starts here."""
    text = kilowatch("--help").output
    for name in ("run", "demo", "collect", "aggregate", "top", "who", "tap", "record", "config", "doctor"):
        assert f"\n  {name} " in text
        assert kilowatch(name, "-h").exit_code == 0


def test_help_needs_no_command_and_says_what_each_says_of_itself() -> None:
    """Importing all of them took ten times as long as the help."""
    context = click.Context(main)
    for name, (_, words) in COMMANDS.items():
        command = main.get_command(context, name)
        assert command is not None
        assert command.get_short_help_str(1000) == words
    script = "import sys; from kilowatch.__main__ import main; main(['--help'], standalone_mode=False); print([m for m in sys.modules if m.startswith('kilowatch.cli')])"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    assert done.stdout.endswith("[]\n")


def test_the_version_is_printed() -> None:
    """And nothing else is done."""
    result = kilowatch("--version", "doctor")
    assert (result.exit_code, result.output) == (0, f"kilowatch, version {release()}\n")


@pytest.mark.parametrize("command", ["top", "status"])
def test_a_bad_address_is_one_line_with_a_remedy(command: str) -> None:
    """Not a traceback, and no screen."""
    result = kilowatch(command, "ftp://host")
    assert result.exit_code != 0
    assert "Write http://HOST:9400." in result.output
    assert "Traceback" not in result.output


def test_one_reading_is_json_on_stdout() -> None:
    """Base units by catalogue name, gaps by reason, inventory."""
    result = kilowatch("collect", "--source", SOURCE, "--once", "--json")
    assert result.exit_code == 0
    document = json.loads(result.stdout)
    assert set(document) >= {"inventory", "gpus", "node"}
    assert len(document["gpus"]) == 8
    gpu = document["gpus"][0]
    assert gpu["readings"]["gpu_power_watts"] > 0
    assert gpu["gaps"]["gpu_temperature_shutdown_celsius"] == "not_supported"
    assert set(gpu["readings"]).isdisjoint(gpu["gaps"])


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("collect", "--json"), "belongs to --once"),
        (("collect", "--once", "--source", "nvlm"), "there is no source 'nvlm'"),
        (("collect", "--once", "--source", "nvidia-smi:none.xml"), "there is no file"),
        (("collect", "--once", "--source", "simulated:two-dgx-h10"), "two-dgx-h100"),
        (("collect", "--once", "--source", "recording:none"), "there is no file"),
        (("config", "check", "--config", "none.toml"), "there is no such file"),
        (("demo", "--faults", "xid79@dgx-01"), "xid79@dgx-01"),
        (("demo", "--for", "soon"), "no duration"),
        (("tap", "--broker", "nowhere"), "no address"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_64(arguments: tuple[str, ...], expected: str) -> None:
    """No traceback; the cure stands in it."""
    result = kilowatch(*arguments)
    assert result.exit_code == 64
    assert expected in result.stderr
    assert result.exception is None or isinstance(result.exception, SystemExit)


def test_an_unreachable_broker_is_an_error_with_its_address() -> None:
    """Exit code 3: nothing is wrong with the settings."""
    port = free_port()
    result = kilowatch("tap", "--broker", f"127.0.0.1:{port}")
    assert result.exit_code == 3
    assert f"127.0.0.1:{port}" in result.stderr


def test_a_port_in_use_is_an_error(broker: Broker) -> None:
    """With what to do."""
    result = kilowatch("demo", "--no-ui", "--http", f"127.0.0.1:{broker.port}")
    assert result.exit_code == 64
    assert "Choose another port" in result.stderr


def test_config_show_prints_settings_that_load_again(tmp_path: Path) -> None:
    """The output is a settings file."""
    shown = kilowatch("config", "show")
    assert shown.exit_code == 0
    path = tmp_path / "k.toml"
    path.write_text(shown.stdout)
    again = kilowatch("config", "show", "--config", str(path))
    assert again.stdout == shown.stdout
    assert kilowatch("config", "check", "--config", str(path)).output.strip() == f"{path}: ok"
    assert json.loads(kilowatch("config", "show", "--json").stdout)["collector"]["interval"] == 1.0


def test_doctor_prints_faults_and_remedies(tmp_path: Path, broker: Broker) -> None:
    """Here: no driver; everything else works."""
    path = tmp_path / "k.toml"
    path.write_text(
        f"[broker]\nport = {broker.port}\n[collector]\nstate_dir = {str(tmp_path)!r}\n"
        f"[aggregator]\ndata_dir = {str(tmp_path / 'd')!r}\nlisten = '127.0.0.1:{free_port()}'\n"
    )
    result = kilowatch("doctor", "--config", str(path), "--json")
    findings = {finding["subject"]: finding for finding in json.loads(result.stdout)}
    assert findings["broker"]["level"] == "ok"
    assert findings["disk"]["level"] == "ok"
    assert findings["port"]["level"] == "ok"
    if findings["driver"]["level"] == "fault":  # as on every machine without a GPU
        assert result.exit_code == 1
        assert findings["driver"]["cure"]
    broker.kill()
    result = kilowatch("doctor", "--config", str(path))
    assert result.exit_code == 1
    assert "mosquitto" in result.output


async def test_tap_and_record_read_what_a_collector_publishes(tmp_path: Path, broker: Broker) -> None:
    """The bus for people, and a recording that plays again."""
    stop = asyncio.Event()
    config = CollectorConfig(node="dgx-01", source=SOURCE, broker=broker.config, interval=0.2, state_dir=tmp_path / "s")
    collecting = asyncio.create_task(run_collector(config, stop=stop))
    address = f"127.0.0.1:{broker.port}"
    file = tmp_path / "bus.kw"
    tapped, as_json, recorded = await asyncio.gather(
        asyncio.to_thread(kilowatch_process, "tap", "--broker", address, "--count", "12"),
        asyncio.to_thread(kilowatch_process, "tap", "--broker", address, "--kind", "frame", "--count", "2", "--json"),
        asyncio.to_thread(kilowatch_process, "record", str(file), "--broker", address, "--for", "4s"),
    )
    stop.set()
    await collecting
    assert "dgx-01  inventory  8 GPUs, 144 links" in tapped
    assert "gpu_fast 8" in tapped
    frame = json.loads(as_json.splitlines()[-1])["content"]
    assert frame["rows"][0]["readings"]["gpu_power_watts"] > 0
    assert "messages in" in recorded
    played = kilowatch_process("collect", "--source", f"recording:{file}", "--node", "x", "--once", "--json")
    assert len(json.loads(played)["gpus"]) == 8


def kilowatch_process(*arguments: str) -> str:
    """Run a command in a process of its own: it has an event loop and signals to itself."""
    done = subprocess.run(
        [sys.executable, "-m", "kilowatch", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout + done.stderr if "record" in arguments else done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("[broker]\nport = 99999\n", "broker.port: 99999 is no port"),
        ("[broker]\nkeepalive = 0\n", "broker.keepalive"),
        ('[broker]\ntls = true\nca_file = "/none.crt"\n', "broker.ca_file: /none.crt can't be read: No such file"),
        ('[broker]\npassword_file = "/none"\n', "/none can't be read"),
        ('[aggregator]\nlisten = "0.0.0.0:9400"\n', "token"),
        ('[aggregator]\nrules = ["/none.toml"]\n', "/none.toml"),
        ('[aggregator]\ndcgm_counters = "/none.csv"\n', "/none.csv can't be read: No such file"),
        ('[collector]\ndcgm_counters = "/none.csv"\n', "collector.dcgm_counters: /none.csv can't be read"),
        ('[collector]\nsource = "nvidia-smi:/none.xml"\n', "there is no file"),
    ],
)
def test_config_check_refuses_what_a_service_would_refuse(tmp_path: Path, text: str, expected: str) -> None:
    """Files that are not there, ports that are none, doors without a lock."""
    path = tmp_path / "k.toml"
    path.write_text(text)
    result = kilowatch("config", "check", "--config", str(path))
    assert result.exit_code == 64
    assert expected in result.stderr


def test_an_unknown_command_is_an_error_with_the_closest_one() -> None:
    """As for every other word."""
    result = kilowatch("colect")
    assert result.exit_code == 64
    assert "Did you mean 'collect'?" in result.stderr


COLLECTORS = {"aiomqtt", "click", "msgspec", "nvidia-ml-py", "paho-mqtt", "typing_extensions"}
"""Packages that a collector alone imports (docs/packages.md)."""
BUILDERS = {"setuptools"}
"""Modules that every Python with setuptools imports."""


_OWN_FILES = sum(path.stat().st_size for name in PACKAGES for path in (ROOT / name).rglob("*.py"))
"""Bytes of kilowatch itself."""


def _installed(names: Iterable[str]) -> int:
    """Return the bytes of packages as installed, without what Python compiles of them."""
    files = [file for name in names for file in metadata.files(name) or ()]
    found = (Path(str(file.locate())) for file in files)
    return sum(path.stat().st_size for path in found if path.suffix != ".pyc" and path.is_file())


def test_a_collector_loads_nothing_that_it_does_not_use() -> None:
    """NumPy alone is 45 MB, on every node of a cluster."""
    code = (
        "import json, sys; from importlib.metadata import packages_distributions\n"
        "from kilowatch.__main__ import main\n"
        "try: main(['collect', '--help'])\n"
        "except SystemExit: pass\n"
        "import collector.service, collector.sources, pynvml\n"
        "names = {name.partition('.')[0] for name in sys.modules}\n"
        "found = packages_distributions()\n"
        "print(json.dumps(sorted({one for name in names for one in found.get(name, ())})))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    used = json.loads(done.stdout.splitlines()[-1])
    assert set(used) - {"kilowatch"} - BUILDERS == COLLECTORS
    page = " ".join((ROOT / "docs" / "packages.md").read_text().split())
    assert ", ".join(f"`{name}`" for name in sorted(COLLECTORS)) in page
    assert 1e6 < _installed(COLLECTORS) + _OWN_FILES < 60e6


def test_what_is_installed_to_run_is_light() -> None:
    """The goal is 250 MB, without the tools of development."""
    names = {"kilowatch"}
    for name in (left := list(names)):
        for line in metadata.requires(name) or ():
            needed = Requirement(line)
            if needed.name not in names and (needed.marker is None or needed.marker.evaluate({"extra": ""})):
                names.add(needed.name)
                left.append(needed.name)
    assert {"numpy", "duckdb", "textual", "aiohttp"} < names
    assert 50e6 < _installed(names - {"kilowatch"}) + _OWN_FILES < 250e6


async def test_a_command_that_a_node_refuses_says_what_to_change(tmp_path: Path, broker: Broker) -> None:
    """And `inventory`, which every collector obeys, says how its driver is."""
    config = CollectorConfig(node="dgx-01", source=SOURCE, broker=broker.config, state_dir=tmp_path, kernel_log=None)
    address = f"{broker.host}:{broker.port}"
    stop = asyncio.Event()
    running = asyncio.create_task(run_collector(config, stop=stop))
    try:
        for kind, code, text in (
            ("inventory", 0, "dgx-01: the driver is up\n"),
            ("release", 3, "release is not obeyed: it is not in collector.accept_commands"),
        ):
            command = ("command", "dgx-01", kind, "--broker", address)
            result = await asyncio.to_thread(kilowatch, *command)
            assert (result.exit_code, text in result.output) == (code, True), result.output
    finally:
        stop.set()
        await running
