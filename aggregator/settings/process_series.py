"""Settings `[aggregator.process_series]`: whether Prometheus sees each process on a GPU, and its user in which form."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path

import msgspec

from telemetry.errors import ConfigError
from telemetry.wire.jobs import UserPrivacy
from telemetry.wire.persons import PersonWords


class ProcessLabels(StrEnum):
    """Form in which the series of processes name users."""

    OFF = "off"
    """No series of processes at all."""
    HASHED = "hashed"
    """A keyed hash of 12 hex digits in place of each user."""
    FULL = "full"
    """Users as their node names them."""


class ProcessSeriesConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A series for each process that holds a GPU now (docs/prometheus.md)."""

    labels: ProcessLabels = ProcessLabels.OFF
    """Whether there are such series, and how they name users: `off`, `hashed` or `full`. Each start of a process is
    a new series."""
    secret_file: Path | None = None
    """File with the secret that keys the hashes of `labels = "hashed"`. With that of `jobs.secret_file` a user has
    one hash everywhere."""

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        if self.labels is ProcessLabels.HASHED and self.secret_file is None:
            raise ConfigError(
                f"{where}.secret_file",
                'labels = "hashed" needs a secret: without one, anybody can hash a list of names',
                "Write a long random word into a file and name it here.",
            )

    def words(self, where: str = "aggregator.process_series") -> PersonWords | None:
        """Return the words in place of users; None where there are no series. Raises `ConfigError` for a secret that
        can't be read."""
        if self.labels is ProcessLabels.OFF:
            return None
        hashed = self.labels is ProcessLabels.HASHED
        privacy = UserPrivacy.HASHED if hashed else UserPrivacy.NAMES
        return PersonWords(privacy, self.secret_file, f"{where}.secret_file")
