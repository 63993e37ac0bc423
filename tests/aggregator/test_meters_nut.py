"""UPS through the real upsd with its dummy driver, and through servers that misbehave."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from power.devices.wall_power import WallSource
from power.meters.nut import of_variables, words
from power.meters.sample import MeterSample
from telemetry.errors import WireError
from tests.aggregator.meter_hub import newer, reading, running, state
from tests.brokers import free_port, wait_for_port
from tests.kit.waiting import until

PLACES = ("/lib/nut", "/usr/lib/nut", "/usr/libexec/nut")
"""Where distributions put upsd and its drivers; /sbin/upsd is a script that asks for a boot mode."""
UPSD = shutil.which("upsd", path=os.pathsep.join(PLACES))
DUMMY = shutil.which("dummy-ups", path=os.pathsep.join(PLACES))


class Upsd:
    """Debian's upsd with two UPS of the dummy driver, whose variables stand in files."""

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        self.folder = folder
        self._children: list[subprocess.Popen[bytes]] = []
        folder.chmod(0o755)
        (folder / "state").mkdir()
        self.write(
            "desk",
            "ups.status: OL\nups.load: 45\nups.realpower.nominal: 900\n"
            "ups.power.nominal: 1000\nbattery.runtime: 1260\ninput.voltage: 121.5\n",
        )
        self.write(
            "rack",
            "ups.status: OB LB\nups.realpower: 2610.5\nups.power: 2700\nups.load: 87\n"
            "input.L1.current: 4.1\ninput.L2.current: 3.9\ninput.L3.current: 4.0\n",
        )
        names = "".join(
            f'[{name}]\ndriver = dummy-ups\nport = {folder}/{name}.dev\ndesc = "the {name}\'s \\"own\\""\n'
            for name in ("desk", "rack")
        )
        (folder / "ups.conf").write_text(names)
        (folder / "upsd.conf").write_text(f"LISTEN 127.0.0.1 {self.port}\nSTATEPATH {folder}/state\nMAXAGE 15\n")
        (folder / "upsd.users").write_text('[kilowatch]\npassword = "a \\"secret\\" word"\n')
        (folder / "password").write_text('a "secret" word\n')
        for name in ("ups.conf", "upsd.conf", "upsd.users"):
            (folder / name).chmod(0o640)

    def write(self, ups: str, text: str) -> None:
        (self.folder / f"{ups}.dev").write_text(text)

    def start(self) -> None:
        assert UPSD is not None
        assert DUMMY is not None
        env = {**os.environ, "NUT_CONFPATH": str(self.folder), "NUT_STATEPATH": str(self.folder / "state"),
               "NUT_ALTPIDPATH": str(self.folder / "state")}  # fmt: skip
        user = ["-u", "root"] if os.geteuid() == 0 else []
        for command in [[DUMMY, "-D", *user, "-a", "desk"], [DUMMY, "-D", *user, "-a", "rack"], [UPSD, "-D", *user]]:
            log = (self.folder / f"log{len(self._children)}").open("wb")
            self._children.append(subprocess.Popen(command, env=env, stdout=log, stderr=log))
            log.close()
        wait_for_port(self.port)

    def stop(self) -> None:
        for child in self._children:
            child.terminate()
        for child in self._children:
            with contextlib.suppress(subprocess.TimeoutExpired):
                child.wait(5)
            child.kill()
            child.wait()


@pytest.fixture
def upsd(tmp_path: Path) -> Iterator[Upsd]:
    """The real server. Missing locally it skips; in CI it fails, for CI must run it."""
    if UPSD is None or DUMMY is None:
        if os.environ.get("CI"):
            pytest.fail("nut-server is not installed, and CI must run it")
        pytest.skip("upsd is not installed: apt-get install nut-server")
    server = Upsd(tmp_path)
    try:
        server.start()
        yield server
    finally:
        server.stop()


def nut(port: int, more: str = "") -> str:
    """A server without a target: every UPS is one of that name."""
    return f'[meters.house]\ntype = "nut"\nport = {port}\nevery = 1\n{more}\n'


async def test_every_ups_of_the_real_server(upsd: Upsd) -> None:
    """Watts from load and rating where it has no wattmeter; status words; poles."""
    more = f'username = "kilowatch"\npassword_file = "{upsd.folder}/password"\nmap = {{ desk = "rig1", rack = "lab" }}'
    async with running(nut(upsd.port, more)) as hub:
        desk = await until(lambda: reading(hub, "desk"))
        assert (desk.kind, desk.watts, desk.volt_amps) == ("ups", 405, 450)
        assert (desk.load_ratio, desk.runtime_seconds, desk.volts) == (0.45, 1260, 121.5)
        assert desk.flags == ("OL",)
        rack = await until(lambda: reading(hub, "rack"))
        assert (rack.watts, rack.flags) == (2610.5, ("OB", "LB"))
        node, circuit = reading(hub, "rig1"), reading(hub, "lab")
        assert node is not None
        assert circuit is not None
        assert (node.kind, node.watts, node.source) == ("node", 405, WallSource.UPS)
        assert (circuit.kind, circuit.watts) == ("circuit", 2610.5)
        second = reading(hub, "lab", "L2")
        assert second is not None
        assert second.amps == 3.9


