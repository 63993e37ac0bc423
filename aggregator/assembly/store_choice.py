"""The choice of a store, and the lock of its folder."""

from __future__ import annotations

import fcntl
import logging
import os
from pathlib import Path
from typing import IO

from aggregator.config import AggregatorConfig, StoreConfig, StoreKind
from aggregator.folder import kinds
from aggregator.influx.client import InfluxClient
from aggregator.influx.inspection import ServerFinding, inspect
from aggregator.influx.store import InfluxStore
from aggregator.store.embedded import EmbeddedStore
from aggregator.store.protocol import Store
from telemetry.errors import ConfigError
from telemetry.files import private_file

log = logging.getLogger(__name__)


class Lock:
    """The exclusive use of a data folder by this process; ends with the process, however it ends."""

    def __init__(self, folder: Path) -> None:
        """Make the folder if need be, and lock it. Raises `ConfigError`."""
        self._file: IO[str] | None = None
        try:
            private_file.claim_folder(folder)
            self._file = _opened(folder / "lock")
        except OSError as error:
            raise ConfigError(
                "aggregator.data_dir",
                f"{folder} can't be written: {error.strerror}",
                "Make it writable for this user, or choose another folder.",
            ) from error
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.seek(0)
            owner = self._file.read(20).strip() or "unknown"
            self._file.close()
            raise ConfigError(
                "aggregator.data_dir",
                f"{folder} is in use by another aggregator (process {owner})",
                "`kilowatch top` shows what that one knows. End it, or give this one a folder of its own with --data.",
            ) from error
        self._file.truncate(0)
        self._file.write(f"{os.getpid()}\n")
        self._file.flush()

    def release(self) -> None:
        """Unlock the folder."""
        if self._file is not None:
            self._file.close()
            self._file = None


def _opened(path: Path) -> IO[str]:
    """Open a lock file; what lies in its place and can't be opened is set aside. Raises `OSError`."""
    try:
        return path.open("a+")
    except (IsADirectoryError, PermissionError) as error:
        if kinds.set_aside(path, error) is None:
            raise
    return path.open("a+")


def inspect_server(config: StoreConfig, now: float) -> list[ServerFinding]:
    """Return what a writer and a reader meet at the server behind the store; nothing where there is
    none. `now` in seconds since 1970."""
    if config.kind is not StoreKind.INFLUXDB:
        return []
    with InfluxClient(config.influxdb) as client:
        return inspect(client, now)


def open_store(config: AggregatorConfig) -> Store:
    """Open the store of an aggregator. Raises `ConfigError` or `StoreError`.

    The caller holds the folder's `Lock`.
    """
    if config.store.kind is StoreKind.INFLUXDB:
        return InfluxStore(config)
    waits = sum(path.stat().st_size for path in (config.data_dir / "spool").glob("*.spool"))
    if waits:
        log.warning(
            "store: %d bytes wait in %s for InfluxDB, which is no longer the store; delete them, "
            'or go back to kind = "influxdb"',
            waits,
            config.data_dir / "spool",
        )
    members = config.members
    if members.nats and members.storage.url:
        from aggregator.store.shared.store import SharedStore  # noqa: PLC0415 - not for a single aggregator

        return SharedStore(
            config.store,
            config.data_dir,
            members.storage,
            config.name_limits,
            grace_seconds=2 * members.dead_after_seconds,
        )
    return EmbeddedStore(config.store, config.data_dir, config.name_limits)
