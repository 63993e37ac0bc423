"""A second user of the machine can read nothing of a running kilowatch, and do nothing at its broker."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import stat
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import aiomqtt
import pytest
from msgspec.structs import replace

from bench import wire
from kilowatch.stack.broker import EmbeddedBroker
from telemetry.errors import BusError
from telemetry.files import local_token
from telemetry.wire.mqtt import EMBEDDED_USER, BrokerConfig, MqttClient, client_id, connect
from telemetry.wire.topics import Topic, topic
from tests.brokers import Embedded, free_port
from tests.kit.waiting import end_of_patience
from tests.second_user import as_nobody, needs_root, open_folder

ROOT = Path(__file__).parents[2]


@contextlib.contextmanager
def running(folder: Path, broker_port: int, http_port: int) -> Iterator[Path]:
    """Run `kilowatch run` with the usual umask, and yield the log once it has stored frames."""
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [
                sys.executable, "-m", "kilowatch", "run", "--no-ui", "--source",
                "simulated:desktop-4x5090", "--data", str(folder / "state"),
                "--http", f"127.0.0.1:{http_port}", "--broker-port", str(broker_port),
            ],
            stdout=output, stderr=output, cwd=folder, umask=0o022,
            env={**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder / "home")},
        )  # fmt: skip
    try:
        deadline = end_of_patience()
        while frames_stored(http_port) < 2:
            assert process.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.1)
        yield log
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


def frames_stored(port: int) -> float:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=5) as page:
            lines = page.read().decode().splitlines()
    except OSError:
        return 0.0
    name = "kilowatch_aggregator_frames_stored_total"
    return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(name))


def modes(folder: Path) -> dict[str, int]:
    """Return the rights of others on everything in a folder; sockets and links aside."""
    found = {}
    for path in (folder, *folder.rglob("*")):
        with contextlib.suppress(FileNotFoundError):  # a file that was replaced meanwhile
            its = path.lstat()
            if stat.S_ISREG(its.st_mode) or stat.S_ISDIR(its.st_mode):
                found[str(path)] = its.st_mode & 0o077
    return found


@needs_root
def test_a_second_user_reads_and_commands_nothing() -> None:
    """`kilowatch run` with folders of an older release: 0755 with a file that all may read."""
    with open_folder() as folder:
        old = folder / "state" / "data"
        old.mkdir(parents=True)
        (old / "old.parquet").write_text("rows")
        (old / "old.parquet").chmod(0o644)  # whatever umask a command before has set here
        for path in (folder / "state", old):
            path.chmod(0o755)
        (folder / "home").mkdir()
        broker, http = free_port(), free_port()
        assert as_nobody((old / "old.parquet").read_text) == "rows"  # as it was
        with running(folder, broker, http) as log:
            for part in (folder / "state", folder / "home"):
                found = modes(part)
                found.pop(str(folder / "home")) if part.name == "home" else None
                found.pop(str(old / "old.parquet"), None)
                assert len(found) > 2
                assert not [path for path, others in found.items() if others], found
            text = log.read_text()
            assert f"{folder / 'state'}: other users of this machine could enter it (mode 0755)" in text
            assert as_nobody((old / "old.parquet").read_text) == "PermissionError"
            assert as_nobody(lambda: sorted((folder / "state").iterdir())) == "PermissionError"

            def password() -> str | None:
                os.environ["XDG_STATE_HOME"] = str(folder / "home")
                return local_token.find_at("127.0.0.1", broker, local_token.BROKERS)

            assert as_nobody(password) is None
            assert as_nobody(lambda: wire.connect("127.0.0.1", broker, "n")) == "ConnectionRefusedError"


def test_the_embedded_broker_listens_on_loopback_alone(embedded_broker: Embedded) -> None:
    places = [
        line.split()[1]
        for file in ("tcp", "tcp6")
        for line in Path("/proc/net", file).read_text().splitlines()[1:]
        if line.split()[3] == "0A" and int(line.split()[1].rpartition(":")[2], 16) == embedded_broker.port
    ]
    assert places == [f"0100007F:{embedded_broker.port:04X}"]


@pytest.mark.parametrize(
    ("username", "password"), [(None, None), (EMBEDDED_USER, ""), (EMBEDDED_USER, "guess"), ("root", None), ("", "")]
)
async def test_the_embedded_broker_refuses_a_client_without_its_password(
    embedded_broker: Embedded, username: str | None, password: str | None
) -> None:
    client = MqttClient(embedded_broker.host, embedded_broker.port, username=username, password=password)
    with pytest.raises(aiomqtt.MqttError):
        async with client:
            pass


async def test_the_password_of_the_plugs_reaches_no_collector_and_no_command(
    embedded_broker: Embedded, tmp_path: Path
) -> None:
    """Their broker is another one, from which nothing comes to that of the collectors, and whose user is not let in there."""
    meters = EmbeddedBroker("127.0.0.1", free_port(), tmp_path / "meters", own=False)
    meters.start()
    try:
        elsewhere = replace(meters.config, port=embedded_broker.port)
        with pytest.raises(BusError, match="closed the connection"):
            async with connect(elsewhere, client_id("thief")):
                pass
        async with (
            connect(embedded_broker.config, client_id("collector")) as collector,
            connect(meters.config, client_id("thief")) as thief,
        ):
            name = topic("default", "n1", Topic.COMMAND)
            await collector.subscribe(name, qos=1)
            await thief.publish(name, b"forged", qos=1)
            await collector.publish(name, b"own", qos=1)
            assert (await anext(aiter(collector.messages))).payload == b"own"
    finally:
        meters.stop()


async def test_programs_of_the_same_user_need_no_flag(
    embedded_broker: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = BrokerConfig(host=embedded_broker.host, port=embedded_broker.port)
    async with connect(broker, client_id("test")):
        pass
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another home"))
    monkeypatch.setattr(local_token, "SYSTEM", ())
    with pytest.raises(BusError, match="does it ask for a password"):
        async with connect(broker, client_id("test")):
            pass


def test_a_password_holds_for_one_start_and_is_not_sent_to_who_comes_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "home"))
    port = free_port()
    passwords = set()
    for _ in range(2):
        broker = EmbeddedBroker("127.0.0.1", port, tmp_path / "state")
        broker.start()
        found = BrokerConfig(port=port).login()
        assert found == (EMBEDDED_USER, broker.config.password())
        passwords.add(found[1])
        broker.kill()
        assert BrokerConfig(port=port).login() == (None, None)
    assert len(passwords) == 2
    assert all(password is not None and len(password) > 40 for password in passwords)


def test_a_broker_whose_port_is_taken_leaves_the_files_of_the_running_one(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        broker = EmbeddedBroker("127.0.0.1", server.getsockname()[1], tmp_path)
        with pytest.raises(BusError, match="the port is taken"):
            broker.start()
    assert list(tmp_path.iterdir()) == []
