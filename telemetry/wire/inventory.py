"""The inventory of a node, and the other JSON messages beside the frames.

Border types: tolerant of unknown fields, fields are only ever added, with a default.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

import msgspec

from telemetry.devices import Gpu, Link, MemoryPool, MigInstance, Port
from telemetry.errors import WireError
from telemetry.text.decoders import of_json
from telemetry.wire.schema import SCHEMA, Schema

T = TypeVar("T")


class NodeRole(StrEnum):
    """Purpose of a node. Only nodes of the role `gpu` must have GPUs."""

    GPU = "gpu"
    HEAD = "head"
    LOGIN = "login"
    COMPUTE = "compute"
    """Runs jobs without GPUs."""
    STORAGE = "storage"
    SWITCH = "switch"


# Facts of a host that nodes of a kind are compared by; others are for display.

MEMORY_FACT = "memory_bytes"
"""Installed memory, or what the kernel has of it."""
MEMORY_BLOCKS_FACT = "memory_blocks"
"""There where that is the size of the installed memory, to the byte."""
DRIVES_FACT = "nvme_drives"
ARGUMENTS_FACT = "kernel_args"
MOUNTS_FACT = "mounts"
"""Number of mounts: there where they are known."""
MOUNT_FACT = "mount:"
"""Beginning of a fact: `mount:/scratch` is the type of the file system there."""
MEASURED_FACT = "measured:"
"""Beginning of a fact: a rate that `kilowatch check --full` measured, in base units a second."""
LABEL_FACT = "label:"
"""Beginning of a fact: a label of the settings."""
SERVICE_FACT = "service:"
"""Beginning of a fact: `service:slurmd` is `running` or `not running`."""


MOST_BEFORE = 7
NO_SCHEMA = Schema(())


class Inventory(msgspec.Struct, frozen=True, kw_only=True):
    """The devices and facts of a node; retained on the bus, sent again when it changes."""

    node: str
    cluster: str = "default"
    session: int = 0
    version: int = 0
    """Incremented within a session with every change."""
    taken_at: int = 0
    """ns since 1970."""
    kilowatch: str = ""
    """Release of the collector."""
    source: str = ""
    """Source of the readings: `nvml`, `amd`, `nvml+amd`, `nvidia-smi`, `simulated:two-dgx-h100` ..."""
    role: str = ""
    """A `NodeRole`, by the settings of the node or else by its PCI bus and services; "" where neither tells."""
    host: dict[str, str] = {}
    """Facts for display: kernel, CPU model, product name, serial."""
    driver_version: str | None = None
    cuda_version: str | None = None
    nvml_version: str | None = None
    driver_state: str = "unknown"
    """`up`, `missing`, `mismatched`, `hung`, `no_permission`, `released`, or `none` where the
    source has no driver."""
    driver_message: str = ""
    """The fault of the driver and its cure, in one sentence."""
    excluded: tuple[str, ...] | None = None
    """PCI addresses of the GPUs that its settings tell the driver to leave out; None where it does not say."""
    gpus: tuple[Gpu, ...] = ()
    """In the order of the rows of the frame's `gpu` blocks."""
    links: tuple[Link, ...] = ()
    """In the order of the rows of the frame's `link` blocks."""
    ports: tuple[Port, ...] = ()
    """In the order of the rows of the frame's `port` blocks."""
    instances: tuple[MigInstance, ...] = ()
    """In the order of the rows of the frame's `instance` blocks."""
    pools: tuple[MemoryPool, ...] = ()
    schema: Schema = SCHEMA
    before: tuple[Inventory, ...] = ()
    """Inventories of other rows that it followed, newest first, `MOST_BEFORE` at most: frames in the ring were made with
    them. Without facts of the host and of GPUs; `NO_SCHEMA` stands for the schema of the inventory itself."""

    def past(self) -> list[Inventory]:
        """Return the inventories of `before`, each with its schema."""
        return [
            msgspec.structs.replace(each, schema=self.schema) if each.schema == NO_SCHEMA else each
            for each in self.before
        ]


_ROLES = {str(role): role for role in NodeRole}


def role_of(inventory: Inventory) -> NodeRole | None:
    """Return the role of a node; of an older collector that does not say it, by its GPUs; None where nothing
    tells, or where it is a role of a newer release."""
    found = _ROLES.get(inventory.role)
    if found is not None:
        return found
    return NodeRole.GPU if inventory.gpus and not inventory.role else None


def machine_of(inventory: Inventory) -> str:
    """Return the identity of a node's machine, which outlives its name; "" where its collector does not tell it."""
    return inventory.host.get("machine", "")


class FrameSpan(msgspec.Struct, frozen=True, array_like=True):
    """Frames `first` to `last` of a session, both included."""

    session: int
    first: int
    last: int


class NodeState(StrEnum):
    """Whether a collector is running."""

    ONLINE = "online"
    OFFLINE = "offline"


class CollectorStatus(msgspec.Struct, frozen=True, kw_only=True):
    """State of a collector; retained, and its last will.

    An `offline` counts only if its session is the current one: a will may arrive after the next
    start's `online`.
    """

    state: NodeState
    session: int
    interval: float = 1.0
    """Seconds between frames."""
    slow_interval: float = 15.0
    at: int = 0
    reason: str = ""
    """`lost` in the will, `shutdown` in a planned end."""
    ring: tuple[FrameSpan, ...] = ()
    """Frames in the collector's ring, one span per session, oldest first. The aggregator requests
    those that it lacks; frames before a span's first are gone, and are recorded as a hole."""


class CommandKind(StrEnum):
    """Requests to a collector."""

    RESEND = "resend"
    """Send frames `first` to `last` of `about` again, on `backfill`."""
    RELEASE = "release"
    """Close the driver for `collector.release_seconds`, so that it can be upgraded; frames go on, all gaps."""
    RESUME = "resume"
    """Open the driver again."""
    INVENTORY = "inventory"
    """Read the inventory again."""


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A request of an aggregator or an operator to a collector."""

    kind: CommandKind
    about: int = 0
    """Session that the frames belong to."""
    first: int = 0
    last: int = 0


class CommandReply(msgspec.Struct, frozen=True, kw_only=True):
    """The collector's answer to `resend`, sent after the frames: those that it no longer has."""

    about: int
    first: int
    last: int
    sent: int = 0
    gone: tuple[FrameSpan, ...] = ()
    """Frames that are no longer in the ring; the aggregator records them as holes."""


_encoder = msgspec.json.Encoder()


def encode(message: msgspec.Struct) -> bytes:
    """Return the JSON of a message."""
    return _encoder.encode(message)


def decode(payload: bytes, kind: type[T]) -> T:
    """Decode a JSON message. Raises `WireError` (`malformed`) with the place of the fault."""
    try:
        return of_json(kind).decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise WireError("malformed", str(error)) from error
