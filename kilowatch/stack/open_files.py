"""Processes that simulate nodes, and their open files: a node needs several, and most shells allow 1,024."""

from __future__ import annotations

import os
import resource

from kilowatch.stack.start import FEW_NODES
from telemetry.errors import ConfigError

FILES_A_NODE = 4
"""Files that a simulated collector has open: its connection, its lock, its ring, and one that it writes now and
then."""
SPARE_FILES = 128
"""Files of the rest of a process."""


def processes_of(nodes: int) -> int:
    """Return in how many processes so many nodes are simulated: one for each processor."""
    return min(len(os.sched_getaffinity(0)), -(-nodes // FEW_NODES))


def allow_open_files(nodes: int) -> None:
    """Raise this process's limit of open files, which children inherit, to what the nodes need. Raises
    `ConfigError` where the nodes, or their connections to the broker, need more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= (wanted := SPARE_FILES + FILES_A_NODE * nodes):
        return
    soft = wanted if hard == resource.RLIM_INFINITY else max(soft, min(wanted, hard))
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    room = max(0, soft - SPARE_FILES)
    if nodes > (most := min(room, room // FILES_A_NODE * processes_of(nodes))):
        raise ConfigError(
            "--nodes",
            f"{nodes:,} nodes need more open files than the {soft:,} of this user: it carries about {most:,}",
            f"Ask for fewer, or raise the limit: ulimit -n {wanted}.",
        )
