"""A broker, a generator and an aggregator, each a real process, and the aggregator's metrics."""

from __future__ import annotations

import json
import os
import re
import select
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from aggregator.ingest.newcomers import PLACED_SHARE
from bench.audit import audit
from bench.load import CLUSTER
from bench.processes import end
from kilowatch.stack.broker import EmbeddedBroker
from tests.brokers import free_port, wait_for_port

PREFIX = "kilowatch_aggregator_"
MEANWHILE = 15.0
"""Seconds between two reports of progress."""
NEVER_SEAL = 10_000_000
"""Seconds, more than any run has: its frames stay in one file, where they are counted."""
FLEET = 30_000
"""Nodes that may introduce themselves before their first frame: all of a bench's do."""
INVENTORY_BYTES = 64 * 1024
"""More than the inventory of eight GPUs with eighteen links each has."""
_SAMPLE = re.compile(r"^(\w+)(?:\{([^}]*)\})? (\S+)$")


def wait_until(what: str, ready: Callable[[], object], seconds: float = 120.0) -> None:
    """Wait for a condition. Raises `TimeoutError`."""
    deadline = time.monotonic() + seconds
    while not ready():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {seconds:.0f} s")
        time.sleep(0.5)  # a page of 100,000 GPUs is work too


@dataclass(slots=True)
class Lags:
    """Histogram of lags."""

    counts: dict[float, float]
    """Cumulative, by upper bound in seconds."""

    def since(self, before: Lags) -> Lags:
        """Return what was added after `before`."""
        return Lags({bound: n - before.counts.get(bound, 0) for bound, n in self.counts.items()})

    def quantile(self, share: float) -> float | None:
        """Return the lag that `share` of all stay below, straight between two bounds; None
        without any, infinity beyond the last bound."""
        total = max(self.counts.values(), default=0)
        if not total:
            return None
        low, reached = 0.0, 0.0
        for bound, count in sorted(self.counts.items()):
            if count >= share * total:
                inside = count - reached
                return low + (bound - low) * ((share * total - reached) / inside if inside else 1)
            low, reached = bound, count
        return float("inf")


class ScrapedPage:
    """A scrape of the aggregator's `/metrics`."""

    def __init__(self, text: str) -> None:
        self._samples: dict[str, list[tuple[str, float]]] = {}
        for line in text.splitlines():
            if match := _SAMPLE.match(line):
                found = self._samples.setdefault(match[1], [])
                found.append((match[2] or "", float(match[3])))

    def __bool__(self) -> bool:
        """Whether anything was served."""
        return bool(self._samples)

    def sum(self, name: str, label: str = "") -> float:
        """Return the sum of a family's samples whose labels hold a text; 0 without any."""
        return sum(value for labels, value in self._samples.get(name, ()) if label in labels)

    def own(self, name: str) -> float:
        """Return a series of the aggregator itself."""
        return self.sum(PREFIX + name)

    def mean(self, work: str, before: ScrapedPage) -> float | None:
        """Return the mean seconds of a piece of work since an earlier scrape."""
        count, total = (
            self.own(f"{work}_seconds_{part}") - before.own(f"{work}_seconds_{part}") for part in ("count", "sum")
        )
        return total / count if count else None

    def lags(self, kind: str) -> Lags:
        """Return a histogram: `shown`, `judged` or `committed`."""
        buckets = self._samples.get(f"{PREFIX}{kind}_lag_seconds_bucket", [])
        bounds = [labels.partition('le="')[2].rstrip('"') for labels, _ in buckets]
        return Lags({float(b): n for b, (_, n) in zip(bounds, buckets, strict=True)})


