"""The members of a cluster of aggregators, as text."""

from __future__ import annotations

from collections.abc import Iterator

from aggregator.cluster.groups import summary
from kilowatch.clients.members import MembersReply
from kilowatch.text.table import columns
from present.units import percent
from telemetry.text import counted, duration

_WIDTH = 160
_MOVES = 10


def member_lines(reply: MembersReply, now: int) -> Iterator[str]:
    """Return the text of `kilowatch cluster`. `now`: ns since 1970."""
    yield f"cluster {reply.cluster}, by NATS {reply.server}"
    rows = [
        (
            row.name,
            "alive" if row.alive else "silent",
            str(len(row.groups)),
            "-" if row.beat is None else str(row.beat.nodes),
            "-" if row.beat is None or row.beat.load is None else percent(row.beat.load),
            "-" if row.beat is None else row.beat.version,
            "-" if row.beat is None else row.beat.address or "-",
        )
        for row in reply.members
    ]
    yield from columns([("MEMBER", "STATE", "GROUPS", "NODES", "CPU", "VERSION", "HTTP"), *rows], width=_WIDTH)
    if reply.unheld:
        yield f"{counted(len(reply.unheld), 'shard group')} without a member: {summary(reply.unheld)}"
    moves = [(move.at, row.name, move) for row in reply.members if row.beat is not None for move in row.beat.moves]
    moves.sort(key=lambda each: each[:2])
    moves = moves[-_MOVES:]
    for at, name, move in reversed(moves):
        other = f" ({move.other})" if move.other else ""
        yield f"{duration((now - at) / 1e9)} ago: {name} {move.kind} {move.groups}{other}"
