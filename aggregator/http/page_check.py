"""The check of our own metrics pages: a rotating sample of what they show is read as a scraper reads it, by the official
parser, and must have what the fleet has. One that a scraper refuses, or that lacks a reading, is an impairment."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from aggregator.http.exposition import ExpositionPages, joined
from aggregator.http.exposition import render as render_pages
from aggregator.http.metrics import own_makers
from aggregator.http.node_metrics import part_of, snapshots_of
from aggregator.http.rule_input_metrics import RuleInputMetrics
from aggregator.http.summary import Summarizer
from aggregator.register.node_status import status_of
from aggregator.view import AggregatorView, parts_of
from api.fleet import NodeStatus
from telemetry.fleet import Fleet, Node
from telemetry.wire.exposition import PREFIX, Family, render

SHARE = 0.01
"""Share of a core that the check takes at most."""
LEAST_PAUSE = 1.0
"""Seconds between two checks at least."""
MOST_SAMPLES = 100
"""Samples of a family about the cluster that are read at once; the next time the next ones are."""
MOST_NAMED = 5


class PageCheck:
    """Checks nodes and the parts of the aggregator's own page in turn; those that were found wanting more often."""

    def __init__(self, view: AggregatorView) -> None:
        self._view = view
        self._pages = ExpositionPages()
        self._inputs = RuleInputMetrics()
        self._summarizer = Summarizer()
        self._turns = 0
        self._last = {"node": "", "metrics": ""}
        """The name of each kind that was checked last."""
        self._wanting: dict[tuple[str, str], None] = {}
        """Kind and name of what was found wanting, the one checked last at the end."""

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            spent = await self.check()
            for _ in range(max(1, math.ceil(spent / SHARE / LEAST_PAUSE))):
                await asyncio.sleep(LEAST_PAUSE)
                await self.retry()

    async def retry(self) -> None:
        """Try again what was set aside of metrics pages, once its pause is over: nobody else may ask for it. A node
        that is gone has nothing to show."""
        view, aside = self._view, self._view.pages_aside
        for name, part in [(part.split("/")[1], part) for part in aside.reasons() if part.startswith("node/")]:
            node = view.fleet.nodes.get(name)
            if node is None:
                aside.forget(part)
            elif part == part_of(node) and aside.due(part, view.now()):
                with contextlib.suppress(Exception):  # noted there
                    await snapshots_of(view, self._pages, self._inputs, [node], True)

    async def check(self) -> float:
        """Check what is next; return the seconds of a core that it took."""
        kind, name = self._next()
        if not name or self._view.shedding.sheds("device_metrics"):
            return 0.0
        problem, spent = "", 0.0
        for _ in range(2):  # a reading may grow stale between the two looks at it
            began = time.thread_time()
            render_it, wanted = await (self._node(name) if kind == "node" else self._own(name))
            spent += time.thread_time() - began
            problem, seconds = await asyncio.to_thread(_timed, render_it, wanted)
            spent += seconds
            if not problem:
                break
        part, aside = f"{kind}/{name}/exposition", self._view.pages_aside
        self._wanting.pop((kind, name), None)
        if problem:
            self._wanting[kind, name] = None
            aside.fail(part, problem, self._view.now())
        else:
            aside.works(part)
        return spent

    def _next(self) -> tuple[str, str]:
        """Return the kind and name of what is checked next: the nodes in turn, and between two of them the parts of
        our own page; every fourth time what was found wanting."""
        self._turns += 1
        if self._turns % 4 == 0 and self._wanting:
            return next(iter(self._wanting))
        kind = "node" if self._turns % 2 else "metrics"
        names = self._view.fleet.nodes if kind == "node" else self._makers()
        after = (name for name in names if name > self._last[kind])
        name = self._last[kind] = min(after, default=min(names, default=""))
        return kind, name

    def _makers(self) -> Mapping[str, object]:
        return own_makers(self._view, self._summarizer, {}, parts_of(self._view, "page"))

    async def _node(self, name: str) -> tuple[Callable[[], bytes], Mapping[str, int]]:
        """Return what makes the page of a node, and how many samples of each name it must have; an empty page of one
        that is gone, or of which it is told already that it can't be shown. Nothing else runs meanwhile."""
        view = self._view
        node = view.fleet.nodes.get(name)
        if node is None or part_of(node) in view.pages_aside:
            return bytes, {}
        wanted = wanted_of(view.fleet, node, view.now())
        try:
            parts = await snapshots_of(view, self._pages, self._inputs, [node], True)
        except Exception:  # noqa: BLE001 - noted there
            return bytes, {}
        return functools.partial(render_pages, joined(parts)), wanted

    async def _own(self, name: str) -> tuple[Callable[[], bytes], Mapping[str, int]]:
        """Return a sample of a part of our own page, as `_node`."""
        parts = parts_of(self._view, "page")
        makers = own_makers(self._view, self._summarizer, {}, parts)
        made = parts.each("metrics", [name], lambda _: _some(makers[name](), self._turns))
        families = made[0] if made else []
        wanted = Counter(
            family.name + fragment.partition("{")[0]
            for family in families
            for fragment, value in family.samples
            if value == value  # noqa: PLR0124 - NaN: absent
        )
        return functools.partial(render, families), wanted


def wanted_of(fleet: Fleet, node: Node, now: float) -> dict[str, int]:
    """Return how many samples of each name the page of a node must have."""
    found = {f"{PREFIX}node_up": 1}
    if status_of(node, now) is not NodeStatus.ONLINE:
        return found
    found[f"{PREFIX}gpu_present"] = len(node.inventory.gpus)
    for matrix in fleet.matrices:
        rows = node.rows[matrix.block.table]
        values = np.hstack([matrix.gauges[rows], matrix.counters[rows]])
        fresh = now - matrix.seen[rows] <= matrix.max_age[rows]
        counts = (~np.isnan(values) & fresh[:, np.newaxis]).sum(axis=0)
        found |= {f"{PREFIX}{name}": int(count) for name, count in zip(matrix.block.names, counts, strict=True)}
    return found


def lacks(page: bytes, wanted: Mapping[str, int]) -> str:
    """Return what a page lacks of the samples that it must have, or why no scraper reads it; "" where all is well."""
    found, seen = Counter[str](), set[tuple[str, frozenset[tuple[str, str]]]]()
    try:
        for family in text_string_to_metric_families(page.decode()):
            for sample in family.samples:
                found[sample.name] += 1
                seen.add((sample.name, frozenset(sample.labels.items())))
    except Exception as error:  # noqa: BLE001 - the parser raises what it comes upon
        return f"no scraper can read it: {error}"
    if len(seen) < found.total():
        return "it has a series twice"
    missing = [name for name, count in wanted.items() if found[name] < count]
    if not missing:
        return ""
    more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
    return f"it lacks samples of {', '.join(missing[:MOST_NAMED])}{more}"


def _timed(render_it: Callable[[], bytes], wanted: Mapping[str, int]) -> tuple[str, float]:
    """Return what a page lacks, and the seconds of a core that it took."""
    began = time.thread_time()
    return lacks(render_it(), wanted), time.thread_time() - began


def _some(families: Sequence[Family], turn: int) -> list[Family]:
    """Return families with as many samples as are read at once."""
    found = []
    for family in families:
        start = turn * MOST_SAMPLES % max(1, len(family.samples))
        some = family.samples[start : start + MOST_SAMPLES]
        found.append(Family(family.name, family.help, family.kind, some, family.narrow))
    return found
