"""The record of a recovery: in a file of this user, and at the aggregator while that answers."""

from __future__ import annotations

import fcntl
import os
import secrets
from pathlib import Path

import msgspec
from msgspec import structs

from api.recovery import RecoveryStepReply, RecoveryStepRequest
from kilowatch.clients.api import ApiClient, ApiError, part
from telemetry.errors import ConfigError
from telemetry.files import private_file
from telemetry.files.local_token import state_folders
from telemetry.text.decoders import of_json


class LocalStep(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file: a step, and whether the aggregator has it."""

    node: str
    step: RecoveryStepRequest
    sent: bool
    reason: str = ""
    """Why the aggregator does not have it."""
    refused: bool = False
    """Whether it never will: it refused this step itself."""


class RecoveryRecord:
    """The file of one node's recoveries, held by one run at a time."""

    def __init__(self, node: str, folder: Path | None = None) -> None:
        """Open and lock it. Raises `ConfigError` where it can't be written, or another run has it."""
        place = record_folder(folder)
        self.path = place / f"{node}.jsonl"
        self._node = node
        try:
            private_file.make_folder(place)
            self._handle = _open(self.path, os.O_CREAT)
        except BlockingIOError as error:
            raise ConfigError(str(self.path), f"a recovery of {node} runs already", "Wait for its end.") from error
        except OSError as error:
            raise ConfigError(
                str(self.path), f"the record can't be written: {error.strerror}", "Nothing was run."
            ) from error

    def add(self, step: RecoveryStepRequest, api: ApiClient | None) -> str:
        """Record a step; return why the aggregator does not have it, "" where it has."""
        line = _sent(LocalStep(node=self._node, step=step, sent=False, reason=NOT_ASKED), api)
        _append(self._handle, line)
        return line.reason

    def close(self) -> None:
        """Release it."""
        os.close(self._handle)


NOT_ASKED = "it was not asked"
MOST_WAITING = 200
"""Steps that are sent later by one command."""
_LONGEST_FILE = 16 * 1024 * 1024
_RETRIED = frozenset({401, 403, 404, 408, 429})
"""Refusals of the present token, of a node that is not known yet, or of too many requests."""


def record_folder(folder: Path | None = None) -> Path:
    """Return the folder of the records below a state folder, by default that of this user."""
    return (folder or state_folders()[0]) / "recover"


def send_waiting(api: ApiClient, folder: Path | None = None) -> tuple[int, int]:
    """Send the steps that were recorded while the aggregator was away, oldest first; return how many it has
    now, and how many still wait. Files that another run holds, or that can't be read, are left alone.
    """
    sent = left = 0
    for path in sorted(record_folder(folder).glob("*.jsonl")):
        try:
            handle = _open(path)
        except OSError:
            continue
        try:
            for line in _waiting(os.pread(handle, _LONGEST_FILE, 0)):
                tried = left or sent >= MOST_WAITING
                late = structs.replace(line, step=structs.replace(line.step, late=True))
                done = line if tried else _sent(late, api)
                if done.sent or done.refused:
                    _append(handle, done)
                sent += done.sent
                left += not (done.sent or done.refused)
        except OSError:
            continue
        finally:
            os.close(handle)
    return sent, left


def _open(path: Path, flags: int = 0) -> int:
    """Open a file of records, and lock it. Raises `OSError`; `BlockingIOError` where another run has it."""
    handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | flags, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        size = os.fstat(handle).st_size
        if size and os.pread(handle, 1, size - 1) != b"\n":  # a machine stopped in the middle of a line
            os.write(handle, b"\n")
    except OSError:
        os.close(handle)
        raise
    return handle


def _waiting(body: bytes) -> list[LocalStep]:
    """Return the steps of a file that the aggregator neither has nor has refused. A line that can't be
    read, the last of a machine that stopped, is left out."""
    found: dict[str, LocalStep] = {}
    for raw in body.splitlines():
        try:
            line = of_json(LocalStep).decode(raw)
        except msgspec.DecodeError:
            continue
        if line.sent or line.refused:
            found.pop(line.step.id, None)
        else:
            found[line.step.id] = line
    return list(found.values())


def _sent(line: LocalStep, api: ApiClient | None) -> LocalStep:
    """Send a step; return it with whether the aggregator has it now."""
    if api is None:
        return line
    try:
        api.post(f"/api/v1/nodes/{part(line.node)}/recovery", line.step, RecoveryStepReply)
    except ApiError as error:
        status = error.status
        refused = status is not None and 400 <= status < 500 and status not in _RETRIED
        return structs.replace(line, reason=str(error), refused=refused)
    return structs.replace(line, sent=True, reason="")


def _append(handle: int, line: LocalStep) -> None:
    os.write(handle, msgspec.json.encode(line) + b"\n")
    os.fsync(handle)


def fresh_id() -> str:
    """Return an id for a step that no other has."""
    return f"recovery-{secrets.token_hex(8)}"