class Testbed:
    """The processes of a run; they end, and their files are removed, with the context."""

    def __init__(self, broker: str = "mosquitto", settings: str = "", seal: int = NEVER_SEAL) -> None:
        """`settings`: lines of the aggregator's file after its `[aggregator]`. `seal`: seconds of a
        period of the store."""
        self._stack = ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory(prefix="kilowatch-bench-")))
        self.port = free_port()
        self.http = f"127.0.0.1:{free_port()}"
        self._settings, self._seal = settings, seal
        self.pids: dict[str, int] = {}
        self.generator: subprocess.Popen[str] | None = None
        self._start_broker(broker)

    def __enter__(self) -> Testbed:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def _start_broker(self, broker: str) -> None:
        if broker == "embedded":
            embedded = EmbeddedBroker("127.0.0.1", self.port, self.folder)
            embedded.start()
            self._stack.callback(embedded.stop)
            assert embedded.pid is not None
            self.pids["broker"] = embedded.pid
        else:
            file = self.folder / "mosquitto.conf"
            file.write_text(
                f"listener {self.port} 127.0.0.1\nallow_anonymous true\npersistence false\n"
                "max_queued_messages 100000\nsys_interval 1\nlog_type error\n"
                + ("user root\n" if os.geteuid() == 0 else "")
            )
            binary = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
            self.start("broker", [binary, "-c", str(file)])
        wait_for_port(self.port)

    def start(
        self, name: str, command: list[str], environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        """Start a process that is ended with the testbed."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self._stack.callback(end, process)
        self.pids[name] = process.pid
        return process

    def log(self, name: str) -> str:
        """Return the log of a process."""
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def start_aggregator(self) -> None:
        """Start `kilowatch aggregate` and wait until it listens to the broker."""
        self.launch_aggregator()
        wait_until("the aggregator", lambda: self.page().own("bus_connected") == 1)

    def launch_aggregator(self) -> int:
        """Start `kilowatch aggregate` and return its process."""
        file = self.folder / "aggregator.toml"
        file.write_text(
            f'cluster = "{CLUSTER}"\n[broker]\nport = {self.port}\n[aggregator]\n'
            f'listen = "{self.http}"\ndata_dir = "{self.folder / "data"}"\n'
            f"budgets.newcomers = {FLEET}\nbudgets.newcomer_bytes = {FLEET * INVENTORY_BYTES * PLACED_SHARE}\n"
            f"store.seal_seconds = {self._seal}\n{self._settings}\n"  # it may end in a table
        )
        self._aggregator = self.start(
            "aggregator", [sys.executable, "-m", "kilowatch", "aggregate", "--config", str(file)]
        )
        return self._aggregator.pid

    def kill_aggregator(self) -> None:
        """End the aggregator at once."""
        self._aggregator.kill()
        self._aggregator.wait()

    def end_aggregator(self) -> None:
        """End the aggregator in order, so that it stores what it has."""
        end(self._aggregator)

    def start_generator(self, **options: int) -> None:
        """Start `bench.generator` and wait until it has introduced its nodes."""
        command = [sys.executable, "-m", "bench.generator", "--port", str(self.port)]
        for name, value in options.items():
            command += [f"--{name.replace('_', '-')}", str(value)]
        self.generator = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._stack.callback(self._close_generator)
        self.pids["generator"] = self.generator.pid
        self.expect("ready")

    def expect(self, word: str, meanwhile: Callable[[], object] | None = None, every: float = MEANWHILE) -> None:
        """Wait until the generator prints a word; call `meanwhile` every so many seconds."""
        assert self.generator is not None
        assert self.generator.stdout is not None
        while meanwhile and not select.select([self.generator.stdout], [], [], every)[0]:
            meanwhile()
        line = self.generator.stdout.readline().strip()
        if line != word:
            raise RuntimeError(f"the generator printed {line!r} instead of {word!r}")

    def proceed(self) -> None:
        """Signal the generator to begin, or to end."""
        assert self.generator is not None
        assert self.generator.stdin is not None
        self.generator.stdin.write("\n")
        self.generator.stdin.flush()

    def end_generator(self) -> dict[str, Any]:
        """End the generator and return its figures."""
        assert self.generator is not None
        assert self.generator.stdout is not None
        self.proceed()
        found: dict[str, Any] = json.loads(self.generator.stdout.readline())
        self.generator.wait(30)
        return found

    def _close_generator(self) -> None:
        if self.generator is not None:
            end(self.generator)
            for pipe in (self.generator.stdin, self.generator.stdout):
                if pipe is not None:
                    pipe.close()

    def page(self) -> ScrapedPage:
        """Return the aggregator's `/metrics`; an empty page while it does not serve."""
        try:
            with urllib.request.urlopen(f"http://{self.http}/metrics", timeout=30) as answer:
                return ScrapedPage(answer.read().decode())
        except (urllib.error.URLError, OSError):
            return ScrapedPage("")

    def awaited_page(self, patience: float = 120.0) -> ScrapedPage:
        """Return `/metrics`, however busy the aggregator is. Raises `TimeoutError`."""
        deadline = time.monotonic() + patience
        while not (page := self.page()):
            if time.monotonic() > deadline:
                raise TimeoutError(f"/metrics did not come within {patience:.0f} s")
            time.sleep(0.2)
        return page

    def wait_until_stored(self, frames: int, patience: float = 60.0) -> None:
        """Wait until so many frames are stored, or their number has not changed for `patience`
        seconds; the audit then finds what is missing."""
        seen, moved = -1.0, time.monotonic()
        while True:
            stored = self.page().own("frames_stored_total")
            if stored > seen:
                seen, moved = stored, time.monotonic()
            if stored >= frames or time.monotonic() > moved + patience:
                return
            time.sleep(0.5)

    def audit(self) -> dict[str, int]:
        """Count in the store itself, after the aggregator has ended."""
        return audit(self.folder / "data")
