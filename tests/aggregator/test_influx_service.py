"""The whole aggregator with InfluxDB as its store, on a real broker and a real server."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from msgspec.structs import replace

from aggregator.config import AggregatorConfig, StoreConfig, StoreKind
from aggregator.influx.store import InfluxStore
from aggregator.settings.influx import InfluxConfig
from telemetry.wire.mqtt import BrokerConfig
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.influx_feed import LONG, influx_config, prepared
from tests.aggregator.node import ScriptedNode, expected, now, sampled_at
from tests.aggregator.test_service import config, running
from tests.brokers import Mosquitto, free_port
from tests.influxes import Influxd, Reply, Request, Scripted
from tests.kit.waiting import until

POWER = SCHEMA.blocks[GPU_FAST].names.index("gpu_power_watts")
FULL = {"every_seconds": 0.0, "rollup_seconds": (), "rollup_age_seconds": ()}


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Influxd]:
    """A server of one's own, to kill."""
    server = Influxd(tmp_path / "influxd")
    server.start()
    yield server
    server.kill()


def influx(base: AggregatorConfig, store: InfluxConfig) -> AggregatorConfig:
    """The same aggregator with another store."""
    kept = StoreConfig(kind=StoreKind.INFLUXDB, influxdb=store, write_seconds=0.1)
    return replace(base, store=kept)


def from_parts(port: int, folder: Path, url: str, database: str) -> AggregatorConfig:
    """The settings of a process that is to be killed."""
    store = InfluxConfig(
        url=url,
        database=database,
        every_seconds=0.0,
        rollup_seconds=(),
        rollup_age_seconds=(),
        raw_age_seconds=LONG,
        events_age_seconds=LONG,
    )
    return influx(config(BrokerConfig(port=port), folder), store)


PROGRAM = """
import sys
from pathlib import Path
from tests.aggregator.mortal import live
from tests.aggregator.test_influx_service import from_parts

live(from_parts(int(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
"""


async def test_kill_9_of_both_with_a_spool_that_waits_loses_and_doubles_nothing(
    mosquitto: Mosquitto, tmp_path: Path, server: Influxd
) -> None:
    folder = tmp_path / "data"
    store = prepared(server.url, **FULL)
    async with ScriptedNode(mosquitto.config, "a") as node:
        over = asyncio.Event()

        async def tick() -> None:
            while not over.is_set():
                await node.tick()
                await asyncio.sleep(0.01)

        ticking = asyncio.create_task(tick())
        for kill in range(3):
            server.kill()  # what comes now waits in the spool
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                PROGRAM,
                str(mosquitto.port),
                str(folder),
                server.url,
                store.database,
                cwd=Path(__file__).parents[2],
                stdout=subprocess.PIPE,
            )
            assert process.stdout is not None
            commits = 0
            while commits < 3 + kill:
                line = await asyncio.wait_for(process.stdout.readline(), 60)
                commits += json.loads(line) > 0
            process.send_signal(signal.SIGKILL)
            await process.wait()
            assert any(path.stat().st_size for path in (folder / "spool").glob("*.spool"))
            server.start()
        over.set()
        await asyncio.wait_for(ticking, 10)
        ours = influx(config(mosquitto.config, folder), store)
        async with running(ours) as aggregator:
            await until(lambda: aggregator.stats.bus_connected)
            await node.hello()
            await node.tick()
            made = node.made[1]
            assert aggregator._ingest is not None
            ledger = aggregator._ingest.ledger

            def whole() -> bool:
                account = ledger.find("a", 1)
                return account is not None and len(account.have) == made

            await until(whole)

            def stored() -> list[list[Any]]:
                text = "select gpu_power_watts from gpu where gpu = '1'"
                return server.rows(text, store.database)

            await until(lambda: len(stored()) >= made)
        found = stored()
    assert [row[0] * 10**6 for row in found] == [sampled_at(seq, now()) for seq in range(made)]
    assert [row[1] for row in found] == expected("a", 1, range(made))[:, POWER].tolist()


