"""A node whose part of a page can't be made costs the page that part alone, and is told."""

from __future__ import annotations

import re
from pathlib import Path

import aiohttp
import pytest

from aggregator.http import exposition
from aggregator.service import Aggregator
from telemetry.wire.exposition import Family
from telemetry.wire.inventory import Inventory
from tests.aggregator.node import ScriptedNode
from tests.aggregator.test_service import config, running
from tests.aggregator.test_supervision import firing, health
from tests.brokers import Mosquitto
from tests.kit.waiting import until

NODES = ("a", "b", "c")
PART = "node_set_aside/node/b/pages"


async def page(aggregator: Aggregator, path: str) -> tuple[int, str]:
    """Ask the aggregator for a page."""
    assert aggregator.http_address is not None
    host, port = aggregator.http_address
    async with aiohttp.ClientSession() as session, session.get(f"http://{host}:{port}{path}") as reply:
        return reply.status, await reply.text()


def shown(text: str) -> set[str]:
    """Return the nodes of which a page has readings."""
    return set(re.findall(r'^kilowatch_gpu_power_watts{[^}]*node="(\w+)"', text, re.MULTILINE))


async def test_a_node_that_can_t_be_shown_is_left_out_of_the_page_and_told(
    mosquitto: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    families = exposition.info_families

    def of_all_but_b(inventory: Inventory, scope: bool) -> list[Family]:
        if inventory.node == "b":
            raise ValueError("put in by the test")
        return families(inventory, scope)

    async with (
        running(config(mosquitto.config, tmp_path / "data", "127.0.0.1:0")) as aggregator,
        ScriptedNode(mosquitto.config, "a") as a,
        ScriptedNode(mosquitto.config, "b") as b,
        ScriptedNode(mosquitto.config, "c") as c,
    ):
        await until(aggregator.serving.is_set)

        async def seen() -> set[str]:
            for node in (a, b, c):
                await node.tick()
            status, text = await page(aggregator, "/metrics/nodes")
            assert status == 200, text
            return shown(text)

        with monkeypatch.context() as patch:
            patch.setattr(exposition, "info_families", of_all_but_b)

            async def all_but_b() -> bool:
                return await seen() == {"a", "c"}

            await until(all_but_b)
            assert (await page(aggregator, "/metrics/node/b"))[0] == 500
            assert shown((await page(aggregator, "/metrics/node/c"))[1]) == {"c"}

            async def told() -> bool:
                await seen()
                return PART in await health(aggregator)

            await until(told)
            await until(lambda: firing(aggregator, PART))

        async def all_again() -> bool:
            return await seen() == set(NODES) and PART not in await health(aggregator)

        await until(all_again)
