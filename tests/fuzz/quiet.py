"""An aggregator that hears the honest nodes alone, beside one that is attacked.

Honest data takes memory too, and gives most of it back: what both grow by proves nothing of the attack.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from telemetry.wire.topics import ROOT, shard_of
from tests.alerts.alertmanagers import Hook
from tests.brokers import Mosquitto
from tests.endtoend.cluster import Cluster

TRIMMED = "tests.fuzz.trimmed"
"""Module of both aggregators."""
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
        self.cluster.program = TRIMMED
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


def kept(memory: Sequence[int]) -> int:
    """Return the bytes that a process kept of the second half of a run; `memory`: its resident bytes, at even distances.

    Caches fill and threads take their first memory in the first half, and what a moment takes is given back: the level
    at the middle and at the end is the lowest of the tenth of the run before it.
    """
    some, middle = max(1, len(memory) // 10), len(memory) // 2
    return min(memory[-some:]) - min(memory[max(0, middle - some) : max(1, middle)])


def kept_beyond(memory: Sequence[int], quiet: Sequence[int]) -> int:
    """Return the bytes that an attacked process kept of the second half of a run beyond what a quiet one kept in the
    same time: a leak keeps as much of each input as at the begin."""
    return kept(memory) - max(0, kept(quiet))


def own_memory(cluster: Cluster, database: int) -> int:
    """Return the resident bytes of a cluster's aggregator without its database's."""
    pid = cluster.processes["aggregator"].pid
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    resident = next(line for line in lines if line.startswith("VmRSS")).split()[1]
    return 1024 * int(resident) - database
