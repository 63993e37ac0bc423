"""The dashboard on 10,000 GPUs, in a real terminal: CPU, lag, bytes, and the delay from a key to the screen.

python -m bench.dashboard [--nodes 1250] [--seconds 20] [--size 160x50]
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing.connection import wait
from pathlib import Path
from typing import Self

from bench.report import show

_CHILD = """
import os, sys
os.environ["TEXTUAL_ANIMATIONS"] = "none"
from tui.top import prepare, settle  # as `kilowatch top` does
prepare()
import asyncio, json, time
from tui.app import Top
class Probed(Top):
    def on_ready(self):
        self.found = []
        self.run_worker(self.probe())
    async def probe(self):
        while True:
            began, busy = time.perf_counter(), time.thread_time()
            await asyncio.sleep(0.02)
            self.found.append((time.perf_counter() - began - 0.02, time.thread_time() - busy))
app = Probed(sys.argv[1], settled=settle)
app.run()
open(sys.argv[2], "w").write(json.dumps(app.found))
"""
LIVE = "● LIVE".encode()


@dataclass(frozen=True)
class Result:
    """Result of a measurement."""

    size: str
    gpus: int
    cpu_ms_per_second: float
    """CPU of the dashboard's process, after it has settled."""
    lag_ms_worst: float
    """Lag of the event loop, sampled 50 times a second."""
    lag_ms_99: float
    own_ms_worst: float
    """CPU that the loop spent between two samples: its lag without that of other processes."""
    kilobytes_per_second: float
    """Bytes written to the terminal."""
    first_paint_seconds: float
    """Time from exec to the first live header."""
    first_paint_cpu_seconds: float
    """CPU until the first live header."""
    key_ms_median: float
    """Time from a key to the first byte of the change."""
    key_ms_worst: float
    rss_megabytes: float


@contextmanager
def served_fleet(nodes: int) -> Iterator[str]:
    """Run a fleet in a process of its own; yields its URL."""
    with subprocess.Popen(
        [sys.executable, "-m", "bench.live_fleet", "--nodes", str(nodes)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class Terminal:
    """A pseudo-terminal with the dashboard in it."""

    def __init__(self, url: str, columns: int, rows: int, answer: Path) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.began = time.perf_counter()
        environment = {k: v for k, v in os.environ.items() if k not in {"NO_COLOR", "SSH_CONNECTION"}}
        self.process = subprocess.Popen(
            [sys.executable, "-c", _CHILD, url, str(answer)],
            stdin=theirs, stdout=theirs, stderr=theirs, close_fds=True,
            env=environment | {"TERM": "xterm-256color", "COLORTERM": "truecolor"},
        )  # fmt: skip
        os.close(theirs)
        self.file = ours

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """End the dashboard, if it has not ended."""
        self.process.kill()
        self.process.wait()
        os.close(self.file)

    def read(self, seconds: float, word: bytes | None = None) -> int:
        """Read for a time, or until a word arrives. Returns the number of bytes."""
        end = time.perf_counter() + seconds
        count = 0
        tail = b""
        while (left := end - time.perf_counter()) > 0:
            if wait([self.file], left):
                came = os.read(self.file, 1 << 20)
                count += len(came)
                tail = tail[-64:] + came
                if word is not None and word in tail:
                    break
        return count

    def cpu(self) -> float:
        """Return the CPU seconds of the process."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def rss(self) -> float:
        """Return the resident memory in megabytes."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("VmRSS")) / 1024

    def key(self, key: bytes) -> float:
        """Press a key while the dashboard is idle; return the milliseconds to the first byte of the reply."""
        while wait([self.file], 0.12):
            os.read(self.file, 1 << 20)
        began = time.perf_counter()
        os.write(self.file, key)
        wait([self.file], 2.0)
        return 1e3 * (time.perf_counter() - began)


def measure(nodes: int, seconds: float, columns: int, rows: int, *, settling: float = 8.0) -> Result:
    """Run the measurement. `settling`: seconds in which first layouts are made and all documents come."""
    with served_fleet(nodes) as url, tempfile.TemporaryDirectory() as folder:
        answer = Path(folder) / "lags"
        with Terminal(url, columns, rows, answer) as terminal:
            terminal.read(60.0, LIVE)
            first = time.perf_counter() - terminal.began
            started = terminal.cpu()
            terminal.read(settling)
            cpu, began = terminal.cpu(), time.perf_counter()
            count = terminal.read(seconds)
            passed = time.perf_counter() - began
            used = (terminal.cpu() - cpu) / passed
            keys = [terminal.key(key) for key in (b"l", b"j", b"l", b"j", b"h", b"k") * 3]
            rss = terminal.rss()
            os.write(terminal.file, b"q")
            terminal.read(10.0, b"\x1b[?1049l")
            terminal.process.wait(20)
        samples = json.loads(answer.read_text())[int(25 * settling) :]
        lags = sorted(lag for lag, _ in samples)
    return Result(
        size=f"{columns}x{rows}",
        gpus=nodes * 8,
        cpu_ms_per_second=round(1e3 * used, 1),
        lag_ms_worst=round(1e3 * lags[-1], 1),
        lag_ms_99=round(1e3 * lags[len(lags) * 99 // 100], 1),
        own_ms_worst=round(1e3 * max(busy for _, busy in samples), 1),
        kilobytes_per_second=round(count / passed / 1e3, 1),
        first_paint_seconds=round(first, 2),
        first_paint_cpu_seconds=round(started, 2),
        key_ms_median=round(statistics.median(keys), 1),
        key_ms_worst=round(max(keys), 1),
        rss_megabytes=round(rss, 1),
    )


def main(arguments: Sequence[str]) -> int:
    """Measure, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.dashboard", description=__doc__)
    parser.add_argument("--nodes", type=int, default=1250)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--size", default="160x50")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    columns, rows = map(int, options.size.split("x"))
    found = measure(options.nodes, options.seconds, columns, rows)
    show(asdict(found), as_json=options.json)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