async def test_without_a_server_everything_but_history_goes_on(mosquitto: Mosquitto, tmp_path: Path) -> None:
    away = influx_config(f"http://127.0.0.1:{free_port()}", **FULL)
    base = config(mosquitto.config, tmp_path / "data", "127.0.0.1:0")
    async with (
        running(influx(base, away)) as aggregator,
        ScriptedNode(mosquitto.config, "a") as node,
        aiohttp.ClientSession() as session,
    ):
        for _ in range(20):
            await node.tick()
            await asyncio.sleep(0.01)
        await until(lambda: aggregator.stats.frames_stored == 20)
        assert aggregator.stats.store_ok
        assert aggregator.fleet.nodes["a"].seq == 19
        assert aggregator.http_address is not None
        host, port = aggregator.http_address
        asked = {"gpu": "GPU-a-0", "metric": "gpu_power_watts", "step": "10s",
                 "from": str(now() // 10**9), "to": str(now() // 10**9 + 60)}  # fmt: skip
        url = f"http://{host}:{port}"
        async with session.get(f"{url}/api/v1/history", params=asked) as answer:
            assert answer.status == 503
            assert "nothing listens there" in await answer.text()
        async with session.get(f"{url}/metrics") as answer:
            text = await answer.text()
        assert "kilowatch_influxdb_connected 0" in text
        assert "kilowatch_aggregator_store_ok 1" in text

        def told() -> dict[str, str]:
            return {alert.rule: alert.summary for alert in aggregator.alerts()}

        await until(lambda: "nothing listens" in told().get("influxdb_failing", ""))


async def test_history_and_past_over_http_come_from_the_server(
    mosquitto: Mosquitto, tmp_path: Path, influxd: Influxd
) -> None:
    base = config(mosquitto.config, tmp_path / "data", "127.0.0.1:0")
    async with (
        running(influx(base, prepared(influxd.url, **FULL))) as aggregator,
        ScriptedNode(mosquitto.config, "a") as node,
        aiohttp.ClientSession() as session,
    ):
        for _ in range(20):
            await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 20)
        store = aggregator.store._store
        assert isinstance(store, InfluxStore)
        await until(lambda: store.sender.metrics.delivered == 60)
        assert aggregator.http_address is not None
        host, port = aggregator.http_address
        asked = {"gpu": "GPU-a-0", "metric": "gpu_power_watts", "step": "10s",
                 "from": str(now() // 10**9), "to": str(now() // 10**9 + 60)}  # fmt: skip
        api = f"http://{host}:{port}/api/v1"
        async with session.get(f"{api}/history", params=asked) as answer:
            body = await answer.json()
        pages = []
        for second in (12.4, 21.9, 22.1):  # the last frame is of second 19, and holds for three
            at = {"at": str(now() / 10**9 + second)}
            async with session.get(f"{api}/nodes/a", params=at) as answer:
                pages.append(await answer.json())
    assert [page["node"]["state"] for page in pages] == ["online", "online", "stale"]
    ages = [page["node"]["age_seconds"] for page in pages]
    assert ages == [pytest.approx(0.4, abs=1e-3), pytest.approx(2.9, abs=1e-3), None]
    powers = [page["gpus"][1]["readings"].get("gpu_power_watts") for page in pages]
    assert powers == [*expected("a", 1, [12, 19])[:, POWER].tolist(), None]
    values = expected("a", 0, range(20))[:, POWER]
    assert body["mean"] == [values[:10].mean(), values[10:].mean()]
    assert (body["low"][0], body["high"][1]) == (values.min(), values.max())


async def test_questions_to_a_server_that_hangs_hold_up_no_commit(mosquitto: Mosquitto, tmp_path: Path) -> None:
    over = threading.Event()

    def answer(_: Request) -> Reply:
        over.wait(30)
        return Reply(200, '{"results": [{}]}')

    server = Scripted(answer)
    base = config(mosquitto.config, tmp_path / "data", "127.0.0.1:0")
    async with (
        running(influx(base, influx_config(server.url, **FULL))) as aggregator,
        ScriptedNode(mosquitto.config, "a") as node,
        aiohttp.ClientSession() as session,
    ):
        await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 1)
        assert aggregator.http_address is not None
        host, port = aggregator.http_address
        url = f"http://{host}:{port}"
        asked = {"gpu": "GPU-a-0", "metric": "gpu_power_watts", "step": "10s"}

        async def ask() -> int:
            async with session.get(f"{url}/api/v1/history", params=asked) as reply:
                return reply.status

        questions = [asyncio.create_task(ask()) for _ in range(10)]
        await until(lambda: any(request.path == "/query" for request in server.requests))
        for _ in range(20):
            await node.tick()
        await until(lambda: aggregator.stats.frames_stored == 21)
        async with session.get(f"{url}/metrics") as page:
            assert page.status == 200
        assert not any(question.done() for question in questions)
        over.set()
        assert await asyncio.gather(*questions) == [200] * 10
    server.close()
