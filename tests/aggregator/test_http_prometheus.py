"""A real Prometheus finds the nodes by service discovery, scrapes them, and ends what ended."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from aggregator.access.tokens import AccessScope
from aggregator.assembly.http_server import listening
from aggregator.http.config import HttpConfig
from telemetry.gap import DEVICE_LOST
from telemetry.metric import Table
from telemetry.wire.schema import SCHEMA
from tests.aggregator.fake_view import FakeView, inventory, readings
from tests.aggregator.http_client import Door, add_token, door, small_cluster
from tests.aggregator.test_http_tls import issue, make_authority
from tests.brokers import free_port
from tests.kit.waiting import FACTOR, within

PATIENCE = 90.0
"""Seconds; a second or two where the machine is idle."""


async def test_every_node_is_a_target_with_its_own_labels() -> None:
    """In the form of Prometheus' http_sd; names are escaped in the path."""
    view = await small_cluster()
    view.add(inventory("rack1:n3"))
    async with door(view) as client:
        status, body = await client.json("/sd/prometheus")
        assert status == 200
        assert [each["targets"] for each in body] == [[f"127.0.0.1:{client.port}"]] * 3
        assert body[0]["labels"] == {
            "__metrics_path__": "/metrics/node/n1",
            "__param_labels": "device",
            "__meta_kilowatch_node": "n1",
            "__meta_kilowatch_cluster": "lab",
            "__meta_kilowatch_source": "simulated:test",
            "cluster": "lab",
            "instance": "n1",
            "node": "n1",
        }
        path = body[2]["labels"]["__metrics_path__"]
        status, text, _ = await client.text(path)
        assert status == 200
        assert 'node="rack1:n3"' in text
        _, body = await client.json("/sd/prometheus", headers={"Host": "localhost:7"})
        assert body[0]["targets"] == ["localhost:7"]


class Prometheus:
    """A client of a running Prometheus."""

    def __init__(self, session: aiohttp.ClientSession, port: int) -> None:
        self._session, self._url = session, f"http://127.0.0.1:{port}/api/v1/query"

    async def query(self, expression: str) -> list[tuple[dict[str, str], float]]:
        """Return labels and value of each series."""
        async with self._session.get(self._url, params={"query": expression}) as answer:
            body: dict[str, Any] = await answer.json()
        return [(each["metric"], float(each["value"][1])) for each in body["data"]["result"]]


def discovering(client: Door, discovery: str = "/sd/prometheus") -> str:
    """Return the settings of a Prometheus that scrapes twice a second what is discovered."""
    return (
        "global: {scrape_interval: 500ms, scrape_timeout: 500ms}\n"
        "scrape_configs:\n"
        "- job_name: kilowatch\n"
        f"  http_sd_configs: [{{url: '{client.url}{discovery}', refresh_interval: 1s}}]\n"
        "- job_name: kilowatch-aggregator\n"
        f"  static_configs: [{{targets: ['127.0.0.1:{client.port}']}}]\n"
    )


@asynccontextmanager
async def prometheus(folder: Path, settings: str) -> AsyncIterator[Prometheus]:
    """Run Prometheus."""
    port = free_port()
    (folder / "prometheus.yml").write_text(settings)
    with (folder / "prometheus.log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            "prometheus",
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
            "--log.level=warn",
            stdout=log,
            stderr=log,
        )
    try:
        async with aiohttp.ClientSession() as session:
            await _ready(session, port)
            yield Prometheus(session, port)
    finally:
        process.kill()
        await process.wait()


async def _ready(session: aiohttp.ClientSession, port: int) -> None:
    """Wait until it answers queries: while it reads its data, it answers 503 in plain text."""
    async with within(PATIENCE):
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"http://127.0.0.1:{port}/-/ready") as answer:
                    if answer.status == 200:
                        return
            await asyncio.sleep(0.05)


async def until(view: FakeView, look: Callable[[], Any]) -> Any:
    """Tick until `look` returns something true; return that."""
    deadline = asyncio.get_running_loop().time() + PATIENCE * FACTOR
    seq = view.flushes.number
    while asyncio.get_running_loop().time() < deadline:
        seq += 1
        await beat(view, seq)
        try:
            found = await look()
        except (aiohttp.ClientError, KeyError, TimeoutError):
            found = None  # it is still starting
        if found:
            return found
        await asyncio.sleep(0.1)
    raise TimeoutError(f"not seen within {PATIENCE} s")


