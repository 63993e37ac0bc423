"""Liveness and readiness of the aggregator. Both derive from the age of data.

`/healthz` is for supervisors that restart processes: 503 only for what a restart may fix. It is 503
when frames come in and nothing has been flushed for 10 s, when the store has failed for 10 s, or when
flushes, rules or commits make no progress, whatever holds them.
`/readyz` is for load balancers: 200 while the bus is connected, the store works, and
the newest frame of at least one expected node is younger than three of its intervals. Expected are
the nodes whose collector is online; where none is expected, the answer is 200. A broker that is gone
does not concern `/healthz`: restarting the aggregator does not bring it back.
Both list every impairment (`aggregator.impairments`); one of the whole cluster makes `/readyz` 503.
"""

from __future__ import annotations

import asyncio

from aiohttp import web

from aggregator.http.operation import Operation
from aggregator.http.reply import JSON, VIEW, json_bytes
from aggregator.impairments import MOST_PARTS, Impairments
from aggregator.register.node_status import NodeCounts, age_of, count_nodes
from aggregator.view import AggregatorView
from api.fleet import HealthReply, HealthStatus, ImpairmentRow
from api.stats import Stats
from telemetry.fleet import Fleet
from telemetry.runtime.release import release

DEAD_AFTER = 10.0
"""Seconds without a flush, or with a store that fails, after which the process counts as dead."""
CHECK_SECONDS = 1.0
COUNTED_SECONDS = 0.5
"""Seconds for which a count of the nodes serves: one of 20,000 takes milliseconds, and a probe may ask often."""
_FOUND_ANYWAY = frozenset({"bus_lost", "store_failing"})
"""Impairments that `unready` finds by itself, at once."""


class Liveness:
    """Since when the flush loop and the store have been silent; checked once a second."""

    def __init__(self, view: AggregatorView) -> None:
        self._view = view
        now = view.now()
        self._flushes = view.stats.flush.count
        self._frames = view.stats.frames_received
        self._flushed_at = now
        self._waiting_since: float | None = None
        """When frames first came that no flush has followed."""
        self._failing_since: float | None = None
        self._counted: tuple[float, NodeCounts] | None = None
        """The last count of the nodes, and when it was made."""

    def check(self) -> None:
        """Compare the counters with those of the last check. Any thread may: the last one wins."""
        now, stats = self._view.now(), self._view.stats
        if stats.flush.count != self._flushes:
            self._flushes, self._flushed_at = stats.flush.count, now
            self._frames, self._waiting_since = stats.frames_received, None
        elif stats.frames_received != self._frames and self._waiting_since is None:
            self._waiting_since = now
        if stats.store_ok:
            self._failing_since = None
        elif self._failing_since is None:
            self._failing_since = now

    def nodes(self) -> NodeCounts:
        """Return the states of all nodes, at most half a second old."""
        now, counted = self._view.now(), self._counted
        if counted is None or not 0.0 <= now - counted[0] < COUNTED_SECONDS:
            self._counted = counted = now, count_nodes(self._view.fleet, now)
        return counted[1]

    def flush_age(self) -> float:
        """Return the seconds since the last flush that was seen."""
        return self._view.now() - self._flushed_at

    def faults(self) -> list[str]:
        """Return the faults that a restart may fix."""
        now = self._view.now()
        found: list[str] = []
        if self._waiting_since is not None and now - self._waiting_since > DEAD_AFTER:
            found.append(f"Frames come in, and none was flushed for {self.flush_age():.0f} s.")
        if self._failing_since is not None and now - self._failing_since > DEAD_AFTER:
            found.append(f"The store has failed for {now - self._failing_since:.0f} s.")
        found += [
            f"There has been no progress of {part} for {age:.0f} s."
            for part, age in self._view.marks.vital_blocked().items()
        ]
        return found

    async def run(self) -> None:
        """Check once a second, for as long as the server runs."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_SECONDS)


LIVENESS = web.AppKey("liveness", Liveness)


def unready(stats: Stats, impairments: Impairments, nodes: NodeCounts) -> list[str]:
    """Return the reasons why the aggregator is not ready."""
    found: list[str] = []
    if not stats.bus_connected:
        found.append("The bus is not connected.")
    if not stats.store_ok:
        found.append("The store fails.")
    found += [
        f"{one.rule}: {one.reason}" for one in impairments.current() if one.whole and one.rule not in _FOUND_ANYWAY
    ]
    if nodes.expected and nodes.expected == len(nodes.stale):
        found.append(f"No frame of {nodes.expected} expected node(s) is younger than three intervals.")
    return found


def newest_age(fleet: Fleet, now: float) -> float | None:
    """Return the age of the newest frame of all, or None when there was none."""
    return age_of(count_nodes(fleet, now).seen, now)


def health_of(view: AggregatorView, liveness: Liveness, path: str) -> tuple[int, bytes]:
    """Return status and body of `/healthz` or `/readyz`. Any thread may call it: it only reads, and raises
    `RuntimeError` where the loop adds to what is being read."""
    liveness.check()
    reasons, nodes, now = liveness.faults(), liveness.nodes(), view.now()
    if path == "/readyz":
        reasons += unready(view.stats, view.impairments, nodes)
    impairments = [
        ImpairmentRow(one.rule, one.part, one.reason, one.since_ns, one.whole) for one in view.impairments.current()
    ]
    body = HealthReply(
        ok=not reasons,
        reasons=reasons,
        uptime_seconds=round((view.wall() - view.started_at) / 1e9, 3),
        newest_frame_age_seconds=age_of(nodes.seen, now),
        last_flush_age_seconds=round(liveness.flush_age(), 3),
        nodes_expected=nodes.expected,
        nodes_online=nodes.expected - len(nodes.stale),
        bus_connected=view.stats.bus_connected,
        store_ok=view.stats.store_ok,
        warnings=_warnings(view),
        status=(HealthStatus.FAILING if reasons else HealthStatus.IMPAIRED if impairments else HealthStatus.OK),
        impairments=impairments,
        progress={part: round(age, 3) for part, age in view.marks.ages().items()},
        version=release(),
    )
    return 503 if reasons else 200, json_bytes(body)


def _warnings(view: AggregatorView) -> list[str]:
    """Return warnings without any text of the configuration: this path needs no token."""
    found: list[str] = []
    if view.electrical.configuration.error is not None:
        found.append("The newest configuration of circuits is refused; /api/v1/power has the reason.")
    if view.impairments.full:
        found.append(f"More nodes may be impaired than the {MOST_PARTS} that are listed.")
    store = view.store.status()
    if store.lost_files:
        found.append(
            f"{store.lost_files} file(s) of the store were removed or damaged by another program; "
            "`kilowatch verify` names them."
        )
    if store.warning:
        found.append(store.warning)
    return found


async def health(request: web.Request) -> web.Response:
    """Answer whether the process is alive, or whether there are fresh readings."""
    app = request.app
    status, body = health_of(app[VIEW].here, app[LIVENESS], request.path)
    return web.Response(status=status, body=body, content_type=JSON)


OPERATIONS = (
    Operation(
        "/healthz", health, "healthz", "Whether the process is alive.", HealthReply, also=(503,), scope=None, local=True
    ),
    Operation(
        "/readyz",
        health,
        "readyz",
        "Whether there are fresh readings.",
        HealthReply,
        also=(503,),
        scope=None,
        local=True,
    ),
)
