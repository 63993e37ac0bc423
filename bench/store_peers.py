"""The same rows in InfluxDB 1.x and VictoriaMetrics, as line protocol over their own HTTP APIs."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from bench.processes import CpuMeter, end
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.brokers import free_port, wait_for_port

if TYPE_CHECKING:
    from bench.store_ticks import Tick

PEERS = {"influxdb": "influxd", "victoria_metrics": "victoria-metrics"}
"""Programs by name."""
LINES_AT_ONCE = 5000
METRIC = "gpu_power_watts"
NAMES = SCHEMA.blocks[GPU_FAST].names
SETTLE_SECONDS = 60.0
_NANOSECOND = 1_000_000_000


def measure(
    name: str, folder: Path, wide: list[Tick], few: Iterable[Tick], span: tuple[int, int]
) -> dict[str, Any] | str:
    """Write a fleet's ticks and a few GPUs' hour, then ask for the hour of one and the top 50."""
    program = shutil.which(PEERS[name])
    if program is None:
        return "not here"
    folder.mkdir()
    port = free_port()
    command, environment = _command(name, program, folder, port)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        wait_for_port(port)
        ask = _influx(port) if name == "influxdb" else _victoria(port)
        if name == "influxdb":
            ask("query", q="create database history")
            ask("query", q="create database fleet")
        meter = CpuMeter(it=process.pid)
        meter.start()
        values, seconds = _write(port, "history", few)
        _settle(name, ask, folder)
        cost = meter.stop()["it"]
        size = _size(folder)
        start, length = span
        hour = [_timed(lambda: _hour(name, ask, start, length)) for _ in range(6)]
        wide_values, wide_seconds = _write(port, "fleet", wide)
        if name != "influxdb":
            ask("internal/force_flush")
        top = [_timed(lambda: _top(name, ask)) for _ in range(6)]
        return {
            "values": values,
            "insert_ns_per_value": seconds / values * 1e9,
            "insert_fleet_ns_per_value": wide_seconds / wide_values * 1e9,
            "cpu_ns_per_value": cost.cpu_seconds / values * 1e9,
            "bytes_per_value": size / values,
            "one_gpu_one_metric_rows": hour[0][1],
            "one_gpu_one_metric_milliseconds": min(took for took, _ in hour),
            "top_50_rows": top[0][1],
            "top_50_milliseconds": min(took for took, _ in top),
            "peak_rss_mib": cost.peak_rss_mib,
        }
    finally:
        end(process)


Ask = Callable[..., bytes]


def _command(name: str, program: str, folder: Path, port: int) -> tuple[list[str], dict[str, str]]:
    if name == "victoria_metrics":
        return [
            program, f"-storageDataPath={folder / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
            "-retentionPeriod=1", "-influxSkipMeasurement",
        ], dict(os.environ)  # fmt: skip
    settings = {
        "REPORTING_DISABLED": "true",
        "BIND_ADDRESS": f"127.0.0.1:{free_port()}",
        "HTTP_BIND_ADDRESS": f"127.0.0.1:{port}",
        "HTTP_LOG_ENABLED": "false",
        "MONITOR_STORE_ENABLED": "false",
        "META_DIR": str(folder / "data" / "meta"),
        "DATA_DIR": str(folder / "data" / "data"),
        "DATA_WAL_DIR": str(folder / "data" / "wal"),
        "DATA_CACHE_SNAPSHOT_WRITE_COLD_DURATION": "5s",
        "DATA_COMPACT_FULL_WRITE_COLD_DURATION": "10s",
    }
    config = folder / "influxdb.conf"
    config.write_text("reporting-disabled = true\n")
    named = {f"INFLUXDB_{key}": value for key, value in settings.items()}
    return [program, "-config", str(config)], os.environ | named


def _get(url: str, data: bytes | None = None) -> bytes:
    request = urllib.request.Request(url, data=data, method="GET" if data is None else "POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        found: bytes = answer.read()
        return found


def _influx(port: int) -> Ask:
    def ask(path: str, **query: str) -> bytes:
        body = urllib.parse.urlencode(query).encode()
        return _get(f"http://127.0.0.1:{port}/{path}?db={query.get('db', '')}", body)

    return ask


def _victoria(port: int) -> Ask:
    return lambda path, **query: _get(f"http://127.0.0.1:{port}/{path}?{urllib.parse.urlencode(query)}")


def lines(ticks: Iterable[Tick]) -> Iterator[bytes]:
    """Yield a line a GPU and tick: its number as tag, all readings as fields; gaps are left out."""
    for tick in ticks:
        rows = np.concatenate([tick.gauges.astype(np.float64), tick.counters], axis=1).tolist()
        for gpu, row in enumerate(rows):
            fields = ",".join(
                f"{name}={value:.7g}" if value < 1e7 else f"{name}={value!r}"
                for name, value in zip(NAMES, row, strict=True)
                if value == value  # noqa: PLR0124 - NaN: a gap
            )
            yield f"gpu,gpu={gpu},node=node-{gpu // 8} {fields} {tick.at}\n".encode()


def _write(port: int, database: str, ticks: Iterable[Tick]) -> tuple[int, float]:
    """Return how many values were written, and the wall time that the server took."""
    values, took = 0, 0.0
    batch: list[bytes] = []
    url = f"http://127.0.0.1:{port}/write?db={database}"

    def send() -> None:
        nonlocal took
        body = b"".join(batch)
        began = time.perf_counter()
        _get(url, body)
        took += time.perf_counter() - began
        batch.clear()

    for line in lines(ticks):
        batch.append(line)
        values += line.count(b"=") - 2
        if len(batch) == LINES_AT_ONCE:
            send()
    if batch:
        send()
    return values, took


def _settle(name: str, ask: Ask, folder: Path) -> None:
    """Make the server flush and merge its data."""
    if name == "victoria_metrics":
        ask("internal/force_flush")
        ask("internal/force_merge")
    deadline, last, same = time.monotonic() + SETTLE_SECONDS, -1, 0
    while time.monotonic() < deadline and same < 8:
        time.sleep(1.0)
        size = _size(folder)
        same = same + 1 if size == last else 0
        last = size


def _size(folder: Path) -> int:
    return sum(
        file.stat().st_blocks * 512  # InfluxDB lays out sparse files
        for file in (folder / "data").rglob("*")
        if file.is_file() and "wal" not in file.parts
    )


def _hour(name: str, ask: Ask, start: int, seconds: int) -> int:
    """Return how many readings one GPU's hour has."""
    finish = start + seconds * _NANOSECOND
    if name == "influxdb":
        text = f"select \"{METRIC}\" from gpu where gpu = '4' and time >= {start} and time < {finish}"
        return len(json.loads(ask("query", db="history", q=text))["results"][0]["series"][0]["values"])
    answer = ask(
        "api/v1/export",
        **{"match[]": f'{METRIC}{{gpu="4"}}'},
        start=str(start // _NANOSECOND),
        end=str(finish // _NANOSECOND),
    )
    return sum(len(json.loads(line)["values"]) for line in answer.splitlines())


def _top(name: str, ask: Ask) -> int:
    """Return how many rows the answer has."""
    if name == "influxdb":
        text = f'select top("{METRIC}", "gpu", 50) from gpu where time > now() - 5m'
        return len(json.loads(ask("query", db="fleet", q=text))["results"][0]["series"][0]["values"])
    answer = ask("api/v1/query", query=f"topk(50, {METRIC})")
    return len(json.loads(answer)["data"]["result"])


def _timed(work: Callable[[], int]) -> tuple[float, int]:
    """Return ms and the result."""
    began = time.perf_counter()
    result = work()
    return (time.perf_counter() - began) * 1e3, result
