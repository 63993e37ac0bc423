"""Settings `[aggregator.slurm]`: whether and how often Slurm's controller is asked."""

from __future__ import annotations

from pathlib import Path

import msgspec

from telemetry.errors import ConfigError

SHORTEST, LONGEST = 1.0, 600.0
"""Seconds between two questions."""


class SlurmAskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Slurm's own word on its jobs, by `squeue` and `sacct` on the aggregator's machine (docs/slurm.md)."""

    enabled: bool = False
    """Whether to ask at all. Only the aggregator asks, never a node."""
    interval: float = 15.0
    """Seconds between two `squeue`, 1 to 600."""
    deadline: float = 10.0
    """Seconds after which a command is killed, and its source is failing."""
    accounting: bool = True
    """Whether to ask `sacct` for the begin, end and exit code of jobs that have ended."""
    conf_file: Path | None = None
    """slurm.conf for the commands (`SLURM_CONF`); none where they find theirs."""
    gres_file: Path = Path("/etc/slurm/gres.conf")
    """Slurm's gres.conf, for the numbers of GPUs of nodes without our prolog."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        check_asking(where, self.interval, self.deadline)


def check_asking(where: str, interval: float, deadline: float) -> None:
    """Raise `ConfigError` for times that can't work."""
    if not SHORTEST <= interval <= LONGEST:
        raise ConfigError(
            f"{where}.interval",
            f"{interval:g} s is out of range",
            f"Choose {SHORTEST:g} to {LONGEST:g} seconds; 15 is usual.",
        )
    if not 0.1 <= deadline <= LONGEST:
        raise ConfigError(f"{where}.deadline", f"it must be 0.1 to {LONGEST:g} seconds")
