"""The host, from /proc and /sys: the `node` table, and facts for the inventory."""

from __future__ import annotations

from collector.host.machine import Host, facts

__all__ = ["Host", "facts"]
