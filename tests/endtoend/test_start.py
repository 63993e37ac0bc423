"""The first seconds of `demo` and `run` on a terminal, and what is left when they are ended in the midst of them."""

from __future__ import annotations

import os
import re
import secrets
import signal
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import free_port
from tests.endtoend.tmux import TMUX, Terminal
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed: apt-get install tmux")
MARK = "KILOWATCH_TEST_START"
NODES = 80
"""More than one process simulates."""


class Started:
    """A command on a terminal, and all processes that it has started, by a variable that all inherit."""

    def __init__(self, folder: Path, *words: str) -> None:
        self.port = free_port()
        self._mark = secrets.token_hex(8)
        command = [sys.executable, "-m", "kilowatch", *words, "--http", f"127.0.0.1:{self.port}"]
        environment = {MARK: self._mark, "TERM": "xterm-256color", "XDG_STATE_HOME": str(folder), "TMPDIR": str(folder)}
        self.terminal = Terminal(folder, command, (130, 30), environment)

    @property
    def processes(self) -> dict[int, str]:
        """The command lines of all of them, by process id; not those of the shell around them."""
        wanted = f"{MARK}={self._mark}".encode()
        found = {}
        for each in Path("/proc").iterdir():
            if not each.name.isdecimal():
                continue
            try:
                if wanted not in (each / "environ").read_bytes().split(b"\0"):
                    continue
                words = (each / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if words and not words.startswith("sh "):
                found[int(each.name)] = words
        return found

    def of(self, *words: str) -> list[int]:
        """The processes whose command line has one of the words."""
        return [pid for pid, line in self.processes.items() if any(word in line for word in words)]

    @property
    def first(self) -> int:
        """The process that shows the dashboard."""
        return next(pid for pid, line in self.processes.items() if " kilowatch " in line and "--until-eof" not in line)

    def answers(self) -> bool:
        """Whether the pages are there."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/healthz", timeout=5):
                return True
        except urllib.error.HTTPError:
            return True
        except OSError:
            return False

    def all_gone(self) -> bool:
        """Whether none of its processes is left, and its port is free."""
        return not self.processes and not self.answers()

    def end(self) -> None:
        """End it all."""
        for pid in self.processes:
            os.kill(pid, signal.SIGKILL)
        self.terminal.close()


Start = Callable[..., Started]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a command on a terminal of its own; all of it is ended at last."""
    started: list[Started] = []

    def begin(*words: str) -> Started:
        started.append(Started(tmp_path, *words))
        return started[-1]

    yield begin
    for each in started:
        each.end()


FLEET = ("demo", "--scenario", "fleet", "--nodes", str(NODES))


def reporting(screen: str) -> int | None:
    """How many nodes the first line says that report; None where it does not say."""
    found = re.match(r" *(\d+) of \d+ nodes report", screen)
    return int(found[1]) if found else None


def test_a_start_is_on_the_screen_before_anything_answers(start: Start) -> None:
    """First what it waits for and the address, then how many nodes report, then the address alone."""
    demo = start(*FLEET)
    address = f"http://127.0.0.1:{demo.port}"
    seen: list[str] = []

    def looked(screen: str) -> bool:
        seen.append(screen)
        return True

    demo.terminal.wait("starting", address, holds=lambda screen: looked(screen) and "Quit" in screen)
    assert any("Quit" in each and "LIVE" not in each for each in seen)
    demo.terminal.wait(address, holds=lambda screen: looked(screen) and f"{NODES}/{NODES} nodes reporting" in screen)
    assert any(reporting(each) is not None for each in seen), "progress was shown"
    screen = demo.terminal.wait("LIVE", holds=lambda text: reporting(text) is None)
    assert address in screen.splitlines()[0]
    demo.terminal.press("q")
    wait_until(lambda: demo.terminal.ended is not None, "the end")
    assert demo.terminal.ended == 0
    assert "0 lost" in demo.terminal.screen
    assert demo.all_gone()


def test_a_dashboard_with_a_given_time_ends_by_itself(start: Start) -> None:
    demo = start("demo", "--for", "3s")
    wait_until(lambda: demo.terminal.ended is not None, "the end")
    assert demo.terminal.ended == 0
    assert "frames stored, 0 lost" in demo.terminal.screen
    assert demo.all_gone()


MOMENTS: dict[str, Callable[[Started], object]] = {
    "its child was started": lambda demo: demo.of("--until-eof"),
    "the broker was started": lambda demo: len(demo.processes) > 2,
    "the pages answer": Started.answers,
    "the nodes are simulated": lambda demo: demo.of("stack.simulators"),
    "some nodes report": lambda demo: reporting(demo.terminal.screen) or "nodes reporting" in demo.terminal.screen,
    "all nodes report": lambda demo: f"{NODES}/{NODES} nodes" in demo.terminal.screen,
}


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP], ids=["killed", "hung up"])
def test_nothing_outlives_the_dashboard(start: Start, moment: str, number: signal.Signals) -> None:
    """However it ends, and whenever: broker, aggregator and simulated nodes end too."""
    demo = start(*FLEET)
    wait_until(lambda: MOMENTS[moment](demo), moment, every=0.02)
    os.kill(demo.first, number)
    wait_until(demo.all_gone, lambda: f"the end of {demo.processes}")


def test_nothing_outlives_the_aggregator_and_the_dashboard_says_so(start: Start) -> None:
    demo = start(*FLEET)
    demo.terminal.wait("LIVE", f"{NODES}/{NODES} nodes")
    for pid in demo.of("--until-eof"):
        os.kill(pid, signal.SIGKILL)
    wait_until(demo.all_gone, lambda: f"the end of {demo.processes}")
    wait_until(lambda: demo.terminal.ended is not None, "the end of the command")
    assert demo.terminal.ended == 3
    assert "it ended with code -9" in demo.terminal.screen


def test_an_interrupt_during_the_start_ends_it_all(start: Start) -> None:
    """Ctrl-C, which the terminal sends to all of its foreground processes until the dashboard reads it as a key."""
    demo = start(*FLEET)
    wait_until(lambda: demo.of("--until-eof"), "its child", every=0.02)

    def ended() -> bool:
        demo.terminal.press("C-c")
        return demo.all_gone()

    wait_until(ended, lambda: f"the end of {demo.processes}", every=0.2)
    assert "Traceback" not in demo.terminal.screen


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=["terminal", "systemd"])
def test_without_a_dashboard_a_signal_ends_it_all(start: Start, number: signal.Signals) -> None:
    demo = start(*FLEET, "--no-ui")
    wait_until(lambda: demo.of("stack.simulators"), "the nodes are simulated", every=0.02)
    os.kill(demo.first, number)
    wait_until(demo.all_gone, lambda: f"the end of {demo.processes}")
    assert "Traceback" not in demo.terminal.screen


def test_simulated_nodes_that_are_killed_are_offline_and_told_once(start: Start) -> None:
    demo = start(*FLEET)
    demo.terminal.wait("LIVE", f"{NODES}/{NODES} nodes")
    simulators = demo.of("stack.simulators")
    assert len(simulators) == min(2, len(os.sched_getaffinity(0))) or len(simulators) > 2
    os.kill(simulators[0], signal.SIGKILL)
    demo.terminal.wait("LIVE", holds=lambda screen: f"{NODES}/{NODES} nodes" not in screen)
    demo.terminal.press("q")
    wait_until(lambda: demo.terminal.ended is not None, "the end")
    wait_until(demo.all_gone, lambda: f"the end of {demo.processes}")
