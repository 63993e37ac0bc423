"""An aggregator that hears the honest nodes alone, beside one that is attacked.

Honest data takes memory too, and gives most of it back: what both grow by proves nothing of the attack.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from telemetry.wire.topics import ROOT, shard_of
from tests.alerts.alertmanagers import Hook
from tests.brokers import Mosquitto
from tests.endtoend.cluster import Cluster

STORE = f"[aggregator.store]\nmemory_limit_bytes = {128 << 20}"
"""Most that the database may cache: else what honest data takes hides what a message took for ever."""


class QuietAggregator:
    """A second aggregator, on a broker that takes over from the first what honest nodes publish."""

    def __init__(self, folder: Path, heard: Mosquitto, nodes: Iterable[str], settings: str) -> None:
        """`settings`: what follows those of its broker and its folder."""
        folder.mkdir()
        self.hook = Hook()
        topics = (f"topic {ROOT}/default/{shard_of(node)}/{node}/# in 1" for node in nodes)
        bridge = f"connection honest\naddress {heard.host}:{heard.port}\nnotifications false\nrestart_timeout 1"
        self.broker = Mosquitto(folder, "\n".join((bridge, *topics)))
        self.cluster = Cluster(folder, self.broker)
        add_settings(folder, self.hook, settings)

    def start(self) -> None:
        """Start the broker and the aggregator."""
        self.broker.start()
        self.cluster.start("aggregator")

    def end(self) -> None:
        """Leave nothing behind."""
        self.cluster.end_all()
        self.broker.kill()


def add_settings(folder: Path, hook: Hook, settings: str) -> None:
    """Bound the database of a cluster's aggregator, and let it notify a webhook; `settings` stand below."""
    file = folder / "aggregator.toml"
    file.write_text(
        file.read_text().replace("[aggregator.store]", STORE)
        + f'[alerts.channels.hook]\ntype = "webhook"\nurl = "{hook.url}"\n{settings}'
    )


def own_memory(cluster: Cluster, database: int) -> int:
    """Return the resident bytes of a cluster's aggregator without its database's."""
    pid = cluster.processes["aggregator"].pid
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    resident = next(line for line in lines if line.startswith("VmRSS")).split()[1]
    return 1024 * int(resident) - database
