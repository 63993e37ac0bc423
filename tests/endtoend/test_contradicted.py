"""Where a node's meter reads less than its GPUs, every face shows both as they were read, how old they are, and that they
contradict each other; where it does not, none says so."""

from __future__ import annotations

import pytest

from api.decoding import decode
from api.device import NodePageReply
from present.units import watts
from tests.aggregator.http_client import door
from tests.tui.cluster import Cluster
from tests.tui.test_lines import line_text
from tests.web.test_pages import read
from tui.screens.node import node_lines, page_of
from tui.state.circuits import Now
from tui.state.dashboard_state import DashboardState

NODE = "dgx-00"
GPUS = 650.0 + 610.0
"""Power of both GPUs of a node of the cluster, watts."""


@pytest.mark.parametrize("wall", [0.0, 120.0, 700.0, GPUS - 10, GPUS, GPUS + 10, 9_000.0])
async def test_a_wall_below_its_gpus_stands_beside_them(wall: float) -> None:
    cluster = Cluster(2, 2)
    cluster.wrong[NODE] = {"node_wall_power_watts": wall}
    await cluster.beat()
    false = wall < GPUS
    async with door(cluster) as client:
        text = (await client.text(f"/api/v1/nodes/{NODE}"))[1]
        page = (await read(client, f"/nodes/{NODE}")).text
    reply = decode(text.encode(), NodePageReply)
    power = reply.power
    assert (power.wall_watts, power.gpu_watts) == (pytest.approx(wall), pytest.approx(GPUS)), "as read"
    assert power.state == ("contradicted" if false else "")
    assert power.wall_age_seconds is not None
    assert power.gpu_age_seconds is not None
    state = DashboardState().with_doc(page_of(NODE), reply, 1.0)
    lines = node_lines(state, NODE, 60, 160, 40, Now(0.0), utc=True)
    large = "\n".join(line_text(line) for line in lines)
    for face in (page, large):
        assert watts(wall) in face
        assert ("contradicted" in face) == false
        if false:
            assert f"old: its GPUs draw {watts(GPUS)}, " in face


async def test_a_wall_that_is_not_read_contradicts_nothing() -> None:
    cluster = Cluster(2, 2)
    cluster.wrong[NODE] = {"node_wall_power_watts": float("nan")}
    await cluster.beat()
    async with door(cluster) as client:
        power = (await client.json(f"/api/v1/nodes/{NODE}"))[1]["power"]
    assert (power["wall_watts"], power["wall_age_seconds"], power["state"]) == (None, None, "")
    assert power["gpu_watts"] == pytest.approx(GPUS)
