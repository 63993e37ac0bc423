"""A whole site on loopback: servers, members, real collectors, breakers over all members, and a webhook that
counts. The rows of the failure matrix and the long campaign break it."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from aggregator.cluster.groups import target
from telemetry.wire.topics import shard_of
from tests.cluster.loop import Loop
from tests.cluster.rack import Pager, Rack, paging

HOT, COOL = 800.0, 200.0
"""Watts of a GPU at which a breaker carries 129 %, and 36 %."""
HOT_RULE = "circuit_thermal_hot"
NODES = 3
"""Of a breaker."""
BIG_GPUS = 120
"""GPUs of a node that only adds load."""


def breakers(count: int, members: list[str]) -> dict[str, list[str]]:
    """Return breakers with their nodes: all members have some of each."""
    found: dict[str, list[str]] = {}
    weights = dict.fromkeys(members, 1.0)
    for number in itertools.count():
        nodes = [f"dgx-{number}-{one}" for one in range(NODES)]
        if {target(shard_of(name), weights) for name in nodes} == set(members):
            found[f"feed-{number}"] = nodes
        if len(found) == count:
            return found
    raise AssertionError


class Hall:
    """Members, servers, breakers and a webhook."""

    def __init__(self, folder: Path, pager: Pager, *, feeds: int, gpus: int, spill_seconds: float) -> None:
        """`feeds`: breakers, one for each page, for a hot one takes minutes to cool; `gpus`: all that are
        simulated, about; `spill_seconds`: as in the settings, each spill is a file a group."""
        members = [f"agg-{name}" for name in "abc"]
        self.feeds = breakers(feeds, members)
        self.spare = list(self.feeds)
        """Breakers that were never hot."""
        power = '[power]\nregion = "US"\n' + "".join(
            f"[power.circuits.{name}]\nbreaker = 48\nvolts = 208\npoles = 3\nwiring = '3ph-wye'\nnodes = {json.dumps(nodes)}\n"
            for name, nodes in self.feeds.items()
        )
        channel = f'[aggregator.alerts.channels.pager]\ntype = "webhook"\nurl = "{pager.url}"\n'
        self.loop = Loop(folder, nodes=3, more=channel + power, shared=True, fragile=True, spill_seconds=spill_seconds)
        assert self.loop.members == members
        nodes = [name for names in self.feeds.values() for name in names]
        more = max(0, gpus - 8 * (len(nodes) + 3)) // BIG_GPUS
        big = {f"rack-{number:03d}": BIG_GPUS for number in range(more)}
        ports = [each.mqtt for each in self.loop.nats.servers]
        self.rack = Rack("loop", ports, [*nodes, *big], COOL, big)
        self.pager = pager

    def begin(self) -> None:
        """Start all, and wait until each member shows each breaker."""
        loop = self.loop
        loop.nats.start()
        loop.start(*loop.members, *loop.nodes)
        self.rack.start()
        loop.until("members that share all groups", lambda: loop.held_by(*loop.members))
        loop.until("a measured breaker on every member", lambda: all(map(self.sees, loop.members)))
        loop.until("all nodes", self.seen)

    # -- What is seen ----------------------------------------------------------------------------

    def sees(self, member: str) -> bool:
        """Whether a member shows the load of all nodes, and who judges it."""
        power = self.loop.page(member, "/api/v1/power")
        page = self.loop.page(member, "/api/v1/circuits")
        if not power or not page or not page["circuits"]:
            return False
        return bool(power["site_leader"]) and all(
            each["watts"] and not each["more"]["unheard_ratio"] for each in page["circuits"]
        )

    def seen(self) -> bool:
        """Whether each real node shows online at the member that holds it."""
        owners = self.loop.owners()
        for node in self.loop.nodes:
            entry = owners.get(shard_of(node))
            if entry is None or entry.owner not in self.loop.processes:
                return False
            page = self.loop.page(entry.owner, "/api/v1/nodes") or {}
            states = {each["node"]: each["state"] for each in page.get("nodes", ())}
            if states.get(node) != "online":
                return False
        return True

    def leader(self) -> str:
        """Name of the member that judges the site, as a living one says."""
        for member in self.loop.processes:
            power = self.loop.page(member, "/api/v1/power") if member in self.loop.http else None
            if power and power["site_leader"] in self.loop.processes:
                return str(power["site_leader"])
        return ""

    def sure_leader(self) -> str:
        """Wait for a judge."""
        self.loop.until("a judge", self.leader)
        return self.leader()

    def health(self, member: str) -> str:
        """Return what a member says about its health."""
        return str(self.loop.page(member, "/healthz"))

    def whole(self) -> None:
        """Have all parts run again, and every node heard."""
        loop = self.loop
        for each in loop.nats.servers:
            if each.process is None:
                each.start()
        loop.start(*(name for name in loop.members if name not in loop.processes))
        loop.until("all members", lambda: loop.held_by(*loop.members))
        loop.until("all nodes on every member", lambda: all(map(self.sees, loop.members)))
        loop.until("all nodes", self.seen)

    # -- Breakers --------------------------------------------------------------------------------

    def overload(self) -> str:
        """Let a breaker that was never hot carry 129 % from the next frame on; return its name."""
        feed = self.spare.pop(0)
        self.rack.set(HOT, self.feeds[feed])
        self.loop.until("hot frames", lambda: self.rack.first_at.keys() >= set(self.feeds[feed]))
        return feed

    def cool(self, feed: str) -> None:
        """Let it carry what it did before."""
        self.rack.set(COOL, self.feeds[feed])

    def paged(self, feed: str) -> float:
        """Wait for the page that a breaker may trip; return the seconds since the first hot frame."""
        hot = max(self.rack.first_at[name] for name in self.feeds[feed])
        self.loop.until("a page", lambda: self.pager.pages(HOT_RULE, feed))
        return self.pager.pages(HOT_RULE, feed)[0][0] - hot / 1e9

    def keys(self, member: str, feed: str) -> set[str]:
        """Return the keys of the open incidents of a member in which a breaker may trip."""
        page = self.loop.page(member, "/api/v1/incidents") or {"incidents": ()}
        return {
            each["key"]
            for each in page["incidents"]
            if any((alert["rule"], alert["name"]) == (HOT_RULE, feed) for alert in each["alerts"])
        }

    def paged_once(self, feed: str) -> None:
        """Wait until all members have the page's incident; it was opened once by a page."""
        living = [name for name in self.loop.members if name in self.loop.processes]
        self.loop.until(
            "one incident on every member",
            lambda: (
                len({key for member in living for key in self.keys(member, feed)}) == 1
                and all(self.keys(member, feed) for member in living)
            ),
        )
        self.check_pages(feed)

    def check_pages(self, feed: str) -> int:
        """Fail unless a breaker was paged once, and twice only what was in flight; return how often. Where alerts
        of its incident come or end that is told too: another message, of the same overload."""
        told: list[tuple[str, frozenset[tuple[str, str, str]]]] = []
        again = 0
        overloads = set()
        for _, body in self.pager.pages(HOT_RULE, feed):
            alerts = [(one["labels"]["alertname"], one["status"], one["startsAt"]) for one in body["alerts"]]
            overloads |= {(body["groupKey"], one) for one in alerts if one[:2] == (HOT_RULE, "firing")}
            if "again" in json.dumps(body):
                again += 1
            else:
                told.append((body["groupKey"], frozenset(alerts)))
        assert len(overloads) == 1, f"one overload under one key: {overloads}"
        assert len(told) == len(set(told)), f"told twice without a word: {told}"
        assert again <= 1, f"twice only what was in flight: {told}"
        return 1 + again

    # -- The oracle ------------------------------------------------------------------------------

    def rest(self) -> None:
        """End all collectors, and wait until no frame is missing: one that has ended sends nothing again."""
        loop = self.loop
        assert all(map(loop.gpu, loop.nodes))
        self.rack.rest()
        while True:
            loop.until("no missing frame", loop.complete)
            for node in loop.nodes:
                assert loop.end(node) == 0
            with contextlib.suppress(AssertionError):
                loop.until("the last frames", loop.complete, 30.0)
                return
            loop.start(*loop.nodes)

    def check_frames(self, nodes: list[str], racks: list[str], members: list[str]) -> int:
        """Fail unless members answer with each frame of nodes, each once; return how many frames these are."""
        expected = {node: sorted(self.loop.sampled(node)) for node in nodes}
        expected |= dict.fromkeys(racks, self.rack.sampled())
        for name, (node, sampled) in itertools.product(members, expected.items()):
            assert len(sampled) > 60
            self.loop.until(f"all of {node} at {name}, once", partial(self._has_all, name, node, sampled))
        return sum(map(len, expected.values()))

    def _has_all(self, member: str, node: str, sampled: list[int]) -> bool:
        found = self.loop.answered(member, node)
        twice = [at for at, count in Counter(found).items() if count > 1]
        if set(found) == set(sampled) and twice:
            print(f"{member} answers twice of {node}: {[sampled.index(at) for at in twice]}")
        return found == sampled

    def end(self) -> None:
        """Leave nothing behind."""
        self.rack.end()
        self.loop.end_all()


@contextmanager
def hall_in(folder: Path, *, feeds: int, gpus: int, spill_seconds: float = 60.0) -> Iterator[Hall]:
    """Run a site while the block runs."""
    with paging() as pager:
        hall = Hall(folder, pager, feeds=feeds, gpus=gpus, spill_seconds=spill_seconds)
        try:
            hall.begin()
            yield hall
        finally:
            hall.end()
