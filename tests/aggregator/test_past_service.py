"""The past of a running aggregator: real broker, real collectors' frames, real HTTP, and a restart."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aiohttp

from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.aggregator.node import ScriptedNode, expected, now, sampled_at
from tests.aggregator.test_service import config, running
from tests.brokers import Broker
from tests.kit.waiting import until

NAMES = SCHEMA.blocks[GPU_FAST].names
POWER = NAMES.index("gpu_power_watts")
FRAMES = 30


async def fetch(address: tuple[str, int] | None, path: str) -> Any:
    """An answer of the API."""
    assert address is not None
    async with aiohttp.ClientSession() as http, http.get(f"http://{address[0]}:{address[1]}/api/v1/{path}") as answer:
        assert answer.status == 200, await answer.text()
        return await answer.json()


async def test_what_was_is_answered_while_it_runs_and_after_a_restart(broker: Broker, tmp_path: Path) -> None:
    """By the nodes' own clocks, bit for bit; questions do not hold up commits."""
    settings = config(broker.config, tmp_path / "data", "127.0.0.1:0")
    columns = "&columns=gpu_power_watts"
    async with ScriptedNode(broker.config, "a") as node:
        async with running(settings) as aggregator:
            await until(lambda: bool(aggregator.http_address) and "a" in aggregator.fleet.nodes)
            for _ in range(FRAMES):
                await node.tick()
            await until(lambda: aggregator.stats.frames_stored == FRAMES)
            for seq in (0, 7, FRAMES - 1):
                at = f"at={sampled_at(seq, now()) // 10**9}"
                body = await fetch(aggregator.http_address, f"fleet?{at}{columns}")
                wanted = [expected("a", row, [seq])[0, POWER] for row in range(2)]
                assert body["columns"]["gpu_power_watts"] == wanted
            await node.tick()
            await until(lambda: aggregator.stats.frames_stored == FRAMES + 1)
            before = await _frames(aggregator.http_address)
        async with running(settings) as aggregator:
            await until(lambda: bool(aggregator.http_address))
            assert await _frames(aggregator.http_address) == before
            page = await fetch(aggregator.http_address, f"nodes/a?at={sampled_at(5, now()) // 10**9}")
            assert page["node"]["state"] == "online"
            assert page["gpus"][1]["readings"]["gpu_power_watts"] == (expected("a", 1, [5])[0, POWER])


async def _frames(address: tuple[str, int] | None) -> list[Any]:
    """Ten seconds of it."""
    times = f"from={sampled_at(3, now()) // 10**9}&to={sampled_at(13, now()) // 10**9}&step=1s"
    body = await fetch(address, f"fleet/frames?{times}&columns=gpu_power_watts")
    assert body["begins"] == sampled_at(0, now())
    found = [frame["columns"]["gpu_power_watts"] for frame in body["frames"]]
    assert found == [[expected("a", row, [seq])[0, POWER] for row in range(2)] for seq in range(3, 13)]
    return found
