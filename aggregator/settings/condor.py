"""Settings `[aggregator.htcondor]`: whether and how often the pool of HTCondor is asked."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec

from aggregator.settings.slurm import check_asking
from telemetry.errors import ConfigError

LONGEST_SCHEDD = 3600
_HOST = re.compile(r"[A-Za-z0-9\[][A-Za-z0-9.:\[\]_-]*", re.ASCII)


def is_host(word: str) -> bool:
    """Return whether a word may be a host, or host:port, and no option of a command."""
    return _HOST.fullmatch(word) is not None


class CondorAskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """HTCondor's own word on its slots and jobs, by its commands on the aggregator's machine (docs/jobs.md)."""

    enabled: bool = False
    """Whether to ask at all. Only the aggregator asks, never a node."""
    interval: float = 15.0
    """Seconds between two `condor_status`, 1 to 600."""
    deadline: float = 10.0
    """Seconds after which a command is killed, and its source is failing."""
    queue: bool = True
    """Whether to ask the schedds of jobs on the nodes for names, limits and states (`condor_q`)."""
    accounting: bool = True
    """Whether to ask them for end and exit code of jobs that have ended (`condor_history`)."""
    schedd_interval: float = 60.0
    """Seconds between two questions to a schedd, 1 to 3600."""
    pool: str = ""
    """Host of the central manager (`-pool`); none where HTCondor's own settings name it."""
    conf_file: Path | None = None
    """HTCondor's settings for the command (`CONDOR_CONFIG`); none where it finds its own."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        check_asking(where, self.interval, self.deadline)
        if not 1 <= self.schedd_interval <= LONGEST_SCHEDD:
            raise ConfigError(f"{where}.schedd_interval", f"it must be 1 to {LONGEST_SCHEDD} seconds")
        if self.pool and not is_host(self.pool):
            raise ConfigError(f"{where}.pool", f"{self.pool!r} is no host, or host:port")
