"""The wheel in an empty environment runs every command that the README shows."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import termios
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from telemetry.runtime.release import release
from tests.brokers import free_port
from tests.kit.waiting import wait_until, within
from tests.packaging.built import ENVIRONMENT, ROOT, wheel

pytestmark = [pytest.mark.systems, pytest.mark.timeout(900)]

PROGRAM = ".venv/bin/kilowatch"
SHOWN = [
    re.sub(r"\s+#.*", "", line.strip())
    for line in (ROOT / "README.md").read_text().splitlines()
    if line.startswith("    ")
]
"""Commands of the README."""
OF_A_CHECKOUT = [command for command in SHOWN if command.split()[0] == "make"]
"""What builds or runs a checkout; a wheel has none."""
OF_A_PHONE = [command for command in SHOWN if command.split()[1] in {"notify", "run"}]
"""Commands for which there are settings too, or a machine of its own: tests/endtoend/test_first_minutes.py."""
BESIDE = [
    command for command in SHOWN if "ADDRESS" in command or command.split()[1] in {"forget", "record", "tap", "verify"}
]
"""Those for which `run` or `demo` runs."""
ALONE = [command for command in SHOWN if command not in {*OF_A_CHECKOUT, *OF_A_PHONE, *BESIDE}]
STAY = {"demo --scenario two-dgx-h100": (b"LIVE", b"q"), "top": (b"LIVE", b"q"), "tap": (b"frame", b"\x03"),
        "record": (b"", b"\x03")}  # fmt: skip
"""Those that go on until they are told to end: what they show, and the key."""
SMI = """
==============NVSMI LOG==============

Timestamp                                 : Tue Nov 24 05:00:00 2026
Driver Version                            : 550.54.15
CUDA Version                              : 12.4

Attached GPUs                             : 1
GPU 00000000:01:00.0
    Product Name                          : NVIDIA A40
    GPU UUID                              : GPU-6f0c1d8a-4b1e-4b60-9d1c-0a9d3f0a1b2c
    GPU Power Readings
        Power Draw                        : 61.50 W
"""


@dataclass(frozen=True)
class Installed:
    """An environment with the wheel and what it needs, and a folder to work in."""

    program: Path
    folder: Path

    @property
    def environment(self) -> dict[str, str]:
        return {**ENVIRONMENT, "XDG_STATE_HOME": str(self.folder / "state"), "TERM": "xterm-256color"}

    def words(self, command: str, **names: str) -> str:
        """A command with this program, and names in place of the words in capitals."""
        for name, value in names.items():
            command = re.sub(rf"\b{name}\b", value, command)
        command = command.replace(PROGRAM, str(self.program))
        return command if "|" in command else f"exec {command}"

    async def typed(self, command: str, **names: str) -> tuple[int, str]:
        """Type a command on a terminal; return its exit code and all that it wrote."""
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
        os.set_blocking(ours, False)
        process = await asyncio.create_subprocess_exec(
            "sh",
            "-c",
            self.words(command, **names),
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            cwd=self.folder,
            env=self.environment,
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(theirs)
        seen, key = bytearray(), stays(command)
        try:
            async with within(180):
                while process.returncode is None or not self._read(ours, seen):
                    self._read(ours, seen)
                    if key is not None and key[0] in seen and (key[0] or self._recorded(names)):
                        os.write(ours, key[1])
                        key = None
                    await asyncio.sleep(0.02)
        finally:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
            os.close(ours)
        return process.returncode or 0, seen.decode(errors="replace")

    @staticmethod
    def _read(terminal: int, seen: bytearray) -> bool:
        """Take what was written; return whether there was nothing more."""
        try:
            found = os.read(terminal, 65536)
        except BlockingIOError:
            return True
        except OSError:  # the other end is closed
            return True
        seen += found
        return not found

    def _recorded(self, names: dict[str, str]) -> bool:
        file = self.folder / names.get("FILE", "")
        return file.is_file() and file.stat().st_size > 10_000


def stays(command: str) -> tuple[bytes, bytes] | None:
    """What a command shows and the key that ends it; None for one that ends by itself."""
    words = command.partition(f"{PROGRAM} ")[2]
    return next(
        (key for name, key in STAY.items() if words == name or (words.startswith(f"{name} ") and " " not in name)), None
    )


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    subprocess.run([sys.executable, "-m", "venv", str(folder / "venv")], check=True)
    python = folder / "venv/bin/python"
    subprocess.run(
        [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check",
         "-c", str(ROOT / "constraints.txt"), str(wheel(tmp_path_factory))],
        check=True, env=ENVIRONMENT, cwd=folder, capture_output=True,
    )  # fmt: skip
    (folder / "work").mkdir()
    (folder / "work/smi.txt").write_text(SMI)
    shutil.copy(ROOT / "docs/sites/home.toml", folder / "work")
    return Installed(folder / "venv/bin/kilowatch", folder / "work")


def _reports(address: str) -> bool:
    """Whether all GPUs of the demo report: until then `status` can't say how the cluster is."""
    try:
        with urllib.request.urlopen(f"http://{address}/api/v1/status", timeout=30) as answer:
            models = json.load(answer)["summary"]["models"]
            return sum(each["gpus"]["reporting"] for each in models) == 16
    except OSError:
        return False


