"""What an operator does at night, on a real terminal, by keys alone: a GPU with XID 79, a circuit that
trips, ten minutes back, and a picture for the ticket."""

from __future__ import annotations

import getpass
import json
import math
import os
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.brokers import free_port
from tests.endtoend.clock import SteppedClock
from tests.endtoend.tmux import TMUX, Terminal
from tests.kit.waiting import wait_until
from tui.kit.text import STEP

pytestmark = pytest.mark.skipif(TMUX is None, reason="tmux is not installed: apt-get install tmux")
AGO = 400
"""Seconds by which the demo's clock is behind at first."""
LOST = 200
"""Seconds of that clock after its start at which the GPU falls off the bus: while the clock jumps. Its
job, which then waits two minutes for it, works again when the dashboard is opened."""
LONG = 30
"""Readings of that first time."""
SECOND = 10**9
PAGE = f"Alerts {STEP} desktop-02"
"""What the header says on the page of the incident."""

BY = f"{getpass.getuser()} (ops)"
"""The token of this user, and the name beside it."""


class Demo:
    """A simulated cluster of two desktops whose circuits are too small, in a process of its own."""

    def __init__(self, folder: Path) -> None:
        self.http = f"127.0.0.1:{free_port()}"
        self.uuid = ""
        """Of the GPU that will be lost."""
        self._clock = SteppedClock(folder)
        self._clock.step(-AGO)
        self._log = (folder / "demo.log").open("w")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "kilowatch", "demo", "--scenario", "desktop-4x5090", "--nodes", "2",
             "--faults", f"xid79@desktop-02/3+{LOST}s", "--no-ui", "--http", self.http,
             "--data", str(folder / "demo")],
            env={**os.environ, **self._clock.environment}, stdin=subprocess.DEVNULL,
            stdout=self._log, stderr=self._log,
        )  # fmt: skip

    def get(self, path: str) -> Any:
        """What the API says."""
        with urllib.request.urlopen(f"http://{self.http}/api/v1/{path}", timeout=30) as answer:
            return json.load(answer)

    def up(self) -> bool:
        """Whether both nodes and their circuits are there."""
        try:
            return len(self.get("nodes")["nodes"]) == 2 and len(self.get("circuits")["circuits"]) == 2
        except OSError:
            return False

    def stored(self, uuid: str) -> list[int]:
        """When the readings of a GPU's power were taken that the store has, ns since 1970."""
        found = self.get(f"history?gpu={uuid}&metric=gpu_power_watts&from=-30m&step=0")
        pairs = zip(found["at"], found["mean"], strict=True)
        return [at for at, value in pairs if value is not None]

    def set_clock(self, wall: int | None = None) -> None:
        """Let its clock be right from now on, or show another time, ns since 1970."""
        self._clock.step(0 if wall is None else (wall - time.time_ns()) / SECOND)

    def end(self) -> None:
        """Stop it."""
        self._process.terminate()
        self._process.wait(60)
        self._log.close()


@pytest.fixture
def demo(tmp_path: Path) -> Iterator[Demo]:
    """A demo with some past, hours or minutes ago as one likes: its clock can be set."""
    running = Demo(tmp_path)
    try:
        wait_until(running.up, "the demo", seconds=120)
        running.uuid = running.get("nodes/desktop-02")["gpus"][3]["gpu"]["uuid"]
        wait_until(lambda: len(running.stored(running.uuid)) >= LONG, "a past", seconds=120)
        running.set_clock()
        yield running
    finally:
        running.end()


@pytest.fixture
def terminal(tmp_path: Path, demo: Demo) -> Iterator[Terminal]:
    """The dashboard on it, that may act."""
    command = [sys.executable, "-m", "kilowatch", "top", "--write", "--who", "ops", demo.http]
    window = Terminal(tmp_path, command, (140, 40), {"TERM": "xterm-256color"})
    yield window
    window.close()


def lost(demo: Demo) -> dict[str, Any] | None:
    """The incident of the GPU that has fallen off the bus."""
    found = demo.get("incidents")["incidents"]
    return next((one for one in found if one["group"].get("rule") == "gpu_lost"), None)


