"""The push of all series of the metrics pages, every few seconds, with a bounded queue for a receiver
that is away."""

from __future__ import annotations

import asyncio
import logging
import re
import struct
from collections.abc import Iterator, Sequence
from itertools import chain

import aiohttp

from aggregator.http.exposition import DeviceLabels, ExpositionPages, ExpositionSnapshot
from aggregator.http.metrics import families_of, own_makers
from aggregator.http.node_metrics import snapshots_of
from aggregator.http.rule_input_metrics import RuleInputMetrics
from aggregator.http.summary import Summarizer
from aggregator.remote.encode import STALE, labels_key, name_key, samples, snappy
from aggregator.remote.left_out import LeftOut
from aggregator.remote.recipient import Recipient
from aggregator.settings.remote_write import RemoteWriteConfig
from aggregator.view import AggregatorView, parts_of
from telemetry.runtime.http_outcome import HttpOutcome, outcome_of
from telemetry.text.connection_faults import connection_fault
from telemetry.text.decimals import plain
from telemetry.wire.exposition import PREFIX, Family

log = logging.getLogger(__name__)

SERIES_A_REQUEST = 10_000
MOST_FRAGMENTS = 1_000_000
"""Devices whose encoded labels are remembered."""
_NODE = re.compile(r'[{,]node="([^"]*)"')
Values = dict[bytes, bytes]
"""The 8 bytes of a double by the labels of its series."""


class Gatherer:
    """Collects the series to push; remembers their encoded labels, which cost more than the values."""

    def __init__(self, view: AggregatorView) -> None:
        self._view = view
        self._pages = ExpositionPages()
        self._rule_inputs = RuleInputMetrics()
        self._summarizer = Summarizer()
        self._names: dict[str, bytes] = {}
        self._labels: dict[str, tuple[str, bytes]] = {}
        self._before: set[bytes] = set()
        self._left_out = LeftOut(view)
        self._more = {"cluster": view.cluster, "job": "kilowatch"}

    async def snapshots(self) -> list[ExpositionSnapshot]:
        """Copy the present readings; in the event loop, a piece at a time."""
        view = self._view
        nodes = list(view.fleet.nodes.values())
        found = await snapshots_of(view, self._pages, self._rule_inputs, nodes, True)
        parts = parts_of(view, "push")
        own = families_of(own_makers(view, self._summarizer, {}, parts), parts)
        return [*found, ExpositionSnapshot(own, [])]

    def requests(self, snapshots: Sequence[ExpositionSnapshot], at: int) -> list[tuple[bytes, int]]:
        """Return bodies with their numbers of samples, in a thread. A series that has ended gets one
        stale marker; one that raises is left out, and its node or family is set aside by name."""
        values = self._values(snapshots)
        ended = self._before.difference(values)
        self._before = set(values)
        parts = samples([*values.items(), *((key, STALE) for key in ended)], at)
        return [
            (snappy(b"".join(some)), len(some))
            for start in range(0, len(parts), SERIES_A_REQUEST)
            if (some := parts[start : start + SERIES_A_REQUEST])
        ]

    def _values(self, snapshots: Sequence[ExpositionSnapshot]) -> Values:
        found: Values = {}
        failed: dict[str, Exception] = {}
        pack = struct.Struct("<d").pack
        if len(self._labels) > MOST_FRAGMENTS:
            self._labels.clear()  # nodes that are gone
        for group in chain.from_iterable(map(_groups, snapshots)):
            try:
                for name, fragment, value in _cells_of(group):
                    try:
                        its = self._labels.get(fragment)
                        if its is None:
                            # `_sum` or `_bucket` of a summary or histogram is a part of the name.
                            suffix, brace, rest = fragment.partition("{")
                            its = self._labels[fragment] = (suffix, labels_key(brace + rest, self._more))
                        suffix, rest_key = its
                        start = self._names.get(name + suffix)
                        if start is None:
                            start = self._names[name + suffix] = name_key(name + suffix)
                        found[start + rest_key] = pack(value)
                    except Exception as error:  # noqa: BLE001 - reported by its name
                        failed[_part_of(name, fragment)] = error
            except Exception as error:  # noqa: BLE001 - reported by its name
                failed[f"metrics/{_name_of(group)}/push"] = error
        self._left_out.report(failed)
        return found


def _part_of(name: str, fragment: str) -> str:
    """Return the name under which a series is set aside: that of its node, else of its family."""
    node = _NODE.search(fragment)
    return f"node/{node[1]}/push" if node else f"metrics/{name}/push"


def _groups(snapshot: ExpositionSnapshot) -> list[Family | DeviceLabels]:
    return [*snapshot.families, *snapshot.rows]


def _name_of(group: Family | DeviceLabels) -> str:
    return group.block.name if isinstance(group, DeviceLabels) else group.name


def _cells(snapshot: ExpositionSnapshot) -> Iterator[tuple[str, str, float]]:
    """Yield every series of a snapshot: name, labels as a page writes them, value."""
    return chain.from_iterable(map(_cells_of, _groups(snapshot)))


def _cells_of(group: Family | DeviceLabels) -> Iterator[tuple[str, str, float]]:
    """Yield every series of a family, or of a block of some nodes."""
    if not isinstance(group, DeviceLabels):
        for fragment, value in group.samples:
            if value == value:  # noqa: PLR0124 - NaN: absent
                yield group.name, fragment, value
        return
    columns = [*plain(group.gauges).T.tolist(), *group.counters.T.tolist()]
    for name, column in zip(group.block.names, columns, strict=True):
        for fragment, value in zip(group.fragments, column, strict=True):
            if value == value:  # noqa: PLR0124
                yield PREFIX + name, fragment, value


class Pusher:
    """The push to one receiver; `run` it once."""

    def __init__(self, view: AggregatorView, config: RemoteWriteConfig) -> None:
        self.view, self.config = view, config
        self._receiver = Recipient[tuple[bytes, int]](log, f"remote write: {config.url}", config.waiting, lambda _: 1)

    async def run(self) -> None:
        """Push until cancelled."""
        gatherer = Gatherer(self.view)
        headers = self.config.headers()
        timeout = aiohttp.ClientTimeout(total=self.config.timeout_seconds)
        async with aiohttp.ClientSession(headers=headers, timeout=timeout) as session:
            while True:
                at, snapshots = self.view.wall() // 1_000_000, await gatherer.snapshots()
                for request in await asyncio.to_thread(gatherer.requests, snapshots, at):
                    for _, count in self._receiver.add(request):
                        self.view.stats.remote_dropped += count
                await self._send(session)
                await asyncio.sleep(self.config.every_seconds)

    async def _send(self, session: aiohttp.ClientSession) -> None:
        """Send the queue, the oldest first, until a request is to be retried."""
        stats = self.view.stats
        while (request := self._receiver.first) is not None:
            body, count = request
            try:
                async with session.post(self.config.url, data=body) as answer:
                    status, text = answer.status, (await answer.text())[:200]
            except (aiohttp.ClientError, TimeoutError) as error:
                status, text = 0, connection_fault(error).what
            outcome = outcome_of(status) if status else HttpOutcome.RETRY
            if outcome is HttpOutcome.RETRY:
                stats.remote_errors += 1
                self._receiver.refuses(text)
                return
            self._receiver.pop()
            if outcome is HttpOutcome.DELIVERED:
                stats.remote_samples += count
                self._receiver.accepts()
            else:  # it would be refused again
                stats.remote_dropped += count
                self._receiver.refuses(f"{status} {text}")
