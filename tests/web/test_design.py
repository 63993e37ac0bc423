"""`/design` shows each component in each state, where nodes are simulated alone."""

from __future__ import annotations

import re

import msgspec

from aggregator.web.design_page import LOADS
from present.fleet.headline import IN_THE_KNOWN, WELL, Urgency
from tests.aggregator.http_client import door
from tests.aggregator.test_http_circuits import lab
from tests.web.test_pages import ANEW, Page


async def test_every_state_is_there_and_what_is_not_known_is_no_number() -> None:
    async with door(await lab()) as client:
        status, body, _ = await client.text("/design", headers=ANEW)
        page = Page(body)
        assert (status, page.faults) == (200, [])
        made_up = [link for link in page.links if link.startswith(("circuits/", "nodes/", "gpus/", "jobs/"))]
        assert made_up == [], "they would lead nowhere"
        for words in (*LOADS, WELL, IN_THE_KNOWN):
            assert words in page.text
        for urgency in Urgency:
            assert f'class="verdict {urgency}"' in body
            assert f'class="badge {urgency}"' in body
        for state in ("unknown", "assumed", "fill page", "fill ticket"):
            assert f'<rect class="{state}"' in body, state
        for state in ("flows", "over", "open", "unknown"):
            assert f'class="wire {state}"' in body, state
        assert 'class="qx page"' in body
        for state in ("ticket", "page"):
            assert re.search(f"<tr [^>]*class={state}>", body), state
        for words in ("sw thermal", "device lost", "stale", "remap pending", "not read"):
            assert words in page.text, words
        assert 'class="peers"' in body
        assert ">not known<" in body


async def test_a_real_cluster_has_no_page_of_made_up_figures() -> None:
    view = await lab()
    for name, node in view.fleet.nodes.items():
        real = msgspec.structs.replace(node.inventory, source="nvml")
        view.fleet.nodes[name].inventory = real
    async with door(view) as client:
        status, body, _ = await client.text("/design", headers=ANEW)
        assert status == 404
        assert "R12-A" not in body
