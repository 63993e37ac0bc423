"""Debian's Alertmanager, on a free port, with a webhook as its only receiver."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.brokers import free_port, wait_for_port

BINARIES = ("prometheus-alertmanager", "amtool")
_SETTINGS = """
route: {{receiver: hook, group_by: [alertname], group_wait: 200ms, group_interval: 500ms, repeat_interval: 1h}}
receivers: [{{name: hook, webhook_configs: [{{url: "{url}", send_resolved: true}}]}}]
"""


def needed() -> None:
    """Skip where it is not installed; CI must run it."""
    missing = [name for name in BINARIES if shutil.which(name) is None]
    if missing and os.environ.get("CI"):
        pytest.fail("CI must run prometheus-alertmanager: sh deploy/packages.sh")
    if missing:
        pytest.skip("not installed: apt-get install prometheus-alertmanager")


class RealAlertmanager:
    """One of them, alone."""

    def __init__(self, folder: Path, hook: str) -> None:
        needed()
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._folder = folder / f"am-{self.port}"
        self._folder.mkdir()
        (self._folder / "am.yml").write_text(_SETTINGS.format(url=hook))
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, or start it again with what it has kept on disk."""
        self._process = subprocess.Popen(
            [
                BINARIES[0],
                f"--config.file={self._folder / 'am.yml'}",
                f"--storage.path={self._folder}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--cluster.listen-address=",
                "--log.level=error",
            ]
        )
        wait_for_port(self.port)

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        """End it."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait(20)
            self._process = None

    def amtool(self, *arguments: str) -> list[dict[str, Any]]:
        """Return what `amtool alert query` shows."""
        done = subprocess.run(
            ["amtool", f"--alertmanager.url={self.url}", "-o", "json", "alert", "query", *arguments],
            check=True,
            capture_output=True,
            timeout=20,
        )
        shown: list[dict[str, Any]] = json.loads(done.stdout)
        return shown


class Hook:
    """Keeps the bodies of webhooks, Alertmanager's and ours."""

    def __init__(self) -> None:
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/hook"
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.answer = "ok"
        self.more: dict[str, str] = {}
        """Headers of the answer."""

    async def _take(self, request: web.Request) -> web.Response:
        if request.method == "POST":
            self.bodies.append(await request.json())
        self.headers.append(dict(request.headers))
        return web.Response(status=self.status, text=self.answer, headers=self.more)

    @asynccontextmanager
    async def listening(self) -> AsyncIterator[Hook]:
        """Answer on the port."""
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self._take)
        runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", self.port).start()
        try:
            yield self
        finally:
            await runner.cleanup()

    def told(self, status: str) -> set[str]:
        """Nodes in notifications of groups of that status."""
        return {
            alert["labels"]["node"] for body in self.bodies for alert in body["alerts"] if alert["status"] == status
        }
