"""The commands that a newcomer types first, in processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from multiprocessing.connection import wait

import pytest


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
    arguments: tuple[str, ...], nodes: int, gpus: int
) -> None:
    """`demo --json` prints what came of it; nothing may be lost."""
    done = kilowatch("demo", *arguments, "--no-ui", "--for", "8s", "--json")
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["nodes"], outcome["gpus"]) == (nodes, gpus)
    assert outcome["frames_lost"] == 0
    assert outcome["frames_stored"] == outcome["frames_published"] >= nodes * 5
    assert outcome["events"] >= nodes
    assert "SIMULATED" in done.stderr


def test_a_fleet_starts_with_the_open_files_of_a_usual_shell() -> None:
    """Fewer than its nodes need, which it raises itself: at first each was a line about the broker's password."""
    demo = [sys.executable, "-m", "kilowatch", "demo", "--scenario", "fleet", "--nodes", "80",
            "--no-ui", "--for", "8s", "--json"]  # fmt: skip
    done = subprocess.run(
        ["sh", "-c", 'ulimit -Sn 128; exec "$@"', "sh", *demo],
        capture_output=True, text=True, timeout=120, check=False, stdin=subprocess.DEVNULL,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert (outcome["nodes"], outcome["gpus"], outcome["frames_lost"]) == (80, 640, 0)
    assert "password" not in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["systemd", "terminal"])
def test_a_signal_to_all_its_processes_loses_nothing(number: signal.Signals) -> None:
    """systemd and a terminal signal the whole group: the broker outlives the last frames."""
    demo = subprocess.Popen(
        [sys.executable, "-m", "kilowatch", "demo", "--no-ui", "--json", "--scenario", "two-dgx-h100"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    )  # fmt: skip
    try:
        assert demo.stderr is not None
        assert wait([demo.stderr], 120), "it says where it serves"
        with pytest.raises(subprocess.TimeoutExpired):
            demo.communicate(timeout=6)
        os.killpg(demo.pid, number)
        wrote, complaints = demo.communicate(timeout=120)
    finally:
        demo.kill()
    assert demo.returncode == 0, complaints
    outcome = json.loads(wrote)
    assert outcome["frames_stored"] == outcome["frames_published"] > 0


def test_a_scripted_fault_is_an_event_and_an_alert() -> None:
    """A GPU that falls off the bus three seconds into the demo."""
    done = kilowatch(
        "demo", "--scenario", "two-dgx-h100", "--faults", "xid79@dgx-01/3+2s",
        "--no-ui", "--for", "10s", "--json",
    )  # fmt: skip
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
