"""An aggregator that hears the honest collectors alone, beside one that is attacked.

What both grow by, honest data takes: the database's pages between two checkpoints, and what the allocators keep of them.
"""

from __future__ import annotations

from pathlib import Path

from telemetry.wire.topics import ROOT, shard_of
from tests.brokers import Mosquitto
from tests.endtoend.cluster import NODES, Cluster


class QuietAggregator:
    """A second aggregator, on a broker that takes over from the first what the honest collectors publish."""

    def __init__(self, folder: Path, heard: Mosquitto, more: str) -> None:
        """`more`: lines for its settings; [aggregator.store] is open."""
        folder.mkdir()
        topics = (f"topic {ROOT}/default/{shard_of(node)}/{node}/# in 1" for node in NODES)
        bridge = f"connection honest\naddress {heard.host}:{heard.port}\nnotifications false\nrestart_timeout 1"
        self.broker = Mosquitto(folder, "\n".join((bridge, *topics)))
        self.cluster = Cluster(folder, self.broker)
        settings = folder / "aggregator.toml"
        settings.write_text(settings.read_text().replace("[aggregator.store]", more))

    def start(self) -> None:
        """Start the broker and the aggregator."""
        self.broker.start()
        self.cluster.start("aggregator")

    def end(self) -> None:
        """Leave nothing behind."""
        self.cluster.end_all()
        self.broker.kill()


def own_memory(cluster: Cluster, database: int) -> int:
    """Return the resident bytes of a cluster's aggregator without its database's."""
    pid = cluster.processes["aggregator"].pid
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    resident = next(line for line in lines if line.startswith("VmRSS")).split()[1]
    return 1024 * int(resident) - database
