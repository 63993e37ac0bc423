"""Remote write: right bytes, and taken by real receivers; what is not taken is counted."""

from __future__ import annotations

import asyncio
import shutil
import struct
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aggregator.remote.encode import STALE, labels_key, labels_of, name_key, samples, snappy
from aggregator.remote.push import Gatherer, Pusher
from aggregator.settings.remote_write import RemoteWriteConfig
from telemetry.errors import ConfigError
from telemetry.wire.exposition import labels
from telemetry.wire.protobuf import varint
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import small_cluster
from tests.aggregator.test_http_prometheus import Prometheus
from tests.brokers import free_port, wait_for_port
from tests.influxes import Reply, Request, Scripted, VictoriaMetrics
from tests.kit import waiting


def unpacked(block: bytes) -> bytes:
    """Read a snappy block of literals, by its specification."""
    length = shift = at = 0
    while True:
        byte = block[at]
        at += 1
        length |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    out = bytearray()
    while at < len(block):
        tag = block[at]
        assert tag & 3 == 0, "a literal"
        size, more = tag >> 2, 0
        at += 1
        if size >= 60:
            more = size - 59
            size = int.from_bytes(block[at : at + more], "little")
        at += more
        out += block[at : at + size + 1]
        at += size + 1
    assert len(out) == length
    return bytes(out)


@given(st.binary(max_size=300) | st.integers(0, 200_000).map(lambda n: b"ab" * n))
def test_what_was_packed_is_unpacked(body: bytes) -> None:
    assert unpacked(snappy(body)) == body


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]\w{0,8}", fullmatch=True),
        st.text(st.characters(exclude_categories=["Cc", "Cs"]) | st.just("\n"), min_size=1),
        max_size=4,
    )
)
def test_labels_come_back_from_a_page_as_they_were(pairs: dict[str, str]) -> None:
    assert labels_of(labels(pairs)) == pairs


def test_a_control_character_is_in_no_label() -> None:
    assert labels_of(labels({"slot": "7\0\x1f\x7f"})) == {"slot": "7"}


def test_bytes_are_those_of_the_message() -> None:
    """Written out by hand from the field numbers of WriteRequest."""
    key = name_key("up") + labels_key('{node="n1"}', {"job": "k"})
    name = b"\x0a\x08__name__\x12\x02up"
    job, node = b"\x0a\x03job\x12\x01k", b"\x0a\x04node\x12\x02n1"
    assert key == b"".join(b"\x0a" + bytes([len(each)]) + each for each in (name, job, node))
    (series,) = samples([(key, struct.pack("<d", 1.5))], 300)
    sample = b"\x09" + struct.pack("<d", 1.5) + b"\x10\xac\x02"
    body = key + b"\x12" + bytes([len(sample)]) + sample
    assert series == b"\x0a" + bytes([len(body)]) + body
    assert varint(300) == b"\xac\x02"


@asynccontextmanager
async def pushing(view: FakeView, url: str, **more: Any) -> AsyncIterator[None]:
    """Push every second for as long as the block runs, in the real time of now."""
    pusher = Pusher(view, RemoteWriteConfig(url=url, every_seconds=1.0, **more))
    task = asyncio.create_task(pusher.run())
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def until(ready: Callable[[], Any], seconds: float = 30.0) -> Any:
    """Wait until something is true, asked in a thread: it asks a server. Return it."""
    return await waiting.until(lambda: asyncio.to_thread(ready), "", seconds, every=0.05)


async def test_a_real_victoria_metrics_has_what_the_pages_show(tmp_path: Path) -> None:
    server = VictoriaMetrics(tmp_path / "vm")
    server.start()
    try:
        view = await small_cluster()
        async with pushing(view, f"{server.url}/api/v1/write"):
            match = '{__name__="kilowatch_gpu_power_watts"}'
            found = await until(lambda: server.series(match))
            assert {(s["metric"]["node"], s["metric"]["gpu"]): s["values"][0] for s in found} == {
                ("n1", "0"): 300.25, ("n1", "1"): 301.25, ("n2", "0"): 300.25, ("n2", "1"): 301.25,
            }  # fmt: skip
            assert found[0]["metric"]["job"] == "kilowatch"
            assert await until(lambda: server.series('{__name__="kilowatch_cluster_nodes"}'))
            bucket = "kilowatch_aggregator_shown_lag_seconds_bucket"
            assert await until(lambda: server.series(f'{{__name__="{bucket}"}}'))
            await until(lambda: view.stats.remote_samples > 100)
            assert view.stats.remote_dropped == view.stats.remote_errors == 0
    finally:
        server.kill()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
