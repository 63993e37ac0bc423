"""Bytes that no keyboard sends: the dashboard lives, and `q` still ends it."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import random
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import click
import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual import events

from kilowatch.__main__ import main
from tests.brokers import free_port
from tests.kit.waiting import until, within
from tests.tui.cluster import Cluster, served
from tests.tui.test_robustness import follow, terminal
from tui.frame.terminal_input import TerminalInput

ROOT = Path(__file__).parents[2]
BROKEN = (
    b"\x1b[", b"\x1b[999999999999u", b"\x1b[99999999;2u", b"\x1b[1;99999999999999999999A", b"\x1b[M\xff\xff\xff",
    b"\x1b[<-1;-1;-1M", b"\x1b[<999999999999;1;1M", b"\x1b[48;99999;99999;9;9t", b"\x1b[48;0;0;0;0t",
    b"\x1b[48;:;:;:;:t", b"\x1bO\x80", b"\x1bP\x1b\\", b"\x1b]0;\x07", b"\x1b[?2026;9$y", b"\x1b[201~", b"\xc3\x28",
    b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\x00\x7f\x9b", b"\x1b[57363u", b"\x1b[1114112u", b"\x1b[55296u",
)  # fmt: skip
"""Sequences that are cut off, out of range, or another program's."""
KEYS_THAT_END = b"qQ\x03\x11\x1a\x1c"


def pasted(seed: int, size: int = 4000) -> bytes:
    """A paste of random bytes, as a terminal brackets it."""
    return b"\x1b[200~" + random.Random(seed).randbytes(size).replace(b"\x1b[201~", b"") + b"\x1b[201~"


def typed(seed: int, size: int = 2000) -> bytes:
    """Random bytes as if they were typed, but for the keys that end the dashboard."""
    return bytes(byte for byte in random.Random(seed).randbytes(size) if byte not in KEYS_THAT_END)


@given(st.lists(st.one_of(st.binary(max_size=40), st.sampled_from(BROKEN)), max_size=12))
def test_no_bytes_raise(parts: list[bytes]) -> None:
    source = TerminalInput()
    for part in parts:
        for message in [*source.feed(part, 0.0), *source.tick(0.5)]:
            if isinstance(message, events.Resize):
                assert 0 < message.size.width <= 4096


@pytest.mark.parametrize("broken", BROKEN, ids=repr)
def test_a_key_after_a_broken_sequence_is_a_key(broken: bytes) -> None:
    """Perhaps not the first: it may still be a part of the sequence."""
    source = TerminalInput()
    keys = []
    for data in (broken, *[b"7"] * 80):
        keys += [each.key for each in source.feed(data, 0.0) if isinstance(each, events.Key)]
    assert keys[-1] == "7"


def test_text_in_other_languages_is_typed_also_where_it_comes_in_pieces() -> None:
    source = TerminalInput()
    found = [
        message.character
        for byte in "ä🚀".encode()
        for message in source.feed(bytes([byte]), 0.0)
        if isinstance(message, events.Key)
    ]
    assert found == ["ä", "🚀"]


@given(st.binary(max_size=200), st.integers(1, 7))
def test_nothing_in_a_paste_is_a_key(data: bytes, size: int) -> None:
    data = data.replace(b"\x1b[201~", b"")
    source, found = TerminalInput(), []
    whole = b"\x1b[200~" + data + b"\x1b[201~q"
    for start in range(0, len(whole), size):
        found += [*source.feed(whole[start : start + size], 0.0), *source.tick(0.0)]
    assert [type(each) for each in found] == [events.Paste, events.Key]


def test_a_paste_without_an_end_ends_when_nothing_more_comes() -> None:
    source = TerminalInput()
    assert list(source.feed(b"\x1b[200~some", 0.0)) == []
    assert list(source.tick(0.9)) == []
    assert [each.text for each in source.tick(1.1) if isinstance(each, events.Paste)] == ["some"]
    assert [each.key for each in source.feed(b"q", 2.0) if isinstance(each, events.Key)] == ["q"]


