"""The node's own page, over real sockets."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from collector.jobs.config import JobsConfig
from collector.jobs.kubernetes import KubernetesConfig
from collector.page.metrics_page import MOST_CLIENTS, metrics_page
from collector.sampling.sampler import Newest
from collector.service import run_collector
from telemetry.errors import ConfigError
from telemetry.gap import DEVICE_LOST
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.brokers import free_port
from tests.collector.bus import collecting, config_of
from tests.fakes import FakeSource
from tests.kit.waiting import until, within
from tests.kubernetes.kubelet import listening, pod


async def ask(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(request)
        async with within():
            answer = await reader.read()
    finally:
        writer.close()
    head, _, body = answer.partition(b"\r\n\r\n")
    return int(head.split()[1]) if head else 0, body


async def listens(port: int) -> bool:
    """Return whether the page is there: its names are looked up first, which may take as long as a name server."""
    try:
        await ask(port, get("/healthz"))
    except ConnectionError:
        return False
    return True


def get(path: str, method: str = "GET") -> bytes:
    return f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:1\r\n\r\n".encode()


async def test_the_page_shows_readings_and_the_collector_itself(tmp_path: Path) -> None:
    port = free_port()
    config = config_of(BrokerConfig(port=free_port()), tmp_path, metrics_listen=f"127.0.0.1:{port}", interval=0.2)
    source = FakeSource()
    source.lose(1)
    async with collecting(config, source):
        await until(lambda: len(source.calls) >= 3)
        status, body = await ask(port, get("/metrics?x=1"))
        text = body.decode()
        assert status == 200
        assert 'kilowatch_gpu_power_watts{cluster="default",node="n1",gpu="0"' in text
        assert 'kilowatch_gpu_power_watts{cluster="default",node="n1",gpu="1"' not in text
        assert 'kilowatch_gpu_present{cluster="default",node="n1",gpu="1",uuid="GPU-0001"} 0' in text
        assert 'kilowatch_collector_frames_total{cluster="default",node="n1"}' in text
        assert "NaN" not in text
        assert await ask(port, get("/healthz")) == (200, b"ok\n")
        assert (await ask(port, get("/nothing")))[0] == 404
        assert (await ask(port, get("/metrics", "POST")))[0] == 405
        assert await ask(port, get("/metrics", "HEAD")) == (200, b"")
        assert await ask(port, b"GET /" + b"x" * 20_000 + b"\r\n\r\n") == (0, b"")
        # Many who say nothing: the rest is turned away, and when they leave all is well again.
        idle = [await asyncio.open_connection("127.0.0.1", port) for _ in range(MOST_CLIENTS)]
        try:
            status, _ = await ask(port, get("/healthz"))
            assert status == 0
        except ConnectionResetError:
            pass
        for _, writer in idle:
            writer.close()

        async def answers() -> bool:
            try:
                return (await ask(port, get("/healthz")))[0] == 200
            except ConnectionResetError:
                return False

        async with within():
            while not await answers():  # noqa: ASYNC110 - a server has no event for us
                await asyncio.sleep(0.01)


async def test_devices_of_pods_without_a_gpu_are_on_the_page_of_their_node(tmp_path: Path) -> None:
    """Of a real kubelet, by reason, for a Prometheus that asks nodes alone."""
    port, socket = free_port(), tmp_path / "kubelet.sock"
    jobs = JobsConfig(kubernetes=KubernetesConfig(socket=socket))
    config = config_of(
        BrokerConfig(port=free_port()), tmp_path, metrics_listen=f"127.0.0.1:{port}", interval=0.2, jobs=jobs
    )
    wanted = 'kilowatch_unattributed_devices{cluster="default",node="n1",source="pod-resources",reason="unknown_gpu"} 1'

    async def told() -> bool:
        return wanted in (await ask(port, get("/metrics")))[1].decode()

    with listening(socket) as kubelet:
        kubelet.pods = [pod("p", {"main": [("nvidia.com/gpu", ["GPU-of-another-node"])]})]
        async with collecting(config, FakeSource()):
            await until(lambda: listens(port))
            await until(told)


async def test_a_page_answers_to_its_own_names_alone(tmp_path: Path) -> None:
    """A web page elsewhere, whose name was made to point here, reads nothing in the browser of who sees it."""
    port = free_port()
    config = config_of(
        BrokerConfig(port=free_port()), tmp_path, metrics_listen=f"127.0.0.1:{port}", names=("gpu-1.example.org",)
    )

    async def asked(*hosts: str) -> int:
        fields = "".join(f"Host: {host}\r\n" for host in hosts)
        status, _ = await ask(port, f"GET /healthz HTTP/1.1\r\n{fields}\r\n".encode())
        return status

    async with collecting(config, source := FakeSource()):
        await until(lambda: len(source.calls) >= 2)
        await until(lambda: listens(port))
        own = f"127.0.0.1:{port}", "[::1]:9400", "localhost", "n1", "GPU-1.example.org:9400"
        assert [await asked(host) for host in own] == [200] * len(own)
        assert await asked() == 200
        foreign = ("evil.example", "n1.evil.example:9400", "127.0.0.1.evil.example", "[::1", "x@127.0.0.1.evil")
        assert [await asked(host) for host in foreign] == [421] * len(foreign)
        assert await asked("n1", "evil.example") == 421


async def test_a_page_answers_no_page_of_another_site(tmp_path: Path) -> None:
    """A browser says in the header Origin whose script asks."""
    port = free_port()
    config = config_of(BrokerConfig(port=free_port()), tmp_path, metrics_listen=f"127.0.0.1:{port}")

    async def asked(*origins: str) -> int:
        fields = "".join(f"Origin: {origin}\r\n" for origin in origins)
        text = f"GET /metrics HTTP/1.1\r\nHost: LOCALHOST:{port}\r\n{fields}\r\n"
        return (await ask(port, text.encode()))[0]

    async with collecting(config, source := FakeSource()):
        await until(lambda: len(source.calls) >= 2)
        await until(lambda: listens(port))
        assert [await asked(), await asked(f"http://localhost:{port}")] == [200, 200]
        for origin in ("http://evil.example", "null", "http://localhost:1", "", f"x@localhost:{port}"):
            assert await asked(origin) == 403, origin
        assert await asked(f"http://localhost:{port}", "http://evil.example") == 403


def test_what_is_stale_is_left_out(tmp_path: Path) -> None:
    from collector.assembly import CollectorAssembly
    from telemetry.devices import Gpu
    from telemetry.wire.inventory import Inventory

    async def page(now: float) -> str:
        parts = CollectorAssembly(config_of(BrokerConfig(), tmp_path), FakeSource(), None, None, {})
        newest = Newest(
            Inventory(node="n1", gpus=(Gpu(uuid="GPU-0", index=0, name="x"),)),
            {GPU_FAST: [[7.0, *[DEVICE_LOST] * (len(SCHEMA.blocks[GPU_FAST].names) - 1)]]},
            {GPU_FAST: 100.0},
            at=100.0,
            sampled_at=5_000_000_000,
        )
        return metrics_page(newest, parts.summary(), now, 1.0, 15.0).decode()

    name = f"kilowatch_{SCHEMA.blocks[GPU_FAST].names[0]}"
    fresh, stale = asyncio.run(page(102.9)), asyncio.run(page(103.1))
    assert f"\n{name}{{" in fresh
    assert f"\n{name}{{" not in stale
    assert 'kilowatch_node_up{node="n1",cluster="default"} 0' in stale or "node_up" in stale


async def test_the_page_has_every_reading_of_a_real_node_s_rows(tmp_path: Path) -> None:
    """Whole numbers too, which a source may give as `int`."""
    port = free_port()
    config = config_of(
        BrokerConfig(port=free_port()),
        tmp_path,
        metrics_listen=f"127.0.0.1:{port}",
        interval=0.2,
        slow_interval=0.2,
        source="simulated:two-dgx-h100/dgx-01",
    )
    async with collecting(config, None):

        async def page() -> str:
            try:
                return (await ask(port, get("/metrics")))[1].decode()
            except ConnectionError:  # not yet
                return ""

        async with within():
            while "kilowatch_node_network_mounts{" not in await page():  # noqa: ASYNC110 - a server has no event for us
                await asyncio.sleep(0.05)
        assert "kilowatch_node_cpu_temperature_celsius{" in await page()


@pytest.mark.parametrize("jobs", [True, False])
async def test_the_page_with_dcgm_exporters_names_is_a_collectors_too(
    tmp_path: Path, jobs: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """With the jobs of the node where the settings allow it, for it asks for no token."""
    port, counters = free_port(), tmp_path / "counters.csv"
    counters.write_text(
        "DCGM_FI_DEV_POWER_USAGE, gauge, watts\nDCGM_FI_DEV_XID_ERRORS, gauge, xid\nDCGM_EXP_P2P_STATUS, gauge, x\n"
        "DCGM_FI_DEV_SERIAL, label, serial\n"
    )
    config = config_of(
        BrokerConfig(port=free_port()),
        tmp_path,
        metrics_listen=f"127.0.0.1:{port}",
        interval=0.2,
        source="simulated:two-dgx-h100/dgx-01",
        metrics_jobs=jobs,
        dcgm_counters=counters,
    )
    async with collecting(config, None):

        async def page(query: str = "") -> str:
            try:
                status, body = await ask(port, get(f"/metrics/dcgm{query}"))
            except ConnectionError:  # not yet
                return ""
            return body.decode() if status == 200 else ""

        async def with_(word: str, query: str = "") -> str:
            """Return the first page with a word: between two frames that are late it has no readings."""
            async with within():
                while word not in (text := await page(query)):  # noqa: ASYNC110 - a server has no event for us
                    await asyncio.sleep(0.05)
            return text

        text = await with_("hpc_job" if jobs else "POWER_USAGE{")
        named = await with_("POWER_USAGE{", "?job_labels=no&x=1")
        other = await with_("hostname=", "?host_label=hostname")
    lines = [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_POWER_USAGE{")]
    assert len(lines) == 8
    assert all('Hostname="n1"' in line and "DCGM_FI_DEV_SERIAL=" in line for line in lines)
    assert all(("hpc_job=" in line) == jobs for line in lines)
    assert text.count('err_code="0",err_msg="No Error"} 0') == 8
    assert "hpc_job" not in named
    assert 'hostname="n1"' in other
    assert f"{counters}:3: DCGM_EXP_P2P_STATUS is not served" in caplog.text


async def test_the_last_xid_of_a_gpu_is_on_the_page_with_dcgm_exporters_names(tmp_path: Path) -> None:
    port = free_port()
    config = config_of(BrokerConfig(port=free_port()), tmp_path, metrics_listen=f"127.0.0.1:{port}", interval=0.2)
    source = FakeSource()
    for number in (13, 79):
        source.add_event("xid", gpu="GPU-0001", xid=number)
    async with collecting(config, source):
        await until(lambda: len(source.calls) >= 3)
        _, body = await ask(port, get("/metrics/dcgm"))
    xids = [line for line in body.decode().splitlines() if line.startswith("DCGM_FI_DEV_XID")]
    assert [line.rpartition(" ")[2] for line in xids] == ["0", "79"]
    assert 'err_code="79",err_msg="XID 79"' in xids[1]


async def test_a_page_that_cannot_be_made_is_an_answer_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object) -> bytes:
        raise ArithmeticError("planted")

    port = free_port()
    config = config_of(BrokerConfig(port=free_port()), tmp_path, metrics_listen=f"127.0.0.1:{port}", interval=0.2)
    source = FakeSource()
    monkeypatch.setattr("collector.page.metrics_page.metrics_page", fails)
    async with collecting(config, source):
        await until(lambda: len(source.calls) >= 3)
        status, body = await ask(port, get("/metrics"))
        assert (status, body) == (500, b"the page could not be made; the collector's log says why\n")
        assert (await ask(port, get("/healthz")))[0] == 200
    assert "planted" in caplog.text


async def test_a_port_that_is_taken_is_an_error_of_configuration(tmp_path: Path) -> None:
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        config = config_of(BrokerConfig(port=free_port()), tmp_path, metrics_listen=f"127.0.0.1:{port}")
        with pytest.raises(ConfigError, match="can't be listened on"):
            await run_collector(config, source=FakeSource())
