"""Topics come back as they were made; shards and phases are stable and even."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.errors import ConfigError
from telemetry.wire.topics import Topic, check_name, parse, parse_state, pattern, phase_of, shard_of, state_topic, topic

names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,20}", fullmatch=True)


@given(names, names, st.sampled_from(Topic))
def test_a_topic_comes_back(cluster: str, node: str, kind: Topic) -> None:
    """Make and parse."""
    address = parse(topic(cluster, node, kind))
    assert address == (cluster, shard_of(node), node, kind)
    assert check_name("node", node) == node


@pytest.mark.parametrize(
    "text", ["", "kilowatch/1/c/00/n", "kilowatch/0/c/00/n/frame", "kilowatch/1/c/00/n/what", "a/b/c/d/e/f"]
)
def test_a_foreign_topic_is_none_of_ours(text: str) -> None:
    """Other roots, versions and kinds are not guessed at."""
    assert parse(text) is None


@pytest.mark.parametrize("name", ["", "a/b", "a+b", "#", "a b", "-a", "x" * 129, "ä"])
def test_a_name_that_breaks_topics_is_refused(name: str) -> None:
    """With what to write instead."""
    with pytest.raises(ConfigError, match="Use letters"):
        check_name("collector.node", name)


def test_shards_are_even_and_never_change() -> None:
    """Aggregators divide a fleet by them; a change would move every node."""
    counts = Counter(shard_of(f"node-{number:05d}") for number in range(25_600))
    assert len(counts) == 256
    assert max(counts.values()) < 2 * 100
    assert shard_of("node-00001") == "10"
    assert pattern(shard="0a", kind=Topic.FRAME) == "kilowatch/1/+/0a/+/frame"


def test_phases_spread_a_fleet_over_the_interval() -> None:
    """No thundering herd: every tenth of the interval gets about a tenth of the nodes."""
    bins = Counter(int(phase_of(f"node-{number}") * 10) for number in range(10_000))
    assert set(bins) == set(range(10))
    assert max(bins.values()) < 1200


def test_the_topic_of_a_state_has_one_level_for_any_name() -> None:
    assert state_topic("home", "circuits", "R12-A/b1 é") == ("kilowatch/1/home/circuits/R12-A%2Fb1%20%C3%A9/state")
    assert parse(state_topic("home", "circuits", "office")) is None


def test_a_state_is_found_again_in_its_topic_and_nothing_else_is_one() -> None:
    for name in ("R12-A/b1 é", "gpu_lost/n1/GPU-1", "office"):
        found = parse_state(state_topic("home", "circuits", name))
        assert found == ("home", "circuits", name)
    for other in ("kilowatch/1/home/ab/n1/state", "kilowatch/1/home/circuits/x/frame", "zigbee/state"):
        assert parse_state(other) is None
