"""The systemd units: their exposure, their syntax, and the services under their restrictions.

systemd itself does not run here. The services run with a notification socket of ours, confined by
`tests.confined` as their units say.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.aggregator.node import ScriptedNode
from tests.brokers import Mosquitto, free_port
from tests.collector.bus import reading
from tests.confined import settings_of
from tests.fake_nvml import FakeDriver
from tests.kit.waiting import until, within
from tests.notify_socket import NotifySocket

ROOT = Path(__file__).parents[2]
UNITS = ROOT / "deploy/systemd"
AGGREGATOR, COLLECTOR = "kilowatch-aggregator.service", "kilowatch-collector.service"
PROGRAM = "/opt/kilowatch/bin/kilowatch"

needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd is not installed: apt-get install systemd"
)
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can confine a process so")


def exposure(folder: Path, unit: str) -> float:
    """Exposure that `systemd-analyze security` finds, 0 to 10."""
    text = subprocess.run(
        ["systemd-analyze", "security", "--offline=true", "--no-pager", str(folder / unit)],
        check=True,
        capture_output=True,
        text=True,
    ).stdout
    found = re.search(r"Overall exposure level for \S+: ([\d.]+)", text)
    assert found is not None, text
    return float(found[1])


def dropped_in(folder: Path, *names: str) -> Path:
    """A copy of the units, the collector's with these drop-ins alone."""
    folder.mkdir(exist_ok=True)
    for unit in (AGGREGATOR, COLLECTOR):
        shutil.copy(UNITS / unit, folder)
    drops = folder / f"{COLLECTOR}.d"
    drops.mkdir()
    for name in names:
        shutil.copy(UNITS / f"{COLLECTOR}.d" / name, drops)
    return folder


@needs_systemd
@pytest.mark.parametrize(
    ("unit", "drop_ins", "most"),
    [
        (AGGREGATOR, (), 1.2),
        (COLLECTOR, (), 2.1),
        (COLLECTOR, ("kernel-log.conf",), 2.5),
        (COLLECTOR, ("nvidia-modprobe.conf",), 2.1),
        (COLLECTOR, ("wall-power.conf",), 2.2),
        (COLLECTOR, ("kernel-log.conf", "nvidia-modprobe.conf", "wall-power.conf"), 2.6),
    ],
)
def test_the_exposure_is_what_the_docs_say(tmp_path: Path, unit: str, drop_ins: tuple[str, ...], most: float) -> None:
    assert exposure(dropped_in(tmp_path / "units", *drop_ins), unit) <= most
    words = (ROOT / "docs/deploy.md").read_text()
    if len(drop_ins) < 2:
        name = drop_ins[0] if drop_ins else unit
        assert re.search(rf"`{re.escape(name)}` \|[^|]*\| {most} \|", words), f"{name}: {most}"


@needs_systemd
def test_every_drop_in_has_its_score() -> None:
    words = (ROOT / "docs/deploy.md").read_text()
    for path in (UNITS / f"{COLLECTOR}.d").iterdir():
        assert f"`{path.name}`" in words


@needs_systemd
@pytest.mark.parametrize("unit", [AGGREGATOR, COLLECTOR])
def test_systemd_finds_nothing_wrong_with_a_unit(tmp_path: Path, unit: str) -> None:
    folder = dropped_in(tmp_path / "units", *(path.name for path in (UNITS / f"{COLLECTOR}.d").iterdir()))
    path = folder / unit
    path.write_text(path.read_text().replace(PROGRAM, sys.executable))  # that is installed here
    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(path)],
        check=False, capture_output=True, text=True, env={**os.environ, "SYSTEMD_UNIT_PATH": f"{folder}:"},
    )  # fmt: skip
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_collector_is_never_killed_and_only_its_main_process_is_aborted() -> None:
    unit = settings_of(UNITS / COLLECTOR)
    assert unit["SendSIGKILL"] == ["no"]
    assert unit["KillMode"] == ["mixed"]
    assert unit["WatchdogSignal"] == ["SIGABRT"]
    assert unit["OOMPolicy"] == ["continue"]


@pytest.mark.parametrize("unit", [AGGREGATOR, COLLECTOR])
def test_a_unit_waits_for_the_notice_and_has_a_watchdog_and_limits(unit: str) -> None:
    found = settings_of(UNITS / unit)
    assert found["Type"] == ["notify"]
    for name in ("WatchdogSec", "MemoryMax", "TasksMax", "LoadCredential", "UMask"):
        assert found[name], name
    assert found["StateDirectoryMode"] == ["0700"]
    assert found["Restart"] == ["always"]


@pytest.fixture
def manager() -> Iterator[NotifySocket]:
    with NotifySocket(f"@kilowatch-units-{os.getpid()}") as found:
        yield found


@contextlib.asynccontextmanager
async def started(
    manager: NotifySocket, files: list[Path], state: Path, changes: dict[str, str], **environment: str
) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start the unit's command as the unit confines it; `changes`: paths that are others here."""
    [line] = settings_of(files[0])["ExecStart"]
    for old, new in changes.items():
        assert old in line
        line = line.replace(old, new)
    command = shlex.split(line.replace(PROGRAM, f"{sys.executable} -P -m kilowatch -v"))
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.confined", ":".join(map(str, files)), str(state), *command,
        cwd=ROOT, stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **environment, **manager.environment(watchdog=2.0), "PYTHONPATH": str(ROOT),
             "HOME": str(state), "PYTHONDONTWRITEBYTECODE": "1", "STATE_DIRECTORY": str(state)},
    )  # fmt: skip
    assert process.stderr is not None
    log = asyncio.create_task(process.stderr.read())
    try:
        yield process
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
        print((await log).decode())
        await process.wait()


