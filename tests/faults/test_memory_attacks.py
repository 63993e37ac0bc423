"""No peer exhausts the aggregator's memory: each attack of `tests.aggregator.attacks`, and after a restart."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.aggregator import attacks
from tests.aggregator.attacks import attack, resident
from tests.aggregator.feed import Feed
from tests.aggregator.test_budgets import entries, open_feed

MOST = 50_000_000
"""Bytes that any attack may cost."""


@pytest.fixture
def feed(tmp_path: Path) -> Feed:
    """Two nodes, one of which will turn on us."""
    return open_feed(tmp_path)


BOUNDS = {
    "nodes": 502,
    "routes": 510,
    "accounts": 2060,
    "spans": 6200,
    "runs": 2060,
    "devices": 17_500,
    "rows": 8460 + 502,
    "store's runs": 2060,
}


@pytest.mark.parametrize(
    "sent",
    [
        attacks.invented_names,
        attacks.invented_frames,
        attacks.one_gpu_inventories,
        attacks.changing_gpus,
        attacks.crowded_node,
        attacks.ring_spans,
        attacks.allowed_spans,
        attacks.new_sessions,
        attacks.every_other_frame,
        attacks.lost_spans,
        attacks.long_events,
        attacks.frames_of_events,
        attacks.schemas,
    ],
)
def test_no_attack_costs_more_than_50_mb_now_or_after_a_restart(
    feed: Feed, sent: Callable[[], attacks.Messages]
) -> None:
    """Numbers of entries, bytes, the credibility of what is lost and missing, and the honest node."""
    before = resident()
    attack(feed, sent(), seconds=0.0021)
    assert resident() - before < MOST
    found = entries(feed)
    assert not {name: count for name, count in found.items() if count > BOUNDS[name]}
    lost = feed.stats.frames_lost + feed.stats.frames_lost_claimed
    assert lost + feed.ingest.ledger.missing < 2_000_000
    feed.send("honest", 1)
    assert feed.commit() == 1
    feed.reopen()
    assert resident() - before < MOST
    found = entries(feed)
    assert not {name: count for name, count in found.items() if count > BOUNDS[name]}
    assert feed.ingest.ledger.missing < 2_000_000
    feed.send("honest", 2)
    assert feed.commit() == 1
