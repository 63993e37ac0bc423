"""Random faults of a cluster, one into the other, and what must hold after all of them."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.cluster import faults
from tests.cluster.hall import HOT_RULE, Hall

Made = AbstractContextManager[None]
FAULTS_AT_ONCE = 2
BESIDE = ("15", "17")
"""Rows of faults that may begin while another one lasts: more deaths at once are other rows."""


class CampaignFault(NamedTuple):
    """A fault, with its row of the failure matrix."""

    row: str
    what: str
    make: Callable[[Hall, random.Random], Made]


def _member(hall: Hall, dice: random.Random) -> str:
    return dice.choice(hall.loop.members)


def _judge_and_another(hall: Hall, dice: random.Random) -> Made:
    judge = hall.sure_leader()
    other = dice.choice([name for name in hall.loop.members if name != judge])
    return faults.killed(hall, judge, other)


def _log_leader(hall: Hall, _: random.Random) -> Made:
    servers = hall.loop.nats
    return faults.servers_killed(hall, servers.servers.index(servers.stream_leader("kw-loop-log")))


FAULTS = (
    CampaignFault("1", "A member is killed.", lambda hall, dice: faults.killed(hall, _member(hall, dice))),
    CampaignFault("2", "A member is ended.", lambda hall, dice: faults.ended(hall, _member(hall, dice))),
    CampaignFault("3", "A member stands still.", lambda hall, dice: faults.stopped(hall, _member(hall, dice))),
    CampaignFault("4", "The judge of the site is killed.", lambda hall, _: faults.killed(hall, hall.sure_leader())),
    CampaignFault("6", "The judge of the site stands still.", lambda hall, _: faults.stopped(hall, hall.sure_leader())),
    CampaignFault("7", "The judge and another member are killed at once.", _judge_and_another),
    CampaignFault("8", "A nats-server is killed.", lambda hall, dice: faults.servers_killed(hall, dice.randrange(3))),
    CampaignFault("9", "The nats-server that leads the log is killed.", _log_leader),
    CampaignFault("10", "Two of three nats-servers are killed.", lambda hall, dice: faults.servers_killed(hall, *dice.sample(range(3), 2))),
    CampaignFault("11", "All nats-servers are killed.", lambda hall, _: faults.servers_killed(hall, 0, 1, 2)),
    CampaignFault("12", "All nats-servers lose what they had stored.", lambda hall, _: faults.streams_wiped(hall)),
    CampaignFault("13", "A nats-server stands still.", lambda hall, dice: faults.server_stopped(hall, dice.randrange(3))),
    CampaignFault("14", "A member is cut off from NATS.", lambda hall, dice: hall.loop.cut(_member(hall, dice))),
    CampaignFault("15", "The shared storage is away.", lambda hall, _: faults.storage_away(hall)),
    CampaignFault("15", "A member's disk is full.", lambda hall, dice: faults.disk_full(hall, _member(hall, dice))),
    CampaignFault("17", "A member's wall clock is stepped.", lambda hall, dice: faults.clocks_stepped(hall, {_member(hall, dice): dice.uniform(-60, 60)})),
    CampaignFault("19", "The judge has a tenth of the time.", lambda hall, _: faults.slowed(hall, hall.sure_leader())),
)  # fmt: skip


@dataclass
class FaultTally:
    """Counts of one kind of fault."""

    times: int = 0
    seconds: float = 0.0
    """For which it lasted, in all."""
    overloads: int = 0
    """Breakers that were overloaded while it lasted."""
    slowest: float = 0.0
    """Seconds until the slowest of their pages."""


@dataclass
class CampaignResult:
    """Counts of what must hold."""

    tallies: dict[str, FaultTally] = field(default_factory=dict)
    frames: int = 0
    """Frames that nodes published, each answered once by every member."""
    nodes: int = 0
    """Nodes that these are of."""
    pages: int = 0
    again: int = 0
    seconds: float = 0.0


def run(
    hall: Hall, count: int, dice: random.Random, say: Callable[[str], None], longest: float = 20.0
) -> CampaignResult:
    """Make `count` faults, each of at most `longest` seconds and a third of them while another lasts, then
    look at every frame and every page. Raises `AssertionError` where something was lost, or came twice."""
    result, began = CampaignResult(), time.monotonic()
    overloaded: list[tuple[str, str]] = []
    made, share = 0, min(0.5, len(hall.spare) / count)
    while made < count:
        with ExitStack() as stack:
            several = FAULTS_AT_ONCE if dice.random() < 1 / 3 else 1
            rows: set[str] = set()
            for _ in range(min(several, count - made)):
                fault = dice.choice([one for one in FAULTS if not rows or one.row in BESIDE])
                if rows and not hall.leader():
                    break
                made += 1
                rows.add(fault.row)
                say(f"{made}/{count} row {fault.row}: {fault.what}")
                tally = result.tallies.setdefault(fault.what, FaultTally())
                stack.enter_context(fault.make(hall, dice))
                tally.times += 1
                if dice.random() < share and hall.spare:
                    feed = hall.overload()
                    overloaded.append((feed, fault.what))
                    tally.overloads += 1
                lasts = dice.uniform(1.0, longest)
                hall.rack.wait(lasts)
                tally.seconds += lasts
        for feed, what in overloaded:
            took = hall.paged(feed)
            hall.cool(feed)
            result.tallies[what].slowest = max(result.tallies[what].slowest, took)
            say(f"  {feed} paged after {took:.1f} s")
        overloaded.clear()
        hall.whole()
    hall.rest()
    racks = [nodes[0] for nodes in hall.feeds.values()]
    result.frames = hall.check_frames(hall.loop.nodes, racks, hall.loop.members)
    result.nodes = len(racks) + len(hall.loop.nodes)
    sent = Counter({feed: hall.check_pages(feed) for feed in hall.feeds if feed not in hall.spare})
    assert all(hall.pager.pages(HOT_RULE, feed) for feed in sent)
    result.pages, result.again = len(sent), sent.total() - len(sent)
    result.seconds = time.monotonic() - began
    return result