async def test_what_changes_at_the_ups_is_seen(upsd: Upsd) -> None:
    async with running(nut(upsd.port, 'ups = "desk"\non = "office"')) as hub:
        first = await until(lambda: reading(hub, "office"))
        assert first.watts == 405
        upsd.write("desk", "ups.status: OB\nups.load: 50\nups.realpower.nominal: 900\n")
        found = await until(lambda: newer(hub, "desk", first, "OB"))
        assert found.watts == 450


async def test_a_name_that_the_server_does_not_have(upsd: Upsd) -> None:
    async with running(nut(upsd.port, 'ups = "dusk"')) as hub:
        message = await until(lambda: state(hub, "house").message)
        assert message == "there is no UPS dusk; it has desk, rack"


async def test_which_ups_is_on_a_circuit_must_be_said(upsd: Upsd) -> None:
    async with running(nut(upsd.port, 'on = "office"')) as hub:
        assert "set ups" in await until(lambda: state(hub, "house").message)


Answer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def server(answer: Answer) -> AsyncIterator[int]:
    """A TCP server that answers as it likes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            await answer(reader, writer)
        writer.transport.abort()

    listening = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield listening.sockets[0].getsockname()[1]
    finally:
        listening.close()


def says(text: bytes, *, hang: bool = False) -> Answer:
    """Answer the first question so, then hang up or fall silent."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        writer.write(text)
        await writer.drain()
        if hang:
            await reader.read()

    return answer


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (says(b"", hang=True), "no answer within 0.3 s"),
        (says(b'BEGIN LIST UPS\nUPS desk "x"\n'), "hung up"),
        (says(b"BEGIN LIST UPS\nUPS de"), "hung up"),
        (says(b"HTTP/1.1 400 Bad Request\r\n\r\n"), "bad_answer"),
        (says(b"BEGIN LIST UPS\n" + b"x" * 100_000), "too_long"),
        (says(b"BEGIN LIST UPS\n" + b'UPS a "b"\n' * 6000), "too_long"),
        (says(b"BEGIN LIST UPS\nVAR a b c\n"), "bad_answer"),
        (says(b"ERR ACCESS-DENIED\n"), "upsd.users"),
        (says(b"\x00\xff\n"), "bad_answer"),
    ],
    ids=["hangs", "half a list", "half a line", "no upsd", "no end", "endless", "other rows", "denied", "binary"],
)
async def test_a_server_that_misbehaves_is_bounded_and_told_of(answer: Answer, message: str) -> None:
    """And another meter goes on beside it."""
    async with server(answer) as bad, server(good) as well:
        meters = nut(bad, "timeout = 0.3") + nut(well).replace("house", "other")
        async with running(meters) as hub:
            await until(lambda: message in state(hub, "house").message)
            assert (await until(lambda: reading(hub, "ok"))).watts == 100
            assert state(hub, "house").readings == 0


async def good(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """A server as it should be, of one UPS beside one whose driver is gone."""
    rows = {
        "LIST UPS": b'BEGIN LIST UPS\nUPS ok "fine"\nUPS gone "lost"\nEND LIST UPS\n',
        "LIST VAR ok": b'BEGIN LIST VAR ok\nVAR ok ups.realpower "100"\nEND LIST VAR ok\n',
        "LIST VAR gone": b"ERR DRIVER-NOT-CONNECTED\n",
    }
    while line := await reader.readline():
        writer.write(rows[line.decode().strip()])
        await writer.drain()


async def test_a_ups_whose_driver_is_gone_is_no_fault_of_the_others() -> None:
    async with server(good) as port, running(nut(port)) as hub:
        assert (await until(lambda: reading(hub, "ok"))).watts == 100
        assert "UPS gone: upsd reports DRIVER-NOT-CONNECTED" in await until(lambda: state(hub, "house").message)
        assert reading(hub, "gone") is None


async def test_nobody_listens() -> None:
    async with running(nut(free_port())) as hub:
        await until(lambda: state(hub, "house").errors >= 1)
        assert reading(hub, "house") is None


def test_words_of_a_line() -> None:
    assert words(r'VAR desk ups.model "the \"best\" \\ one" tail') == ["VAR", "desk", "ups.model", 'the "best" \\ one', "tail"]  # fmt: skip


def test_what_a_ups_does_not_tell_is_nothing() -> None:
    """Load alone is no power; a rating in VA makes VA, not W."""
    assert of_variables("u", {"ups.load": "45"}) == [MeterSample(channel="u", load_ratio=0.45)]
    assert of_variables("u", {"ups.status": "WAIT", "ups.load": "0"}) == []
    assert of_variables("u", {"ups.load": "50", "ups.power.nominal": "1000"})[0].watts is None
    assert of_variables("u", {"ups.load": "50", "ups.power.nominal": "1000"})[0].volt_amps == 500
    with pytest.raises(WireError, match=r"ups\.load is 'many'"):
        of_variables("u", {"ups.load": "many"})
