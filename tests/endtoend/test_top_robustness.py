"""The dashboard on a real terminal while things go wrong: its aggregator dies and comes back, the window
changes its size, the clocks jump, and names are an attack."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.brokers import free_port
from tests.endtoend.clock import SteppedClock
from tests.endtoend.tmux import TMUX, Terminal
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed: apt-get install tmux")
ROOT = Path(__file__).parents[2]


class Stage:
    """An aggregator with eight nodes and their faults, in a process of its own that a test may kill."""

    def __init__(self) -> None:
        self.http = f"127.0.0.1:{free_port()}"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, or begin again at the same address."""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "bench.live_fleet", "--nodes", "8", "--http", self.http],
            stdout=subprocess.DEVNULL,
            cwd=ROOT,
        )

    def kill(self) -> None:
        """With no chance to say goodbye."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait(30)


@pytest.fixture
def stage() -> Iterator[Stage]:
    """It runs."""
    running = Stage()
    running.start()
    yield running
    running.kill()


def top(stage: Stage, folder: Path, size: tuple[int, int], **environment: str) -> Terminal:
    """The dashboard on it."""
    command = [sys.executable, "-m", "kilowatch", "top", stage.http]
    return Terminal(folder, command, size, {"TERM": "xterm-256color", "PYTHONPATH": str(ROOT), **environment})


def sound(terminal: Terminal, screen: str, size: tuple[int, int]) -> None:
    """No traceback, no garbage, no more lines than there are."""
    assert terminal.ended is None
    assert "Traceback" not in screen
    assert "\ufffd" not in screen
    assert len(screen.rstrip("\n").splitlines()) <= size[1]
    assert screen.isprintable() or not {c for c in screen if not c.isprintable()} - {"\n"}


def test_the_aggregator_is_killed_and_comes_back(tmp_path: Path, stage: Stage) -> None:
    terminal = top(stage, tmp_path, (120, 40))
    try:
        terminal.wait("● LIVE", "Power chain", "PDU-002A")
        for keys in ((), ("3",), ("5", "Enter"), ("4", "Enter")):
            terminal.press(*keys)
            terminal.wait("● LIVE")
            stage.kill()
            screen = terminal.wait("DISCONNECTED", "last data", "trying again in")
            sound(terminal, screen, (120, 40))
            stage.start()
            terminal.press("R")
            screen = terminal.wait("● LIVE", holds=lambda text: "DISCONNECTED" not in text)
            sound(terminal, screen, (120, 40))
            terminal.press("1")
        terminal.press("q")
        wait_until(lambda: terminal.ended == 0, "the end")
    finally:
        terminal.close()


def test_the_window_changes_its_size_in_the_middle(tmp_path: Path, stage: Stage) -> None:
    terminal = top(stage, tmp_path, (80, 24))
    try:
        terminal.wait("● LIVE", "PDU-002A")
        for view, size, word in (
            ("3", (200, 50), "Events"),
            ("5", (61, 17), "sev"),
            ("4", (160, 50), "of what trips it"),
            ("2", (40, 10), "too small"),
            ("6", (120, 40), "islands"),
            ("1", (20, 4), "LIVE"),
            ("1", (80, 24), "Alerts by cause"),
        ):
            terminal.press(view)
            terminal.resize(*size)
            sound(terminal, terminal.wait(word), size)
        terminal.press("/")
        terminal.resize(100, 30)
        terminal.write("node-0002")
        terminal.resize(70, 20)
        terminal.press("Enter")
        sound(terminal, terminal.wait("q Quit", "/node-0002"), (70, 20))
    finally:
        terminal.close()


def only(node: str) -> Callable[[str], bool]:
    """Whether all GPUs that are listed are of one node."""

    def holds(screen: str) -> bool:
        found = [line for line in screen.splitlines() if re.search(r"node-\d{4} +\d ", line)]
        return bool(found) and all(node in line for line in found)

    return holds


def test_keys_that_come_at_once_are_handled_in_order(tmp_path: Path, stage: Stage) -> None:
    """As over a slow line: what follows `/` is a filter, though `q` ends the dashboard elsewhere."""
    terminal = top(stage, tmp_path, (100, 30))
    try:
        terminal.wait("● LIVE", "PDU-002A")
        terminal.write("3/model=h100 quick|node-0001\rsf")
        terminal.wait("1 of ", "faults only", "▼node", holds=only("node-0001"))
        assert terminal.ended is None
        terminal.write("\x1b")
        terminal.wait("of 64", holds=lambda text: "faults only" not in text)
        terminal.write("4ssq")
        wait_until(lambda: terminal.ended == 0, "the end")
    finally:
        terminal.close()


def test_a_wall_clock_that_jumps_moves_nothing(tmp_path: Path, stage: Stage) -> None:
    """The dashboard goes by the aggregator's clock and by its own steady one: its machine's wall clock
    may be a day off, and stand still there."""
    clock = SteppedClock(tmp_path)
    terminal = top(stage, tmp_path, (120, 40), **clock.environment)
    try:
        before = terminal.wait("● LIVE", "PDU-002A", " s old")
        for seconds in (86_400, -86_400, 0):
            clock.step(seconds)
            at = re.search(r"\d\d:\d\d:\d\dZ", terminal.screen)
            assert at is not None
            screen = terminal.wait("● LIVE", "data ", holds=lambda text, was=at[0]: was not in text.splitlines()[0])  # type: ignore[misc]
            sound(terminal, screen, (120, 40))
            assert not re.search(r"data -|data \d+ [hd] old", screen)
        assert before
    finally:
        terminal.close()
