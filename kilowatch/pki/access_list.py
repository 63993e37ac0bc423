"""mosquitto's access list: what each certificate may publish and read. Pure.

A pattern (`kilowatch/1/+/+/%u/frame`) can't hold a node to its cluster and shard, so each node has lines
of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from aggregator.homeassistant.entities import STATES as HOME_STATES
from aggregator.homeassistant.entities import Topics
from aggregator.settings.homeassistant import HomeAssistantConfig
from telemetry.wire.topics import ROOT, Topic, topic

STATES = ("alerts", "circuits", "budgets", "ups")
"""Kinds of retained state that an aggregator publishes (`telemetry.wire.topics.state_topic`)."""
_METERS = """\
# Meters that publish to this broker, and the requests to Shelly devices and their replies
# (docs/meters.md). A user that may publish these topics can forge the load of a circuit: give each
# device a user of its own.
topic read tele/#
topic read shellies/#
topic read zigbee2mqtt/#
topic read +/events/rpc
topic read +/status/+
topic read +/online
topic write +/rpc
topic read kilowatch-meters/#
"""


def node_lines(cluster: str, node: str) -> str:
    """Return the section of a node: it publishes its own topics, in its cluster and shard, and reads
    its own, the commands among them. Only an aggregator writes commands."""
    kinds = (kind for kind in Topic if kind is not Topic.COMMAND)
    own = topic(cluster, node, Topic.FRAME).rpartition("/")[0]
    lines = [f"topic write {topic(cluster, node, kind)}" for kind in kinds]
    return "\n".join([f"user {node}", *lines, f"topic read {own}/+\n"])


def aggregator_lines(cluster: str, name: str) -> str:
    """Return the section of an aggregator: it reads its cluster (the status in every version of the
    topics), sends commands, publishes states, and clears what a forgotten node retained."""
    own = f"{ROOT}/{cluster}"
    kinds = (Topic.COMMAND, Topic.STATUS, Topic.INVENTORY, Topic.JOBS)
    return "\n".join(
        [
            f"user {name}",
            f"topic read {own}/#",
            f"topic read {ROOT.partition('/')[0]}/+/{cluster}/+/+/{Topic.STATUS}",
            *(f"topic write {own}/+/+/{kind}" for kind in kinds),
            *(f"topic write {own}/{state}/+/state" for state in STATES),
            *home_assistant_lines(cluster),
            _METERS,
        ]
    )


def home_assistant_lines(cluster: str) -> list[str]:
    """Return what an aggregator may do for Home Assistant: announce its own entities there, read what
    it has announced, and publish their states (docs/home.md)."""
    topics = Topics(HomeAssistantConfig().prefix, cluster, "all")
    return [
        "# Home Assistant on this broker: what it discovers, and its start.",
        f"topic readwrite {topics.announced}",
        f"topic read {topics.birth}",
        f"topic write {HOME_STATES}/#",
    ]


def access_list(cluster: str, aggregators: Iterable[str], nodes: Iterable[str]) -> str:
    """Return the whole access list; what is not in it is refused."""
    head = "# Written by `kilowatch pki`; it is replaced at the next change, so write nothing here.\n"
    return "\n".join(
        [
            head,
            *(aggregator_lines(cluster, name) for name in sorted(aggregators)),
            *(node_lines(cluster, name) for name in sorted(nodes)),
        ]
    )
