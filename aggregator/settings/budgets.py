"""Settings of budgets: the most that one node, and the cluster, may bring (`aggregator.ingest.budgets`)."""

from __future__ import annotations

import msgspec

from telemetry.errors import ConfigError
from telemetry.text import duration

DAY = 86_400.0
MIB = 1024 * 1024
LONGEST_SESSION = 2000 * DAY


class IngestBudgets(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Most that a node and the cluster may bring."""

    nodes: int = 30_000
    """Nodes of the cluster. Those that the store knows keep their places through a restart."""
    newcomers: int = 500
    """Names at a time that have not yet sent an inventory and a frame that fits it. Messages of
    further ones wait, in `newcomer_bytes`, for their first frame."""
    newcomer_bytes: int = 32 * MIB
    """Most memory of statuses and inventories that wait for the first frame of their node. Inventories of an eighth of
    as many bytes are shown before it: those of a hundred nodes of 8 GPUs."""
    newcomer_seconds: float = 60.0
    """Seconds after which a name is forgotten that has no inventory, or one that waits for the first frame."""
    gpus: int = 400_000
    """GPUs of the cluster."""
    links: int = 8_000_000
    """NVLinks of the cluster."""
    gpus_per_node: int = 256
    """A rack of 72 GPUs is one node."""
    links_per_node: int = 8192
    """NVLinks that one node may have."""
    sessions_per_node: int = 2048
    """Sessions of a node in memory; the oldest that its ring has no more make room."""
    spans_per_status: int = 1024
    """Spans of frames in one message: a ring has at most as many files."""
    intervals_per_node: int = 4096
    """Separate spans of frames that have arrived, over all sessions of a node. Frames that would make
    more are shown, not stored, and requested again in order."""
    session_seconds: float = 1000 * DAY
    """Longest that one collector runs without a restart: bounds the frames that a node may claim."""
    messages_per_second: float = 500.0
    """Messages of a node."""
    bytes_per_second: float = 8.0 * MIB
    """Bytes of a node's messages; backfill alone is 2 MB/s by default."""
    events_per_second: float = 20.0
    """New events of a node, in the long run; 2,000 may come at once."""
    expiry_seconds: float = 30 * DAY
    """Seconds after which a node that is offline and silent is removed. Its history stays."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        for name, least in _LEAST.items():
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{where}.{name}",
                    f"{getattr(self, name):g} is too little",
                    f"Write at least {least:g}, or leave it out for {_DEFAULTS[name]:g}.",
                )
        for part, whole in (("gpus_per_node", "gpus"), ("links_per_node", "links")):
            if getattr(self, part) > getattr(self, whole):
                raise ConfigError(
                    f"{where}.{part}",
                    f"one node may not have more than the cluster ({where}.{whole} = {getattr(self, whole)})",
                    f"Raise {where}.{whole}, or lower this.",
                )
        if self.session_seconds > LONGEST_SESSION:
            raise ConfigError(
                f"{where}.session_seconds",
                f"{self.session_seconds:g} s is more than {duration(LONGEST_SESSION)}",
                "Write less: no collector runs so long without a restart.",
            )
        if self.spans_per_status > self.sessions_per_node:
            raise ConfigError(
                f"{where}.spans_per_status",
                f"a status could name more sessions than a node may have ({self.sessions_per_node})",
                f"Raise {where}.sessions_per_node, or lower this.",
            )


_LEAST: dict[str, float] = {
    "nodes": 1,
    "newcomers": 1,
    "newcomer_bytes": MIB,
    "newcomer_seconds": 5,
    "gpus": 1,
    "links": 0,
    "gpus_per_node": 1,
    "links_per_node": 0,
    "sessions_per_node": 16,
    "spans_per_status": 16,
    "intervals_per_node": 64,
    "session_seconds": DAY,
    "messages_per_second": 30,
    "bytes_per_second": MIB,
    "events_per_second": 0.1,
    "expiry_seconds": 3600,
}
"""Smallest that works: below these, nodes without a fault would be refused."""
_DEFAULTS = msgspec.structs.asdict(IngestBudgets())