async def test_a_real_prometheus_sees_a_series_end(tmp_path: Path) -> None:
    import aiohttp

    port = free_port()
    (tmp_path / "prometheus.yml").write_text("global: {}\n")
    process = await asyncio.create_subprocess_exec(
        "prometheus",
        f"--config.file={tmp_path / 'prometheus.yml'}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-remote-write-receiver",
        "--log.level=error",
    )
    try:
        await asyncio.to_thread(wait_for_port, port)
        view = await small_cluster()
        async with pushing(view, f"http://127.0.0.1:{port}/api/v1/write"), aiohttp.ClientSession() as session:
            server = Prometheus(session, port)
            at = f"@ {view.wall() / 1e9 + 3:.3f}"
            watts = f"kilowatch_gpu_power_watts {at}"

            async def count(wanted: int) -> None:
                ends = waiting.end_of_patience()
                while time.monotonic() < ends:
                    with suppress(aiohttp.ClientError):
                        if len(await server.query(watts)) == wanted:
                            return
                    await asyncio.sleep(0.1)
                raise TimeoutError(f"{await server.query(watts)}")

            await count(4)
            view.monotonic += 1
            view.fleet.nodes["n2"].online = False
            await count(2)
    finally:
        process.kill()
        await process.wait()


async def test_what_ends_is_said_once() -> None:
    view = await small_cluster()
    gatherer = Gatherer(view)
    first = b"".join(unpacked(body) for body, _ in gatherer.requests(await gatherer.snapshots(), 1))
    assert STALE not in first
    view.fleet.nodes["n2"].online = False
    ended = b"".join(unpacked(body) for body, _ in gatherer.requests(await gatherer.snapshots(), 2))
    assert ended.count(STALE) > 50
    assert STALE not in b"".join(unpacked(b) for b, _ in gatherer.requests(await gatherer.snapshots(), 3))


async def test_an_outage_is_bridged_and_what_is_refused_is_counted() -> None:
    status = [503]
    server = Scripted(lambda _request: Reply(status[0], "as you like"))
    try:
        view = await small_cluster()
        async with pushing(view, f"{server.url}/write", waiting=2):
            await until(lambda: view.stats.remote_dropped > 0)
            assert view.stats.remote_errors >= 2
            assert view.stats.remote_samples == 0
            status[0] = 204
            await until(lambda: view.stats.remote_samples > 0)
            dropped = view.stats.remote_dropped
            status[0] = 400
            await until(lambda: view.stats.remote_dropped > dropped)
        request: Request = server.requests[0]
        assert request.headers["Content-Encoding"] == "snappy"
        assert request.headers["X-Prometheus-Remote-Write-Version"] == "0.1.0"
    finally:
        server.close()


@pytest.mark.parametrize(
    ("settings", "wrong"),
    [
        ({"url": "victoria:8428"}, "is no address"),
        ({"url": "http://a/w", "every_seconds": 0.1}, "at least 1"),
        ({"url": "http://a/w", "waiting": 0}, "1 to 10000"),
    ],
)
def test_what_cannot_work_is_said(settings: dict[str, Any], wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong):
        RemoteWriteConfig(**settings).check("aggregator.remote_write")


def test_a_token_is_sent_and_a_missing_file_is_said(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("secret\n")
    config = RemoteWriteConfig(url="http://a/w", token_file=tmp_path / "token")
    assert config.headers()["Authorization"] == "Bearer secret"
    with pytest.raises(ConfigError, match="token_file"):
        RemoteWriteConfig(url="http://a/w", token_file=tmp_path / "no").headers()