async def ended(process: asyncio.subprocess.Process) -> int:
    process.send_signal(signal.SIGTERM)
    async with within():
        return await process.wait()


@needs_systemd
@needs_root
async def test_the_aggregator_works_under_its_unit(mosquitto: Mosquitto, tmp_path: Path, manager: NotifySocket) -> None:
    """Memory that is never executable, no /dev, no /proc but its own, few system calls: it receives,
    stores, answers queries, reloads and ends."""
    state, port = tmp_path / "state", free_port()
    state.mkdir()
    settings = tmp_path / "kilowatch.toml"
    settings.write_text(f'[broker]\nport = {mosquitto.port}\n[aggregator]\nlisten = "127.0.0.1:{port}"\n')
    changes = {"/etc/kilowatch/kilowatch.toml": str(settings), "/var/lib/kilowatch-data": str(state)}

    def fetch(path: str) -> str:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
            return str(answer.read().decode())

    async with (
        started(manager, [UNITS / AGGREGATOR], state, changes) as process,
        ScriptedNode(mosquitto.config, "a") as node,
    ):
        await until(lambda: manager.count("READY") or process.returncode is not None, seconds=120)
        assert process.returncode is None
        assert '"ok"' in await asyncio.to_thread(fetch, "/healthz")
        stored = "kilowatch_aggregator_frames_stored_total"
        seen = ""
        while not re.search(rf"^{stored}\S* [1-9]", seen, re.MULTILINE):
            await node.tick()  # what came before it subscribed is lost
            seen = await asyncio.to_thread(fetch, "/metrics")
            assert stored in seen
        await until(lambda: manager.count("WATCHDOG") >= 2)
        process.send_signal(signal.SIGHUP)
        await until(lambda: manager.count("RELOADING") == 1)
        await until(lambda: manager.count("READY") == 2)
        assert await ended(process) == 0
    assert manager.count("STOPPING") >= 1
    own = [path for path in state.rglob("*") if not path.name.startswith("dev-")]
    assert own
    assert [path.name for path in own if path.stat().st_mode & 0o077] == []


@needs_systemd
@needs_root
@pytest.mark.parametrize("drop_in", [None, "kernel-log.conf"])
async def test_the_collector_works_under_its_unit(
    mosquitto: Mosquitto, tmp_path: Path, manager: NotifySocket, drop_in: str | None
) -> None:
    """NVML by ctypes in its child process, the host's readings, the ring."""
    state = tmp_path / "state"
    state.mkdir()
    files = [UNITS / COLLECTOR, *([UNITS / f"{COLLECTOR}.d" / drop_in] if drop_in else [])]
    settings = tmp_path / "kilowatch.toml"
    settings.write_text(
        f"[broker]\nport = {mosquitto.port}\n"
        f'[collector]\nnode = "n1"\ninterval = 0.2\nsource = "nvml"\nstate_dir = "{state}/c"\n'
    )
    with FakeDriver(state, gpus=2) as fake:
        async with (
            reading(mosquitto.config) as reader,
            started(
                manager, files, state, {"/etc/kilowatch/kilowatch.toml": str(settings)}, **fake.environment
            ) as process,
        ):
            await until(lambda: manager.count("READY") or process.returncode is not None, seconds=120)
            assert process.returncode is None
            await until(lambda: len(reader.frames) > 5)
            await until(lambda: reader.inventories[-1].driver_state == "up")
            assert len(reader.inventories[-1].gpus) == 2
            await until(lambda: manager.count("WATCHDOG") >= 2)
            fake.set(0, state="hang")  # a sample of gaps is a sample
            fed = manager.count("WATCHDOG")
            await until(lambda: manager.count("WATCHDOG") >= fed + 3)
            fake.set(0, state="ok")
            assert await ended(process) == 0
    assert "2 GPUs" in manager.statuses()[-1]
    assert manager.all[-1] == {"STOPPING": "1"}


@needs_systemd
@needs_root
async def test_the_watchdogs_signal_ends_a_collector_and_not_the_driver_call_of_its_child(
    mosquitto: Mosquitto, tmp_path: Path, manager: NotifySocket, capsys: pytest.CaptureFixture[str]
) -> None:
    """As `KillMode=mixed` and `WatchdogSignal=SIGABRT` send it: to the main process alone."""
    state = tmp_path / "state"
    state.mkdir()
    settings = tmp_path / "kilowatch.toml"
    settings.write_text(
        f"[broker]\nport = {mosquitto.port}\n"
        f'[collector]\nnode = "n1"\ninterval = 0.2\nsource = "nvml"\nstate_dir = "{state}/c"\n'
    )
    name, _, value = settings_of(UNITS / COLLECTOR)["Environment"][0].partition("=")
    with FakeDriver(state, gpus=2) as fake:
        async with started(
            manager,
            [UNITS / COLLECTOR],
            state,
            {"/etc/kilowatch/kilowatch.toml": str(settings)},
            **fake.environment,
            **{name: value},
        ) as process:
            await until(lambda: manager.count("READY"), seconds=120)
            await until(lambda: any("2 GPUs" in each for each in manager.statuses()))
            fake.set(0, state="hang")
            await until(lambda: fake.hanging)  # more of them where a probe is made anew meanwhile
            process.send_signal(signal.SIGABRT)
            async with within():
                assert await process.wait() == -signal.SIGABRT
            assert fake.hanging  # the child goes on until its call returns
            fake.set(0, state="ok")
            await until(lambda: fake.hanging == 0)
    assert "Fatal Python error: Aborted" in capsys.readouterr().out