async def beat(view: FakeView, seq: int) -> None:
    """A frame of every node that is online; a GPU that is gone has only gaps."""
    view.monotonic += 0.1
    for name, node in view.fleet.nodes.items():
        if node.online:
            blocks = readings(node.inventory, 0)
            for number, block in enumerate(SCHEMA.blocks):
                if block.table is Table.GPU:
                    for row, gpu in enumerate(node.inventory.gpus):
                        if not gpu.present:
                            blocks[number][row] = [DEVICE_LOST] * len(block.names)
            view.put(name, blocks, seq)
    await view.flush()


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
async def test_prometheus_scrapes_node_by_node_and_a_gpu_that_vanishes_goes_stale(tmp_path: Path) -> None:
    """`up` and `instance` are the node's, labels are not doubled, and old watts end."""
    view = await small_cluster()
    async with door(view) as client, prometheus(tmp_path, discovering(client)) as server:

        async def both_up() -> bool:
            up = await server.query('up{job="kilowatch"} == 1')
            return {labels["instance"] for labels, _ in up} == {"n1", "n2"}

        await until(view, both_up)
        watts = await until(view, lambda: server.query('kilowatch_gpu_power_watts{node="n1"}'))
        assert {labels["gpu"]: value for labels, value in watts} == {"0": 300.25, "1": 301.25}
        assert watts[0][0] == {
            "__name__": "kilowatch_gpu_power_watts",
            "cluster": "lab",
            "node": "n1",
            "instance": "n1",
            "job": "kilowatch",
            "gpu": "0",
            "uuid": "GPU-n1-0",
        }
        assert await server.query("count({exported_node!=''})") == []
        assert await until(view, lambda: server.query("kilowatch_cluster_nodes{state='online'}"))

        what = view.fleet.nodes["n1"].inventory
        gpus = (what.gpus[0], msgspec.structs.replace(what.gpus[1], present=False))
        view.add(msgspec.structs.replace(what, gpus=gpus))

        async def gone() -> bool:
            left = await server.query('kilowatch_gpu_power_watts{node="n1"}')
            present = await server.query('kilowatch_gpu_present{gpu="1",node="n1"} == 0')
            return len(left) == 1 and left[0][0]["gpu"] == "0" and len(present) == 1

        await until(view, gone)

        view.fleet.nodes["n2"].online = False

        async def down() -> bool:
            left = await server.query('{node="n2",__name__=~"kilowatch_gpu_.*"}')
            return not left and bool(await server.query('kilowatch_node_up{node="n2"} == 0'))

        await until(view, down)
        assert await server.query('up{instance="n2"}')  # the scrape itself goes on


SHIPPED = Path(__file__).parents[2] / "deploy" / "prometheus" / "prometheus.yml"


@pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("openssl") is None, reason="apt-get install prometheus openssl"
)
@pytest.mark.parametrize("shown", [True, False], ids=["with the token", "without"])
async def test_the_shipped_settings_scrape_over_https_with_a_token(tmp_path: Path, shown: bool) -> None:
    """By the lines that are comments in them."""
    authority = make_authority(tmp_path)
    cert, key = issue(authority, tmp_path / "tls", 7)
    tokens, secret = tmp_path / "tokens.json", tmp_path / "kilowatch.token"
    secret.write_text(add_token(tokens, "prometheus", AccessScope.READ))
    config = HttpConfig(listen="127.0.0.1:0", anonymous_read=False, tokens_file=tokens, tls_cert=cert, tls_key=key)
    view = await small_cluster()
    async with listening(view, config) as (_, port):
        text = SHIPPED.read_text().replace("#S ", "").replace("#T " if shown else "nothing", "")
        text = text.partition("rule_files")[0]
        for old, new in (
            ("/etc/prometheus/kilowatch.token", str(secret)),
            ("/etc/prometheus/kilowatch-ca.crt", str(authority / "ca.crt")),
            ("http://127.0.0.1:9400", f"https://127.0.0.1:{port}"),
            ("127.0.0.1:9400", f"127.0.0.1:{port}"),
            ("interval: 15s", "interval: 1s"),
            ("refresh_interval: 30s", "refresh_interval: 1s"),
        ):
            assert old in text, old
            text = text.replace(old, new)
        async with prometheus(tmp_path, text) as server:

            async def seen() -> bool:
                up = await server.query("up")
                found = {(labels["job"], labels["instance"]): value for labels, value in up}
                if shown:
                    return found == {
                        ("kilowatch", "n1"): 1,
                        ("kilowatch", "n2"): 1,
                        ("kilowatch-aggregator", f"127.0.0.1:{port}"): 1,
                    }
                return found == {("kilowatch-aggregator", f"127.0.0.1:{port}"): 0}

            await until(view, seen)
