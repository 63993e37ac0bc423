"""The commands that a newcomer types first, in processes of their own."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.brokers import free_port
from tests.kit.waiting import wait_until


def kilowatch(*arguments: str, seconds: float = 120.0) -> subprocess.CompletedProcess[str]:
    """Run the command and wait for its end."""
    return subprocess.run(
        [sys.executable, "-m", "kilowatch", *arguments],
        capture_output=True,
        text=True,
        timeout=seconds,
        check=False,
        stdin=subprocess.DEVNULL,
    )


class Demo:
    """`demo --json` without a screen, in a session of its own."""

    def __init__(self, *arguments: str, before: tuple[str, ...] = ()) -> None:
        self.http = f"http://127.0.0.1:{free_port()}"
        command = [sys.executable, "-m", "kilowatch", "demo", "--no-ui", "--json",
                   "--http", self.http.removeprefix("http://"), *arguments]  # fmt: skip
        self.process = subprocess.Popen(
            [*before, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def reads(self, gpus: int, frames: int) -> bool:
        """Whether it has so many GPUs that report, and has stored so many frames."""
        assert self.process.poll() is None, self.process.communicate()
        try:
            with urllib.request.urlopen(f"{self.http}/metrics") as answer:
                values = answer.read().decode()
            with urllib.request.urlopen(f"{self.http}/api/v1/fleet") as answer:
                fleet = json.load(answer)
        except OSError:
            return False  # it serves later
        stored = re.search(r"(?m)^kilowatch_aggregator_frames_stored_total(?:{.*})? (\S+)$", values)
        assert stored is not None
        return bool(fleet["reporting"] == gpus and float(stored[1]) >= frames)

    def end(self, number: signal.Signals = signal.SIGTERM) -> tuple[dict[str, Any], str]:
        """Signal all its processes; return what it prints at its end, and its complaints."""
        os.killpg(self.process.pid, number)
        wrote, complaints = self.process.communicate(timeout=120)
        assert self.process.returncode == 0, complaints
        return json.loads(wrote), complaints.decode()


@pytest.fixture
def demo() -> Iterator[Callable[..., Demo]]:
    """A function that starts one."""
    with contextlib.ExitStack() as stack:

        def start(*arguments: str, before: tuple[str, ...] = ()) -> Demo:
            started = Demo(*arguments, before=before)
            stack.callback(started.process.kill)
            return started

        yield start


@pytest.mark.parametrize(
    ("arguments", "nodes", "gpus"),
    [
        (("--scenario", "desktop-4x5090"), 1, 4),
        (("--scenario", "two-dgx-h100"), 2, 16),
        (("--scenario", "fleet", "--nodes", "60", "--gpus", "8"), 60, 480),
    ],
    ids=["desktop", "dgx", "fleet"],
)
def test_a_demo_ends_with_every_frame_stored(
    arguments: tuple[str, ...], nodes: int, gpus: int, demo: Callable[..., Demo]
) -> None:
    """`demo --json` prints what came of it; nothing may be lost."""
    started = demo(*arguments)
    wait_until(lambda: started.reads(gpus, nodes * 5), "all GPUs and five frames a node")
    outcome, complaints = started.end()
    assert (outcome["nodes"], outcome["gpus"]) == (nodes, gpus)
    assert outcome["frames_lost"] == 0
    assert outcome["frames_stored"] == outcome["frames_published"] >= nodes * 5
    assert outcome["events"] >= nodes
    assert "SIMULATED" in complaints


def test_a_fleet_starts_with_the_open_files_of_a_usual_shell(demo: Callable[..., Demo]) -> None:
    """Fewer than its nodes need, which it raises itself: at first each was a line about the broker's password."""
    few = ("sh", "-c", 'ulimit -Sn 128; exec "$@"', "sh")
    started = demo("--scenario", "fleet", "--nodes", "80", before=few)
    wait_until(lambda: started.reads(640, 80), "all GPUs")
    outcome, complaints = started.end()
    assert (outcome["nodes"], outcome["gpus"], outcome["frames_lost"]) == (80, 640, 0)
    assert "password" not in complaints
    assert "Traceback" not in complaints


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["systemd", "terminal"])
def test_a_signal_to_all_its_processes_loses_nothing(number: signal.Signals, demo: Callable[..., Demo]) -> None:
    """systemd and a terminal signal the whole group: the broker outlives the last frames."""
    started = demo("--scenario", "two-dgx-h100")
    wait_until(lambda: started.reads(16, 4), "all GPUs and frames")
    outcome, _ = started.end(number)
    assert outcome["frames_stored"] == outcome["frames_published"] > 0


def test_a_scripted_fault_is_an_event_and_an_alert() -> None:
    """A GPU that falls off the bus three seconds into the demo."""
    done = kilowatch(
        "demo", "--scenario", "two-dgx-h100", "--faults", "xid79@dgx-01/3+2s", "--no-ui", "--for", "10s", "--json"
    )
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["alerts"] >= 1
    assert outcome["events"] >= 4  # two starts, the XID, the loss


def test_an_unknown_scenario_is_told_with_the_nearest_one() -> None:
    """Exit code 64, one line, no traceback."""
    done = kilowatch("demo", "--scenario", "two-dgx-h10", "--no-ui")
    assert done.returncode == 64
    assert "two-dgx-h100" in done.stderr
    assert "Traceback" not in done.stderr
