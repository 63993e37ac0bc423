"""The worst of a bad night: 200 alerts at once, a clock that stands still, names that are an attack."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path

from rich.cells import cell_len
from textual.events import Key

from aggregator.electrical.service import ElectricalService
from api.alerts import Alert, AlertState, Severity
from tests.kit.waiting import within
from tests.tui.cluster import Cluster, served, text_of, until
from tests.tui.test_app import press_until, shown, staged
from tui.app import Top
from tui.screens.forms import Palette

ROOT = Path(__file__).parents[2]
EVIL = "[red]n\x1b]0;PWNED\x07\x1b[31m\x9b6n\u202e\u0085" + "x" * 300 + "\r\n\x00end"
"""A name of 300 characters with markup, a title, a colour, a question to the terminal, and a new line."""
HARM = (b"\x1b]0;PWNED", b"\x1b[31mx", b"\xc2\x9b6n", "\u202e".encode(), b"\xc2\x85", b"\x00end")


async def test_two_hundred_alerts_at_once_are_shown_and_acknowledged() -> None:
    async with staged((100, 30), write=True, who="ops") as (pilot, app, stage):
        many = [
            Alert(
                key=f"gpu_lost/burst-{n:03d}/G{n}",
                rule="gpu_lost",
                state=AlertState.FIRING,
                severity=Severity.PAGE,
                node=f"burst-{n:03d}",
                gpu=f"G{n}",
                since=stage.wall(),
                changed=stage.wall(),
                summary=f"burst-{n:03d} GPU 0 has fallen off the bus",
            )
            for n in range(200)
        ]
        desk = stage.pipeline.manager
        for alert in many:
            desk.receive([alert], stage.now(), stage.wall())
        text = await press_until(pilot, "5", holds=lambda text: "of 2" in text and "burst-" in text)
        assert "▲2" in text.splitlines()[0]
        await press_until(pilot, "end", holds=lambda text: "burst-" in text)
        await press_until(pilot, "home", *["space"] * 5, holds=lambda text: "5 marked" in text)
        await press_until(pilot, "1", holds=lambda text: "more" in text and "Alerts by cause" in text)
        for size in ((80, 24), (160, 50), (61, 17), (100, 30)):
            await pilot.resize_terminal(*size)
            text = await until(pilot, lambda text: "▲2" in text)
            assert all(cell_len(line) <= size[0] for line in text.splitlines())
        assert app.is_running


async def test_a_clock_that_stands_still_stops_nothing() -> None:
    cluster = Cluster(nodes=1, gpus=2)
    await cluster.beat()
    async with served(cluster) as url:
        app = Top(url, every=0.2, clock=lambda: 100.0)
        async with app.run_test(size=(100, 30)) as pilot:
            await until(pilot, lambda text: "● LIVE lab" in text and "650/700" in text)
            cluster.wrong["GPU-dgx-00-0"] = {"gpu_power_watts": 77.0}
            await cluster.beat()
            await press_until(pilot, "3", holds=lambda text: "77/700" in text)
            await press_until(pilot, "p", holds=lambda text: "PAUSED 00:00" in text)
            await press_until(pilot, "p", holds=lambda text: "● LIVE" in text)
            await press_until(pilot, "enter", holds=lambda text: "serial" in text or "uuid" in text or "GPU-" in text)
            assert "-" not in text_of(app).splitlines()[0].partition("data")[2][:6]


async def test_names_of_strangers_reach_the_terminal_on_no_screen() -> None:
    """Every byte that the dashboard writes to a real terminal, through all its views and dialogs."""
    cluster = Cluster(nodes=0)
    cluster.place(EVIL, 2, f"GPU {EVIL}")
    cluster.electrical = ElectricalService(
        {"circuits": {EVIL: {"breaker": 20, "nodes": [EVIL]}}, "nodes": {EVIL: {"gpus": "2x RTX 4090"}}},
        Path("/nowhere"),
    )
    cluster.raise_alert("gpu_lost", f"GPU-{EVIL}-0", f"{EVIL} has fallen", node=EVIL)
    cluster.pipeline.manager.receive(cluster.raised, cluster.now(), cluster.wall())
    await cluster.beat()
    cluster.electrical.snapshots(cluster.fleet, cluster.now(), cluster.wall())
    async with served(cluster) as url:
        with terminal(url) as (ours, process):
            seen = await follow(ours, b"", b"PWNED")
            for keys in (
                b"2",
                b"\r",
                b"\x1b",
                b"3",
                b"\r",
                b"\x1b",
                b"4",
                b"w",
                b"\x1b",
                b"\r",
                b"\x1b",
                b"5",
                b" ",
                b"a",
                b"\x1b",
                b"S",
                b"\x1b",
                b"\r",
                b"\r",
                b"6",
                b"M",
                b"7",
                b"1",
                b":n",
                b"\x1b",
                b"n",
                b"y",
                b"Y",
                b"c",
                b"C",
                b"v",
                b"\x1b",
                b"E",
                b"\x1b",
                b"?",
                b"\x1b",
                b"/PWNED\r",
                b"t[",
                b"L",
            ):
                seen += await follow(ours, keys, b"\x1b[", least=0.4)
            assert process.poll() is None, seen[-3000:].decode("utf-8", "replace")
            for _ in range(3):
                seen += await follow(ours, b"\x1b", b"", least=0.6)
            seen += await follow(ours, b"q", b"\x1b[?1049l")
    assert b"PWNED" in seen
    assert b"[red]n" in seen, "markup is a text like any other"
    assert b"Traceback" not in seen
    for harm in HARM:
        assert harm not in seen, harm


@contextlib.contextmanager
def terminal(url: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The dashboard in a process of its own, on a terminal whose bytes are read."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    os.set_blocking(ours, False)
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [sys.executable, "-c", f"from tui.top import run_top; run_top({url!r}, write=True, who='ops')"],
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        cwd=ROOT,
        close_fds=True,
        env={**environment, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
    )
    os.close(theirs)
    try:
        yield ours, process
    finally:
        process.kill()
        process.wait(30)
        os.close(ours)


async def follow(terminal: int, keys: bytes, word: bytes, least: float = 0.0) -> bytes:
    """Press keys, and read until a word has come and then nothing more for a moment."""
    if keys:
        os.write(terminal, keys)
    seen = bytearray()
    loop = asyncio.get_running_loop()
    quiet = loop.time() + least
    async with within():
        while word not in seen or loop.time() < quiet:
            with contextlib.suppress(BlockingIOError):
                seen += os.read(terminal, 65536)
            await asyncio.sleep(0.02)
    return bytes(seen)


async def test_a_page_of_a_thing_that_goes_away_says_so() -> None:
    cluster = Cluster(nodes=1, gpus=2)
    async with shown(cluster, (100, 30)) as (pilot, app):
        await press_until(pilot, "3", "enter", holds=lambda text: "Power W" in text)
        app.open("circuit", "nobody")
        await until(pilot, lambda text: "loading" in text or "there is no circuit nobody" in text)
        app.open("incident", "nothing")
        await until(pilot, lambda text: "it is over" in text)
        app.open("gpu", "GPU-gone")
        await until(pilot, lambda text: "GPU-gone" in text or "no gpu" in text.lower())
        assert app.is_running


async def test_cards_follow_every_size_of_the_window() -> None:
    """Few GPUs are cards with a past in them: a window that shrinks leaves a card no room for it."""
    cluster = Cluster(nodes=2, gpus=4)
    async with shown(cluster, (160, 50)) as (pilot, app):
        for _ in range(8):
            await cluster.beat()
            await pilot.pause(0.1)
        for size in ((80, 24), (61, 17), (160, 50), (62, 50), (80, 10), (200, 60), (62, 24)):
            await pilot.resize_terminal(*size)
            await cluster.beat()
            text = await until(pilot, lambda text: "8 GPUs" in text or "GPU 8/8" in text)
            assert app.is_running
            assert all(cell_len(line) <= size[0] for line in text.splitlines())


async def test_a_palette_that_is_answered_twice_answers_once() -> None:
    """Enter, and again before the window has closed; then escape."""
    async with staged((100, 30)) as (pilot, app, _stage):
        answers: list[object] = []
        for last in ("enter", "escape"):
            palette = Palette(app.context.tones, lambda _text: [("view", "nodes", "2")])
            app.push_screen(palette, answers.append)
            await until(pilot, lambda text: "Go to or do" in text)
            for key in ("enter", last):  # both are in its queue before it has looked at one
                app.post_message(Key(key, None))
            await until(pilot, lambda text: "Go to or do" not in text)
        assert answers[0] == ("view", "nodes", "2")
        assert len(answers) == 2
        assert len(app.screen_stack) == 1