@pytest.mark.systems
async def test_the_dashboard_survives_every_byte_and_q_ends_it() -> None:
    cluster = Cluster(nodes=1, gpus=2)
    await cluster.beat()
    async with served(cluster) as url:
        with terminal(url) as (ours, process):
            await follow(ours, b"", b"650/700")
            for data in (bytes(range(0x80, 0x100)), *BROKEN, *map(pasted, range(3)), *map(typed, range(3))):
                for start in range(0, len(data), 512):
                    await follow(ours, data[start : start + 512], b"", least=0.05)
                assert process.poll() is None, data
            await ended(ours, process)


@pytest.mark.systems
async def test_it_ends_when_its_terminal_is_gone() -> None:
    """Instead of asking a closed terminal for ever, at full speed."""
    cluster = Cluster(nodes=1, gpus=2)
    await cluster.beat()
    async with served(cluster) as url:
        with terminal(url) as (ours, process):
            await follow(ours, b"", b"650/700")
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, ours)  # the last descriptor of our end
            os.close(nothing)
            await until(lambda: process.poll() is not None, "the end of the dashboard")
            assert process.returncode == 0


async def ended(ours: int, process: subprocess.Popen[bytes]) -> None:
    """Leave whatever is open, and quit; it must have ended in order."""
    async with within():
        while process.poll() is None:
            with contextlib.suppress(OSError):
                os.write(ours, b"\x1b")
            await follow_to_the_end(ours, 0.5)
            if process.poll() is None:
                with contextlib.suppress(OSError):
                    os.write(ours, b"q")
                await follow_to_the_end(ours, 0.5)
    assert process.returncode == 0


async def follow_to_the_end(ours: int, seconds: float) -> None:
    """Read what comes for a while; an end of the terminal is no error."""
    with contextlib.suppress(OSError):
        await follow(ours, b"", b"", least=seconds)


@contextlib.contextmanager
def on_a_terminal(folder: Path, command: str, *more: str) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """`kilowatch demo` or `run` with its dashboard on a terminal."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 140, 0, 0))
    os.set_blocking(ours, False)
    environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "COLUMNS", "LINES"}}
    process = subprocess.Popen(
        [sys.executable, "-m", "kilowatch", command, "--data", str(folder / "demo"), *more],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, close_fds=True,
        env={**environment, "TERM": "xterm-256color", "XDG_STATE_HOME": str(folder)},
    )  # fmt: skip
    os.close(theirs)
    try:
        yield ours, process
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(30)
        os.close(ours)


@pytest.mark.systems
async def test_the_demo_survives_every_byte_too(tmp_path: Path) -> None:
    with on_a_terminal(tmp_path, "demo") as (ours, process):
        await follow(ours, b"", b"LIVE")
        for data in (bytes(range(0x80, 0x100)), pasted(7), *BROKEN):
            await follow(ours, data[:4000], b"", least=0.05)
        assert process.poll() is None
        await ended(ours, process)


async def incidents(port: int) -> list[dict[str, Any]]:
    """The open incidents of a demo; none while it does not answer."""
    with contextlib.suppress(aiohttp.ClientError):
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"http://127.0.0.1:{port}/api/v1/incidents") as reply,
        ):
            return list((await reply.json())["incidents"])
    return []


def test_whoever_shows_the_dashboard_of_a_cluster_may_allow_changes() -> None:
    """`demo` and `run` hand `--write` to the same dashboard that `top` opens with it."""
    for name in ("demo", "run", "top"):
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert "write" in {option.name for option in command.params}, name


@pytest.mark.systems
@pytest.mark.parametrize("command", [["demo"], ["run", "--source", "simulated:desktop-4x5090"]], ids=lambda one: one[0])
async def test_demo_and_run_acknowledge_with_write(tmp_path: Path, command: list[str]) -> None:
    """The breaker is too small, so that an incident comes by itself."""
    port = free_port()
    with on_a_terminal(tmp_path, *command, "--write", "--http", f"127.0.0.1:{port}") as (ours, process):
        async with within(300):
            await follow(ours, b"", b"LIVE")
            while not any(one["acknowledged"] for one in await incidents(port)):
                for key in (b"5", b"a", b"\r"):
                    await follow(ours, key, b"", least=0.5)
        assert process.poll() is None
