"""Settings `[aggregator.pbs]` and `[aggregator.lsf]`: whether and how often PBS or LSF is asked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from aggregator.settings.condor import is_host
from aggregator.settings.slurm import check_asking
from telemetry.errors import ConfigError


class PbsAskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """PBS's own word on its jobs, by `qstat` on the aggregator's machine (docs/jobs.md)."""

    enabled: bool = False
    """Whether to ask at all. Only the aggregator asks, never a node."""
    interval: float = 30.0
    """Seconds between two `qstat`, 1 to 600."""
    deadline: float = 10.0
    """Seconds after which a command is killed, and its source is failing."""
    accounting: bool = True
    """Whether to ask `qstat -x` for the end and exit code of jobs that have ended (`job_history_enable`)."""
    server: str = ""
    """Host of the server (`PBS_SERVER`); none where pbs.conf names it."""
    conf_file: Path | None = None
    """pbs.conf for the commands (`PBS_CONF_FILE`); none where they find theirs."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of the commands."""
        file = "" if self.conf_file is None else str(self.conf_file)
        named = {"PBS_SERVER": self.server, "PBS_CONF_FILE": file}
        return {name: value for name, value in named.items() if value}

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        check_asking(where, self.interval, self.deadline)
        if self.server and not is_host(self.server):
            raise ConfigError(f"{where}.server", f"{self.server!r} is no host, or host:port")


class LsfAskConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """LSF's own word on its jobs, by `bjobs` on the aggregator's machine (docs/jobs.md)."""

    enabled: bool = False
    """Whether to ask at all. Only the aggregator asks, never a node."""
    interval: float = 30.0
    """Seconds between two `bjobs`, 1 to 600."""
    deadline: float = 10.0
    """Seconds after which a command is killed, and its source is failing."""
    conf_dir: Path | None = None
    """Folder of lsf.conf for the command (`LSF_ENVDIR`); none where it finds its own."""

    @property
    def accounting(self) -> bool:
        """Whether jobs that have ended are asked for by themselves: they are in the answer about all."""
        return False

    @property
    def environment(self) -> Mapping[str, str]:
        """Environment of the command."""
        return {} if self.conf_dir is None else {"LSF_ENVDIR": str(self.conf_dir)}

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        check_asking(where, self.interval, self.deadline)
