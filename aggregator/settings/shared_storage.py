"""Settings of the shared storage of a cluster."""

from __future__ import annotations

from pathlib import Path

import msgspec

from telemetry.errors import ConfigError


class SharedStorageConfig(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The place where the members of a cluster put their segments, and for how long."""

    url: str = ""
    """A folder that every member has (`/mnt/kilowatch`), or `s3://bucket/prefix`. [`data_dir` alone]"""
    endpoint_url: str | None = None
    """The server of S3 where it is not Amazon's."""
    access_key_file: Path | None = None
    """A file with the access key of S3; else the environment or the machine's role is used."""
    secret_key_file: Path | None = None
    """A file with the secret key of S3."""
    spill_seconds: float = 60.0
    """Seconds between two segments of a group: a take-over requests as much again from the nodes."""
    refresh_seconds: float = 30.0
    """Seconds between two listings of the storage."""

    @property
    def is_s3(self) -> bool:
        """Whether it is S3 rather than a folder."""
        return self.url.startswith("s3://")

    def check(self, where: str) -> None:
        """Raise `ConfigError` for settings that can't work."""
        if self.is_s3:
            if not self.url.removeprefix("s3://").strip("/"):
                raise ConfigError(f"{where}.url", "no bucket is named", "Write s3://bucket/prefix.")
        elif not Path(self.url).is_absolute():
            raise ConfigError(
                f"{where}.url",
                f"{self.url!r} is neither an absolute path nor s3://",
                "Write /mnt/kilowatch or s3://bucket/prefix.",
            )
        if (self.access_key_file is None) is not (self.secret_key_file is None):
            raise ConfigError(where, "access_key_file and secret_key_file are given together")
        for name in ("spill_seconds", "refresh_seconds"):
            if getattr(self, name) <= 0:
                raise ConfigError(f"{where}.{name}", "it must be more than 0 seconds")
