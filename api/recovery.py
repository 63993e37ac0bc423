"""Steps of a recovery, as `kilowatch recover --write` records them: `/api/v1/nodes/<node>/recovery`."""

from __future__ import annotations

import msgspec

from api.decoding import OpenEnum
from telemetry.devices import Event


class RecoveryOutcome(OpenEnum):
    """How a step of a recovery ended."""

    DONE = "done"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    """Ended because its time limit had passed."""
    INTERRUPTED = "interrupted"
    """The person who ran it stopped it."""
    UNKNOWN = "unknown"
    """Whether it worked could not be found out."""
    WAITS = "waits"
    """A person must act now; the recovery goes on when that is done."""


class RecoveryStepRequest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A step of a recovery that was carried out, to be stored as an event of kind `recovery`."""

    id: str
    """Chosen by who reports it: a step that is reported twice is stored once. Letters, digits and '-'."""
    step: str
    """`drain`, `stop`, `reset`, `reboot`, `cold_start`, `replace`, `facility`, `application`, `monitor`,
    `check` or `uncordon`."""
    outcome: RecoveryOutcome
    gpu: str | None = None
    """UUID; null for the whole node."""
    rules: tuple[str, ...] = ()
    """Rules whose alerts it is for."""
    who: str = ""
    """A name beside that of the token."""
    command: tuple[str, ...] = ()
    """Program and arguments; empty for a step without one."""
    started: int = 0
    """ns since 1970, of the machine that ran it."""
    ended: int = 0
    exit_code: int | None = None
    """Null where the program did not end by itself, or there is none."""
    output: str = ""
    """The end of what it printed."""
    late: bool = False
    """Whether it is sent long after it ended: the aggregator did not answer then."""


class RecoveryStepReply(msgspec.Struct, frozen=True):
    """The step as it is stored."""

    at: int
    """ns since 1970."""
    event: Event
