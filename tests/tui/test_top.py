"""The dashboard as an operator starts it: a process on a real terminal."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from api.fleet import NodeReply
from tests.kit.waiting import within
from tests.tui.cluster import Cluster, served
from tests.tui.test_recent_frames import frame
from tui.kit.theme import DARK, Tones
from tui.map.fleetmap import FleetMap

ROOT = Path(__file__).parents[2]
COLOUR = re.compile(r"\x1b\[(?:[0-9;]*;)?(?:3[0-8]|4[0-8]|9[0-7]|10[0-7])(?:;[0-9;]*)?m")


async def read_until(terminal: int, word: bytes) -> bytes:
    """Read from a terminal until a word has come."""
    seen = bytearray()
    async with within():
        while word not in seen:
            with contextlib.suppress(BlockingIOError):
                seen += os.read(terminal, 65536)
            await asyncio.sleep(0.02)
    return bytes(seen)


@pytest.mark.parametrize(
    ("more", "colour"),
    [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)],
    ids=["colour", "NO_COLOR", "dumb"],
)
async def test_it_runs_on_a_terminal_and_q_ends_it(more: dict[str, str], colour: bool) -> None:
    cluster = Cluster(nodes=1, gpus=2)
    cluster.lose("GPU-dgx-00-1")
    await cluster.beat()
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "TEXTUAL_THEME"}}
    environment |= {"TERM": "xterm-256color", "COLORTERM": "truecolor", **more}
    async with served(cluster) as url:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
        os.set_blocking(ours, False)
        process = await asyncio.to_thread(
            subprocess.Popen,
            [sys.executable, "-c", f"from tui.top import run_top; run_top({url!r})"],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            cwd=ROOT,
            close_fds=True,
        )
        os.close(theirs)
        try:
            seen = await read_until(ours, b"650/700")
            os.write(ours, b"q")
            seen += await read_until(ours, b"\x1b[?1049l")
            assert await asyncio.to_thread(process.wait, 30) == 0
        finally:
            process.kill()
            os.close(ours)
    text = seen.decode("utf-8", "replace")
    assert "650/700" in text
    assert bool(COLOUR.search(text)) == colour
    if "TERM" in more:
        assert "●" not in text  # who can't colour gets letters


async def test_a_picture_of_ten_thousand_gpus_is_no_more_bytes_than_a_slow_line_bears() -> None:
    """A guard that noise can't break: bytes of one full picture, whatever the machine does."""
    state = frame(1, gpus=10_000)
    state = replace(state, nodes=tuple(NodeReply(f"n{n}", "online", gpus=8) for n in range(1250)))
    shown = FleetMap(Tones(DARK), "map")
    shown.need(state, 156, 34)
    shown.state, shown.dimmed = state, None
    strips = [shown.tones.strip(line, 156) for line in shown._draw_map(156, 34)]
    assert len(strips) == 33
    console = Console(color_system="truecolor", force_terminal=True)
    assert sum(len(strip.render(console)) for strip in strips) < 200_000