@pytest.fixture(scope="module")
def demo(installed: Installed) -> Iterator[str]:
    """The address of a demo that runs, as its own first lines have it; its settings lead to its bus."""
    log = installed.folder / "demo.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [str(installed.program), "demo", "--scenario", "two-dgx-h100", "--no-ui", "--faults", "none",
             "--data", str(installed.folder / "demo"), "--http", f"127.0.0.1:{free_port()}"],
            env=installed.environment, cwd=installed.folder, stdout=output, stderr=output,
        )  # fmt: skip
    try:
        while not (found := re.search(r"http://(\S+).*\nMQTT (\S+)", log.read_text(), re.DOTALL)):
            assert process.poll() is None, log.read_text()
        wait_until(lambda: _reports(found[1]), log.read_text)
        (installed.folder / "kilowatch.toml").write_text(
            f"[broker]\nport = {found[2].rpartition(':')[2]}\n"
            f'[aggregator]\nlisten = "{found[1]}"\ndata_dir = "{installed.folder}/demo/data"\n'
        )
        yield found[1]
    finally:
        process.terminate()
        process.wait(60)
        (installed.folder / "kilowatch.toml").unlink(missing_ok=True)


def test_it_says_which_commit_it_is_of(installed: Installed) -> None:
    done = subprocess.run(
        [str(installed.program), "--version"], env=installed.environment, check=True, capture_output=True, text=True
    )
    assert done.stdout == f"kilowatch, version {release()}\n"


def test_the_readme_is_read_whole() -> None:
    assert len(ALONE) == 11
    assert len(BESIDE) == 10
    assert len(set(OF_A_PHONE) - set(OF_A_CHECKOUT)) == 2
    assert {command.split()[1] for command in OF_A_CHECKOUT} == {"run", "stack", "test", "setup"}
    assert {word for command in [*ALONE, *BESIDE] for word in re.findall(r"\b[A-Z]{4,}\b", command)} == {
        "FILE",
        "ADDRESS",
        "NODE",
    }
    assert sum(stays(command) is not None for command in SHOWN) == len(STAY)


@pytest.mark.parametrize("command", ALONE)
async def test_a_command_runs(installed: Installed, command: str) -> None:
    file = "home.toml" if "--config" in command else "smi.txt"
    code, wrote = await installed.typed(command, FILE=file)
    assert "Traceback" not in wrote
    # Findings of this machine are findings; a kernel log without a driver can't be judged.
    assert code in ({0, 1, 2, 3} if "dmesg" in command else {0, 1, 2}), wrote
    if any(word in command for word in ("demo", "xid", "plan", "rules test", "smi")):
        assert code == 0 or "plan" in command, wrote
    assert wrote.strip()


@pytest.mark.parametrize("command", BESIDE)
async def test_a_command_runs_beside_a_demo(installed: Installed, demo: str, command: str) -> None:
    node = "dgx-01" if command.startswith("curl") else "dgx-09"
    if command.startswith("curl"):
        command = command.replace("curl", "curl -sf --retry 20 --retry-delay 1 --retry-all-errors")
    code, wrote = await installed.typed(command, ADDRESS=demo, FILE="bus.kwrec", NODE=node)
    assert "Traceback" not in wrote
    assert code in {0, 1, 2}, wrote
    assert wrote.strip() or "verify" in command or "record" in command
    if "record" in command:
        assert (installed.folder / "bus.kwrec").stat().st_size > 10_000
