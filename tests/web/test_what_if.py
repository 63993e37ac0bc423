"""Caps of every GPU of a circuit: as the plan computes them, and never from less than what is measured."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any

import numpy as np

from aggregator.electrical.plan import live_plan
from aggregator.web.what_if import caps_of
from power.plan.plan import Suppose
from telemetry.metric import Table
from tests.aggregator.fake_view import FakeView
from tests.aggregator.http_client import door
from tests.aggregator.test_http_circuits import lab
from tests.web.test_pages import Page, read


def amps(view: FakeView, cap: float | None) -> float:
    """Return the amps of lab/2 with every GPU capped."""
    plan = live_plan(view.electrical, view.fleet, Suppose(cap=cap), view.pipeline.engine.rules)()
    return next(max(one.amps.values()) for one in plan.circuits if one.id == "lab/2")


async def test_a_cap_takes_no_more_than_its_gpus_draw() -> None:
    """n2 measures 5.1 kW, of which its two GPUs are 1.3: capped to nothing they leave the rest."""
    view = await lab()
    now = amps(view, None)
    assert now > 21
    caps = [amps(view, cap) for cap in (600.0, 400.0, 200.0, 100.0)]
    assert caps == sorted(caps, reverse=True)
    two_gpus = 2 * 700 / 240
    assert all(now - 1.3 * two_gpus < each <= now for each in caps), caps


async def test_the_table_has_the_plans_figures_and_marks_the_first_that_holds() -> None:
    view = await lab()
    async with door(view) as client:
        status, body, _ = await client.text("/circuits/lab%2F2?cap=500")
        page = Page(body)
        assert (status, page.faults) == (200, [])
        rows = page.text.partition("cap of each GPU")[2]
        for cap in (600.0, 500.0, 490.0, 280.0):
            assert f"{cap:g} W {amps(view, cap):.1f} A" in rows
        assert "nothing is sent to a GPU" in page.text
        marked = r'<strong class="strong">([^<]+)</strong>'
        assert not re.findall(marked, body.partition("cap of each GPU")[2]), "none of them holds"
        _, holds, _ = await client.text("/circuits/lab%2F1?cap=500")
        assert re.findall(marked, holds.partition("cap of each GPU")[2])[0] == "none"
        assert (await client.text("/circuits/lab%2F2?cap=-5"))[0] == 400
        assert (await client.text("/circuits/lab%2F2?cap=watts"))[0] == 400


def test_a_silent_node_hides_no_cap_of_the_others() -> None:
    """In whatever order they are named."""
    limits = np.array([np.nan, np.nan, 700.0, 700.0])
    nodes = {name: SimpleNamespace(rows={Table.GPU: row}) for name, row in (("a", slice(0, 2)), ("b", slice(2, 4)))}
    fleet: Any = SimpleNamespace(nodes=nodes, column=lambda *_: limits)
    highest_first = [600.0, 490.0, 390.0, 280.0]
    assert caps_of(fleet, 0.0, ["a", "b"]) == caps_of(fleet, 0.0, ["b", "a"]) == highest_first
    assert caps_of(fleet, 0.0, ["a"]) == []


async def test_a_circuit_whose_gpus_are_not_read_says_so() -> None:
    view = await lab()
    view.monotonic += 10_000  # all readings are old
    async with door(view) as client:
        page = await read(client, "/circuits/lab%2F2")
        assert "No power limit of its GPUs is read." in page.text
