"""Real time series databases for tests: Debian's influxd 1.6.7 and victoria-metrics 1.79.5, and a
server whose every answer is written down beforehand, for the releases that can't run here."""

from __future__ import annotations

import http.server
import json
import os
import shutil
import signal
import subprocess
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.brokers import free_port, wait_for_port
from tests.kit.waiting import end_of_patience


class _Program:
    """A server on a free port of loopback, in a folder of its own."""

    name = ""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Its process, while it runs."""
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start, or start again on the same port; returns when it listens."""
        program = shutil.which(self.name)
        if program is None:
            if os.environ.get("CI"):
                pytest.fail(f"{self.name} is not installed, and CI must run it")
            pytest.skip(f"{self.name} is not installed: sh deploy/packages.sh")
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen([program, *self.arguments()], stdout=log, stderr=log)
        wait_for_port(self.port)
        deadline = end_of_patience()
        while self.get("/ping")[0] >= 500 and time.monotonic() < deadline:
            time.sleep(0.02)

    def arguments(self) -> list[str]:
        """What it is started with."""
        raise NotImplementedError

    def kill(self) -> None:
        """SIGKILL: nothing is written down."""
        self.signal(signal.SIGKILL)
        if self._process is not None:
            self._process.wait()
            self._process = None

    def signal(self, number: int) -> None:
        """Send any signal, SIGSTOP and SIGCONT for instance."""
        if self._process is not None:
            self._process.send_signal(number)

    def get(self, path: str, **query: str) -> tuple[int, str]:
        """GET; returns status and text."""
        return _http(f"{self.url}{path}?{urllib.parse.urlencode(query)}", None)

    def post(self, path: str, body: str = "", **query: str) -> tuple[int, str]:
        """POST; returns status and text."""
        return _http(f"{self.url}{path}?{urllib.parse.urlencode(query)}", body.encode())


class Influxd(_Program):
    """InfluxDB 1.x."""

    name = "influxd"

    def __init__(self, folder: Path, settings: str = "", http: str = "") -> None:
        """`settings` and `http`: further lines of its file, the latter of its [http] section."""
        super().__init__(folder)
        (folder / "influxdb.conf").write_text(
            "reporting-disabled = true\n"
            f'bind-address = "127.0.0.1:{free_port()}"\n'
            f'[meta]\ndir = "{folder}/meta"\n'
            f'[data]\ndir = "{folder}/data"\nwal-dir = "{folder}/wal"\nindex-version = "tsi1"\n'
            "query-log-enabled = false\n"
            f'[http]\nbind-address = "127.0.0.1:{self.port}"\nlog-enabled = false\n{http}\n'
            f"[monitor]\nstore-enabled = false\n{settings}\n"
        )

    def arguments(self) -> list[str]:
        return ["-config", str(self.folder / "influxdb.conf")]

    def query(self, text: str, database: str = "kilowatch") -> list[dict[str, Any]]:
        """Execute InfluxQL; returns the series, times in ms."""
        status, answer = self.post("/query", db=database, q=text, epoch="ms")
        found = json.loads(answer)
        assert status == 200, answer
        assert "error" not in found["results"][0], answer
        return list(found["results"][0].get("series", []))

    def rows(self, text: str, database: str = "kilowatch") -> list[list[Any]]:
        """Ask; returns the rows of all series."""
        return [row for series in self.query(text, database) for row in series["values"]]


class VictoriaMetrics(_Program):
    """VictoriaMetrics, single node."""

    name = "victoria-metrics"

    def arguments(self) -> list[str]:
        return [
            f"-storageDataPath={self.folder / 'data'}",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=5y",
            "-memory.allowedBytes=256MB",
        ]

    def series(self, match: str) -> list[dict[str, Any]]:
        """Return the series that match, with all their values, once they can be seen."""
        self.get("/internal/force_flush")
        _, text = self.get("/api/v1/export", **{"match[]": match}, start="0")
        return [json.loads(line) for line in text.splitlines()]


def _http(url: str, body: bytes | None) -> tuple[int, str]:
    method = "GET" if body is None else "POST"
    request = urllib.request.Request(url, data=body, method=method)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@dataclass(slots=True)
class Request:
    """What a scripted server was asked."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes


@dataclass(slots=True)
class Reply:
    """What it answers."""

    status: int = 204
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)


class Scripted:
    """A server with scripted answers: `answer` is called for each request, and may be changed
    while it runs."""

    def __init__(self, answer: Callable[[Request], Reply]) -> None:
        self.answer = answer
        self.requests: list[Request] = []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _serve(self) -> None:
                parts = urllib.parse.urlsplit(self.path)
                length = int(self.headers.get("Content-Length") or 0)
                request = Request(
                    self.command,
                    parts.path,
                    dict(urllib.parse.parse_qsl(parts.query)),
                    dict(self.headers.items()),
                    self.rfile.read(length),
                )
                outer.requests.append(request)
                reply = outer.answer(request)
                body = reply.body.encode()
                self.send_response(reply.status)
                for name, value in reply.headers.items():
                    self.send_header(name, value)
                if reply.status != 204:
                    self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if reply.status != 204:
                    self.wfile.write(body)

            do_GET = do_POST = do_PATCH = _serve  # noqa: N815 - the names that http.server calls

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End it."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
