"""The dashboard in a browser: the page is there, and behind its socket is the same program, read-only."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from pathlib import Path

import aiohttp

from tests.brokers import free_port
from tests.endtoend.cluster import PATIENCE
from tests.endtoend.test_top_robustness import ROOT, Stage, stage

__all__ = ["stage"]


async def page(session: aiohttp.ClientSession, server: subprocess.Popen[bytes]) -> str:
    """What a browser loads first, when it is served."""
    end = time.monotonic() + PATIENCE
    while True:
        assert server.poll() is None, "kilowatch web has ended"
        try:
            async with session.get("/") as answer:
                return await answer.text()
        except aiohttp.ClientConnectionError:
            assert time.monotonic() < end, "nobody listens"
            await asyncio.sleep(0.1)


async def seen(socket: aiohttp.ClientWebSocketResponse, *words: str) -> None:
    """Read what the terminal in the page is sent until it has all these words."""
    got = b""
    async with asyncio.timeout(PATIENCE):
        while not all(word.encode() in got for word in words):
            message = await socket.receive()
            assert message.type in {aiohttp.WSMsgType.BINARY, aiohttp.WSMsgType.TEXT}, message
            got += message.data if isinstance(message.data, bytes) else b""


async def test_a_browser_sees_the_cluster_and_changes_nothing(stage: Stage, tmp_path: Path) -> None:
    port = free_port()
    command = [sys.executable, "-m", "kilowatch", "web", stage.http]
    with (tmp_path / "out").open("wb") as out:
        server = subprocess.Popen(  # noqa: ASYNC220 - it starts at once
            [*command, "--listen", f"127.0.0.1:{port}"], cwd=ROOT, stdout=out, stderr=out
        )
    try:
        async with aiohttp.ClientSession(f"http://127.0.0.1:{port}") as session:
            assert "data-session-websocket-url" in await page(session, server)
            async with session.ws_connect("/ws?width=120&height=40") as socket:
                await seen(socket, "LIVE", "PDU-002A")
                await socket.send_str(json.dumps(["stdin", "5"]))
                await seen(socket, "Runbook")
                await socket.send_str(json.dumps(["stdin", "a"]))
                await seen(socket, "read-only")
    finally:
        server.terminate()
        server.wait(30)


def test_it_listens_on_this_machine_alone_and_top_wants_a_terminal() -> None:
    """Both say what to do instead."""
    for command, words in (
        (["web", "--listen", "0.0.0.0:9402"], "Browsers elsewhere come by ssh -L"),
        (["top"], "this is no terminal. For pipes and logs there is `kilowatch status`"),
    ):
        ended = subprocess.run(
            [sys.executable, "-m", "kilowatch", *command], cwd=ROOT, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert ended.returncode == 2
        assert words in ended.stderr
