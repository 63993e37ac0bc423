"""The register of nodes: which are expected, retired and renamed, and their releases: `/api/v1/register`."""

from __future__ import annotations

import msgspec

from api.decoding import OpenEnum


class RegisterState(OpenEnum):
    """The state of a node in the register."""

    ONLINE = "online"
    STALE = "stale"
    OFFLINE = "offline"
    UNHEARD = "unheard"
    """The aggregator that has it does not answer."""
    MISSING = "missing"
    """Expected, and not known to the aggregator: never heard, or gone."""
    RETIRED = "retired"
    RETURNED = "returned"
    """Retired, and it sends again."""
    RENAMED = "renamed"
    """Its node has another name now: `renamed_to`."""


class ReleaseDrift(OpenEnum):
    """The release of a node beside that of the aggregator."""

    SAME = "same"
    OLDER = "older"
    NEWER = "newer"
    OTHER = "other"
    """Another build of the same release."""
    UNKNOWN = "unknown"
    """A release that is not known, or is no number."""


class RegisterRow(msgspec.Struct, frozen=True, kw_only=True):
    """A node of the register or of the fleet."""

    node: str
    state: RegisterState
    expected: bool = False
    since: int | None = None
    """When it was last expected, retired or renamed, ns since 1970; null where nobody did."""
    by: str = ""
    why: str = ""
    release: str = ""
    """Release of its collector; empty before its first inventory."""
    drift: ReleaseDrift = ReleaseDrift.UNKNOWN
    driver_version: str | None = None
    gpus: int = 0
    role: str = ""
    """Empty where it is not known."""
    age_seconds: float | None = None
    """Age of its newest frame; null when there was none."""
    machine: str = ""
    """Identity of the machine that had the name last; empty where the node does not tell it."""
    formerly: list[str] = []
    """Names that it had before, oldest first."""
    renamed_to: str = ""
    conflict: str = ""
    """Why what is stored under the former name is not shown as this node's; empty where it is."""


class RegisterReply(msgspec.Struct, frozen=True):
    """Every node of the register and the fleet, by name."""

    at: int
    """ns since 1970."""
    release: str
    """Release of the aggregator."""
    nodes: list[RegisterRow]


class RegisterRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A node that is to be expected or retired."""

    who: str = ""
    """A name beside that of the token."""
    why: str = ""


class RenameRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The new name of a node."""

    to: str
    who: str = ""
    why: str = ""


class RegisterChange(msgspec.Struct, frozen=True):
    """The answer to a change of the register."""

    at: int
    """ns since 1970."""
    row: RegisterRow
