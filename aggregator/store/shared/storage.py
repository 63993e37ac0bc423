"""The storage that all members share: a path or S3, the only file that knows fsspec.

An object appears whole or not at all: on a path it is written aside, synced and renamed, S3 does so
by itself. A name is never written twice. Every failure is a `StoreError` with place, cause and cure.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

from aggregator.settings.shared_storage import SharedStorageConfig
from aggregator.store.manifest import sync
from telemetry.errors import ConfigError, StoreError

WRITING = ".writing-"
"""Beginning of the name of a file that is being written."""
_TIMEOUTS = {"connect_timeout": 5, "read_timeout": 30, "retries": {"max_attempts": 2}}


class NameTakenError(StoreError):
    """An object of that name exists already."""


class StoredObject(NamedTuple):
    """An object of the storage."""

    name: str
    """Below the storage's root, with `/`."""
    bytes: int


class SharedStorage:
    """A folder or a bucket with a prefix; any thread may use it. Raises `StoreError`."""

    def __init__(self, config: SharedStorageConfig) -> None:
        """Raises `ConfigError` for secrets that can't be read or packages that are not installed."""
        self.url = config.url.rstrip("/")
        self._is_s3 = config.is_s3
        self._root = self.url.removeprefix("s3://")
        self.filesystem = _filesystem(config)
        """For the engine that reads segments where they are; None for a path."""

    def place(self, name: str) -> str:
        """Return what the engine opens for an object."""
        return f"{self.url}/{name}"

    def list(self) -> list[StoredObject]:
        """Return all objects but those that are being written, by name."""
        with self._errors("list"):
            if self.filesystem is None:
                Path(self._root).stat()  # a mount that is away is an error, not an empty storage
                found = list(self._files())
            else:
                self.filesystem.invalidate_cache()  # others write; between listings it saves a HEAD each
                found = [
                    StoredObject(path.removeprefix(self._root).lstrip("/"), int(each["size"]))
                    for path, each in self.filesystem.find(self._root, detail=True).items()
                ]
        return sorted(found)

    def put(self, path: Path, name: str) -> None:
        """Store a local file under a name. Raises `NameTakenError` where there is one."""
        with self._errors("write"):
            try:
                if self.filesystem is None:
                    self._put_file(path, Path(self._root, name))
                else:
                    self.filesystem.put_file(str(path), f"{self._root}/{name}", mode="create")
            except FileExistsError as error:
                raise NameTakenError(f"{self.place(name)}: it exists already") from error

    def remove(self, name: str) -> None:
        """Remove an object, if it is there."""
        with self._errors("remove"):
            if self.filesystem is None:
                Path(self._root, name).unlink(missing_ok=True)
            else:
                self.filesystem.rm_file(f"{self._root}/{name}")

    @contextmanager
    def open(self, name: str) -> Iterator[BinaryIO]:
        """Open an object for reading. Raises `FileNotFoundError` for none."""
        with self._errors("read"):
            if self.filesystem is None:
                with Path(self._root, name).open("rb") as file:
                    yield file
            else:
                with self.filesystem.open(f"{self._root}/{name}", "rb") as found:
                    yield cast(BinaryIO, found)

    def _files(self) -> Iterator[StoredObject]:
        folders = [""]
        while folders:
            prefix = folders.pop()
            with os.scandir(f"{self._root}/{prefix}") as entries:
                for entry in entries:
                    if entry.is_dir():
                        folders.append(f"{prefix}{entry.name}/")
                    elif not entry.name.startswith(WRITING):
                        # Another member may have removed it meanwhile.
                        with suppress(FileNotFoundError):
                            yield StoredObject(prefix + entry.name, entry.stat().st_size)

    def _put_file(self, path: Path, target: Path) -> None:
        Path(self._root).stat()  # never make the mount point of a storage that is away
        target.parent.mkdir(parents=True, exist_ok=True)
        if target.exists():  # one holder a group and epoch writes, so that nobody else does meanwhile
            raise FileExistsError
        aside = target.with_name(f"{WRITING}{target.name}")
        try:
            shutil.copyfile(path, aside)
            sync(aside)
            aside.rename(target)
        finally:
            aside.unlink(missing_ok=True)
        sync(target.parent)

    @contextmanager
    def _errors(self, what: str) -> Iterator[None]:
        try:
            yield
        except (StoreError, FileNotFoundError) as error:
            if isinstance(error, StoreError) or what == "read":
                raise
            raise StoreError(
                f"{self.url}: can't {what}: it is not there. Mount it, or make the folder or bucket."
            ) from error
        except Exception as error:  # the client of S3 raises errors of three packages
            reason = getattr(error, "strerror", None) or str(error).strip() or type(error).__name__
            raise StoreError(f"{self.url}: can't {what}: {reason}. {_cure(error)}") from error


def _cure(error: Exception) -> str:
    match error:
        case PermissionError():
            return "Give this user the right to list, read, write and remove there."
        case OSError(errno=28 | 122):
            return "Make room there, or keep readings for less time."
        case OSError(errno=30):
            return "Mount it writable."
        case _:
            return "Check the storage and the network to it."


def _filesystem(config: SharedStorageConfig) -> Any:
    if not config.is_s3:
        return None
    try:
        import fsspec  # noqa: PLC0415 - a package of the extra, for S3 alone

        options: dict[str, Any] = {"config_kwargs": _TIMEOUTS, "skip_instance_cache": True}
        if config.endpoint_url is not None:
            options["endpoint_url"] = config.endpoint_url
        if config.access_key_file is not None and config.secret_key_file is not None:
            options["key"] = config.access_key_file.read_text().strip()
            options["secret"] = config.secret_key_file.read_text().strip()
        return fsspec.filesystem("s3", **options)
    except ImportError as error:
        raise ConfigError(
            "cluster.storage.url",
            "S3 needs packages that are not installed",
            "Install kilowatch with its extra: pip install 'kilowatch[s3]'.",
        ) from error
    except OSError as error:
        raise ConfigError(
            "cluster.storage.access_key_file", f"{error.filename} can't be read: {error.strerror}"
        ) from error
