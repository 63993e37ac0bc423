"""`kilowatch aggregate` with receivers, in a process of its own that a test may kill."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from telemetry.files import local_token
from tests.brokers import Broker, free_port
from tests.kit import waiting

PATIENCE = 60.0
"""Seconds: more than any machine needs; no test waits for it."""
RULES = """
[[rule]]
name = "toasty"
when = { type = "above", metric = "gpu_temperature_celsius", level = 80, clear = 75 }
severity = "page"
remediation = "reset"
summary = "{where} is at {value}"
description = "Let {node} cool down, and look at its fans."
runbook = "toasty"
"""
"""A rule whose alerts come and go at once: those that are shipped are more patient."""


class Watch:
    """An aggregator's settings, and its process while it runs."""

    def __init__(self, folder: Path, broker: Broker, settings: str) -> None:
        """`settings`: the tables behind [aggregator]."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.http = f"127.0.0.1:{free_port()}"
        self.data = folder / "data"
        self.settings = folder / "aggregator.toml"
        self.environment: dict[str, str] = {}
        self.program = "kilowatch"
        """The module that is run."""
        (folder / "mine.toml").write_text(RULES)
        self.settings.write_text(
            f'[broker]\nhost = "{broker.host}"\nport = {broker.port}\n'
            f'[aggregator]\nlisten = "{self.http}"\ndata_dir = "{self.data}"\n'
            f'rules = ["{folder / "mine.toml"}"]\n{settings}'
        )
        self.process: subprocess.Popen[bytes] | None = None
        self._log = (folder / "aggregator.log").open("ab")

    def start(self) -> None:
        """Start it, or start it again with what it has kept."""
        self.process = subprocess.Popen(
            [sys.executable, "-m", self.program, "aggregate", "--config", str(self.settings)],
            stdout=self._log,
            stderr=self._log,
            env=os.environ | self.environment,
        )

    def kill(self) -> None:
        """SIGKILL."""
        self._end(signal.SIGKILL)

    def end(self) -> int:
        """SIGTERM; returns the exit code."""
        return self._end(signal.SIGTERM)

    def _end(self, how: signal.Signals) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        process.send_signal(how)
        return process.wait(PATIENCE)

    def close(self) -> None:
        """Leave nothing behind."""
        self.kill()
        self._log.close()

    def ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        """Ask it; None while it does not serve."""
        raw = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://{self.http}{path}",
            data=raw,
            method=method,
            headers={"Content-Type": "application/json", **self._token()},
        )
        try:
            with urllib.request.urlopen(request, timeout=10) as answer:
                return json.loads(answer.read())
        except urllib.error.HTTPError as error:
            return json.loads(error.read())
        except OSError:
            return None

    def _token(self) -> dict[str, str]:
        """The token of its user, as a command finds it."""
        token = local_token.find(f"http://{self.http}")
        return {"Authorization": f"Bearer {token}"} if token else {}

    def get(self, path: str) -> Any:
        """Ask for something; None while it does not serve."""
        return self.ask("GET", path)

    def page(self) -> str:
        """Return /metrics; nothing while it does not serve."""
        with contextlib.suppress(OSError), urllib.request.urlopen(f"http://{self.http}/metrics", timeout=5) as answer:
            return str(answer.read().decode())
        return ""

    def incidents(self) -> list[dict[str, Any]]:
        """Return the open incidents."""
        found = self.get("/api/v1/incidents")
        return [] if found is None else list(found["incidents"])

    def firing(self) -> set[str]:
        """Return the keys of all alerts that fire and are not for information alone."""
        found = self.get("/api/v1/alerts?state=firing")
        listed = () if found is None else found["alerts"]
        return {alert["key"] for alert in listed if alert["severity"] != "info"}


@contextlib.contextmanager
def watching(folder: Path, broker: Broker, settings: str, program: str = "kilowatch") -> Iterator[Watch]:
    """Run one, show its log when a test fails, and leave nothing behind."""
    watch = Watch(folder, broker, settings)
    watch.program = program
    watch.start()
    try:
        yield watch
    except BaseException:
        print((folder / "aggregator.log").read_text()[-6000:])
        raise
    finally:
        watch.close()


async def until(what: str, so: Callable[[], object], seconds: float = PATIENCE) -> None:
    """Wait for a condition, asked in a thread: it may ask the aggregator. Raises `AssertionError`
    that says what did not come."""
    await waiting.until(lambda: asyncio.to_thread(so), what, seconds, every=0.02)


def toml(channels: Mapping[str, Mapping[str, Any]], alerts: str = "") -> str:
    """Return the settings of channels as text."""
    lines = ["[alerts]", "group_wait_seconds = 0.2", alerts]
    for name, channel in channels.items():
        lines.append(f"[alerts.channels.{name}]")
        lines += [f"{key} = {json.dumps(value)}" for key, value in channel.items()]
    return "\n".join(lines) + "\n"
