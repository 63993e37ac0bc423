"""A reader of the entries that NATS has of the members of a cluster of aggregators."""

from __future__ import annotations

import msgspec

from aggregator.cluster.groups import GROUPS, GroupEntry, MemberBeat
from aggregator.cluster.nats import NatsCoordination
from aggregator.cluster.port import Bucket
from aggregator.settings.members import MembersConfig
from telemetry.text.decoders import of_json


class MemberRow(msgspec.Struct, frozen=True):
    """A member, and the groups that its entries name."""

    name: str
    alive: bool
    groups: list[str]
    beat: MemberBeat | None
    """Its last heartbeat; null of one that is silent."""


class MembersReply(msgspec.Struct, frozen=True):
    """The members of a cluster of aggregators."""

    cluster: str
    server: str
    """The NATS server that answered, with its version."""
    members: list[MemberRow]
    unheld: list[str]
    """Groups that no living member has."""
    gone: list[str]
    """Members that are silent and still named as owners."""


async def read_members(config: MembersConfig, cluster: str) -> MembersReply:
    """Return the members of a cluster. Raises `CoordinationError`."""
    coordination = NatsCoordination(config, cluster)
    try:
        beats = {
            name: of_json(MemberBeat).decode(entry.value)
            for name, entry in (await coordination.entries(Bucket.MEMBERS)).items()
        }
        owners = {
            group: of_json(GroupEntry).decode(entry.value)
            for group, entry in (await coordination.entries(Bucket.OWNERS)).items()
        }
        server = coordination.server
    finally:
        await coordination.close()
    names = sorted({*beats, *(each.owner for each in owners.values())})
    rows = [
        MemberRow(
            name, name in beats, sorted(group for group, each in owners.items() if each.owner == name), beats.get(name)
        )
        for name in names
    ]
    unheld = [group for group in GROUPS if group not in owners or owners[group].owner not in beats]
    return MembersReply(cluster, server, rows, unheld, [row.name for row in rows if not row.alive and row.groups])
