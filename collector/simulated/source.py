"""A simulated node as a source: the collector can't tell it from a real one."""

from __future__ import annotations

from collector.simulated.cluster import Cluster, SimulatedNode, cluster
from collector.simulated.happening import happenings
from collector.simulated.inventory import inventory
from collector.simulated.scenario import Scenario
from collector.source import Happening, Rows
from telemetry.gap import NOT_READ
from telemetry.inventory import Inventory
from telemetry.metric import Lane
from telemetry.schema import NODE_FAST, NODE_SLOW


class SimulatedSource:
    """One node of a scenario. It gives the `node` blocks too; see `collector.simulated.host.SELF`
    for the columns that it leaves to the collector as gaps `not_read`."""

    inventory: Inventory

    def __init__(self, scenario: Scenario, node: str) -> None:
        """Raises `ConfigError` when the scenario has no such node."""
        self.scenario = scenario
        self._cluster: Cluster = cluster(scenario)
        self._node: SimulatedNode = self._cluster.node(node)
        self._lost: tuple[int, ...] = ()
        self._released = False
        self._read_until: int | None = None
        self._news: list[Happening] = []
        self.inventory = inventory(self._cluster, self._node)

    async def open(self) -> None:
        """Nothing to open."""

    def silent(self, tick: int) -> bool:
        """Whether the node is down at this tick (`node_loss`, `feed_loss`): the sampler then takes
        no frame and publishes nothing."""
        return self._node.silent(self.scenario.second(tick))

    async def read(self, lanes: frozenset[Lane], tick: int, now_ns: int, deadline: float) -> Rows:
        """Return the rows of a tick; they depend on the scenario, the node and the tick alone."""
        second = self.scenario.second(tick)
        after = second - 1 if self._read_until is None else self._read_until
        if second > after:
            self._read_until = second
            self._news += happenings(self._node, after, second)
        lost = self._node.lost(second)
        if lost != self._lost:
            self._lost = lost
            self._take_stock()
        rows: Rows = {}
        if Lane.FAST in lanes:
            rows |= self._node.fast(second)
        if Lane.SLOW in lanes:
            rows |= self._node.slow(second)
        if self._released:
            for block in rows.keys() - {NODE_FAST, NODE_SLOW}:
                rows[block] = [[NOT_READ] * len(row) for row in rows[block]]
        return rows

    def happenings(self) -> list[Happening]:
        """Return what the faults made known since the last call, oldest first."""
        news, self._news = self._news, []
        return news

    async def release(self) -> None:
        """Give gaps from now on, as a node does whose driver is being upgraded."""
        self._released = True
        self._take_stock()

    async def resume(self) -> None:
        """Give readings again."""
        self._released = False
        self._take_stock()

    async def close(self) -> None:
        """Nothing to close."""

    def _take_stock(self) -> None:
        self.inventory = inventory(self._cluster, self._node, self._lost, self._released)