def test_a_night_by_keys_alone(tmp_path: Path, demo: Demo, terminal: Terminal) -> None:
    find(terminal)
    take(demo, terminal)
    hush(demo, terminal)
    relieve(demo, terminal)
    scrub(demo, terminal)
    keep(tmp_path, terminal)
    terminal.press("q")
    wait_until(lambda: terminal.ended == 0, "the end")


def find(terminal: Terminal) -> None:
    """The GPU with XID 79, and why."""
    terminal.wait("LIVE", "Alerts by cause", "fallen off")
    terminal.press("5")
    terminal.wait("what happened", "where", "1 of ")
    terminal.press("/")
    terminal.write("bus")
    terminal.press("Enter")
    terminal.wait("/bus", "1 of 1")
    terminal.press("Enter")
    terminal.wait(PAGE, "XID 79", "Drain desktop-02")
    terminal.press("Enter")
    terminal.wait("desktop-02/gpu3", "it has left the bus: nothing can be read")
    terminal.press("Escape")
    terminal.wait(PAGE, "not acknowledged")


def take(demo: Demo, terminal: Terminal) -> None:
    """Acknowledge it."""
    terminal.press("a")
    terminal.wait("Acknowledge", "why (may be empty)")
    terminal.write("swapping it")
    terminal.press("Enter")
    terminal.wait(f"acknowledged by {BY}: swapping it")
    taken = lost(demo)
    assert taken is not None
    assert (taken["acknowledged"]["who"], taken["acknowledged"]["why"]) == (BY, "swapping it")


def hush(demo: Demo, terminal: Terminal) -> None:
    """Silence its node for two hours."""
    terminal.press("S")
    terminal.wait("Silence", "node=desktop-02", "2h")
    terminal.press("Enter")
    terminal.wait("why: missing")
    terminal.write("RMA-7")
    terminal.press("Enter")
    terminal.wait("silences", "node=desktop-02", f"by {BY}: RMA-7")
    (silence,) = demo.get("silences")["silences"]
    assert [(m["label"], m["value"]) for m in silence["matchers"]] == [("node", "desktop-02")]
    assert silence["ends"] - silence["starts"] == 2 * 3600 * SECOND
    terminal.press("Escape")
    terminal.wait("/bus", "1 of 1")
    terminal.press("Escape")
    terminal.wait("Alerts", holds=lambda text: "/bus" not in text)


def relieve(demo: Demo, terminal: Terminal) -> None:
    """Which circuit trips first, and what relieves it."""
    terminal.press("4", "s")
    screen = terminal.wait("▼what next", "TRIP", "1 of 2")
    rows = [line for line in screen.splitlines()[4:] if "office-" in line[:40]]
    trips = {circuit["id"]: circuit["trip_seconds"]["earliest"] for circuit in demo.get("circuits")["circuits"]}
    first = min(trips, key=lambda name: math.inf if trips[name] is None else trips[name])
    assert first in rows[0]
    assert "TRIP" in rows[0]
    terminal.press("Enter")
    terminal.wait(f"Circuits {STEP} {first}", "TRIP", "relief", "until each GPU draws at most")


def scrub(demo: Demo, terminal: Terminal) -> None:
    """Ten minutes back: what is lost now was well then."""
    began = demo.stored(demo.uuid)[0]
    demo.set_clock(began + 605 * SECOND)
    wait_until(lambda: demo.get("status")["at"] > began + 600 * SECOND, "the clock")
    terminal.press("3")
    terminal.wait("LOST", "1 of 8")
    terminal.press("t")
    terminal.wait("◀")
    terminal.press(*["{"] * 10)
    screen = terminal.wait("REPLAY", "(-10m", holds=lambda text: "LOST" not in text)
    row = next(line for line in screen.splitlines() if "desktop-02" in line and " 3 " in line)
    assert "ok" in row
    terminal.press("L")
    terminal.wait("● LIVE", "LOST")


def keep(folder: Path, terminal: Terminal) -> None:
    """Export the picture."""
    terminal.press("E")
    terminal.wait("PNG of the screen")
    terminal.write("svg")
    terminal.press("Enter")
    wait_until(lambda: any(one.read_text().rstrip().endswith("</svg>") for one in folder.glob("*.svg")), "the picture")
    (picture,) = folder.glob("*.svg")
    text = " ".join(ElementTree.parse(picture).getroot().itertext())
    assert "LOST" in text
    terminal.wait("q Quit", holds=lambda screen: "PNG of the screen" not in screen)
