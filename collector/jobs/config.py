"""Settings `[jobs]`: whether and how often a node looks who uses its GPUs, and in which form persons leave it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from collector.jobs.kubernetes import KubernetesConfig
from collector.jobs.ray import RayConfig
from collector.jobs.slurm import SlurmConfig
from telemetry.errors import ConfigError
from telemetry.wire.jobs import UserPrivacy

SHORTEST, LONGEST = 1.0, 60.0
"""Seconds between two looks at the processes of a GPU."""


class JobsConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Jobs, users and processes on the GPUs of a node."""

    enabled: bool = True
    """Whether to read processes and ask schedulers at all."""
    interval: float = 5.0
    """Seconds between two readings of the processes of a GPU, 1 to 60."""
    users: UserPrivacy = UserPrivacy.NAMES
    """Form in which users and accounts leave the node: `names`, `hashed` or `off`."""
    same_pids: bool = False
    """Whether the driver gives the PIDs of this /proc although it is not that of the host: some drivers
    convert them in containers. Without it processes in another PID namespace have no owner."""
    secret_file: Path | None = None
    """File with the secret of the site that keys the hashes of `users = "hashed"`; the same on all nodes."""
    slurm: SlurmConfig = SlurmConfig()
    """Jobs of Slurm."""
    kubernetes: KubernetesConfig = KubernetesConfig()
    """Pods."""
    ray: RayConfig = RayConfig()
    """Jobs of Ray."""

    def __post_init__(self) -> None:
        """Raise `ConfigError` for values that can't work."""
        if not SHORTEST <= self.interval <= LONGEST:
            raise ConfigError(
                "jobs.interval",
                f"{self.interval} s is out of range",
                f"Choose {SHORTEST:g} to {LONGEST:g} seconds; 5 is usual.",
            )
        if self.users is UserPrivacy.HASHED and self.secret_file is None:
            raise ConfigError(
                "jobs.secret_file",
                'users = "hashed" needs a secret: without one, anybody can hash a list of names',
                "Write a long random word into a file, the same on all nodes, and name it here.",
            )
