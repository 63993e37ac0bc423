"""The machine around the GPUs, from /proc and /sys: the `node` table, and facts for people."""

from __future__ import annotations

from collector.host.facts import facts
from collector.host.machine import Host

__all__ = ["Host", "facts"]
