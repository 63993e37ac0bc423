"""Evidence of an incident: `/api/v1/incidents/<key>/evidence`.

A *card* has what was known of one subject of an incident when it was notified: its place, the lines of
the kernel's log, its readings around the moment, what else happened on its node, the earlier faults of
its board and of its slot, the remedy, and the commands to run. A page has a short form of it.
"""

from __future__ import annotations

import msgspec

from api.alerts import Remediation, Severity, Subject


class EvidenceLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the kernel's log, or the message of an event."""

    at: int
    """ns since 1970, of the node."""
    kind: str
    """Kind of the event: `xid`, `driver_log`, ..."""
    line: str
    """Printable, cut to 500 characters."""


class EvidenceReadings(msgspec.Struct, frozen=True, kw_only=True):
    """Readings around the moment, in base units: a row an instant, a column a metric."""

    at: tuple[int, ...] = ()
    """ns since 1970. The last instant is that of the collection."""
    columns: dict[str, tuple[float | None, ...]] = {}
    """By metric; null is a gap."""
    gaps: dict[str, str] = {}
    """By metric, the reason of its gap at the last instant."""


class NearbyEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event or alert of the same node within five minutes of the moment."""

    at: int
    """ns since 1970."""
    kind: str
    """`event` or `alert`."""
    what: str
    """Kind of the event, with the number of an XID, or rule of the alert."""
    gpu: str = ""
    """UUID; empty for the node."""
    index: str = ""
    """Index of the GPU, for people."""
    text: str = ""
    """Summary of the alert."""
    line: str = ""
    """Line of the kernel's log, or message of the event."""
    process: str = ""
    """The process that caused it, if known."""
    job: str = ""


class AffectedJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that held the GPU, or GPUs of the node, at the moment."""

    scheduler: str
    job: str
    """Id of the job."""
    job_name: str = ""
    user: str = ""
    account: str = ""
    gpus: tuple[str, ...] = ()
    """Indices of its GPUs on this node, for people; 16 at most."""
    begin: int = 0
    """ns since 1970."""
    end: int | None = None
    """Null while it ran when the card was made."""


class PastFault(msgspec.Struct, frozen=True, kw_only=True):
    """An earlier page or ticket about the same board or slot."""

    at: int
    """When its alert began, ns since 1970."""
    rule: str
    severity: Severity
    node: str
    place: str = ""
    """Physical slot, else PCI address."""
    serial: str = ""
    """Serial number of the board, else its UUID."""
    incident: str
    """Key of the incident."""


class FaultHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Faults of a board and of a slot within 30 days, newest first, without the present incident."""

    days: int = 30
    board: tuple[PastFault, ...] = ()
    """Of this board, by serial number (UUID where it has none), wherever it was; 20 at most."""
    board_total: int = 0
    slot: tuple[PastFault, ...] = ()
    """In this slot, of any board; 20 at most."""
    slot_total: int = 0


class Remedy(msgspec.Struct, frozen=True, kw_only=True):
    """Remedy of an alert, by its rule."""

    remediation: Remediation | None = None
    what: str = ""
    """Meaning of the alert and what to do."""
    steps: tuple[str, ...] = ()
    """Steps in order, of the runbook."""
    until: str = ""
    """How soon, by the severity: a page now, a ticket in working hours."""
    replace: str = ""
    """When to have the part replaced."""
    runbook: str = ""
    """URL or file of the runbook."""


class EvidenceCommand(msgspec.Struct, frozen=True, kw_only=True):
    """A command to run, complete."""

    name: str
    """`Acknowledge`, `Silence`, ..."""
    command: str


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """A card: what was known of one subject of an incident when it was notified."""

    alert: str
    """Key of the alert."""
    rule: str
    severity: Severity
    subject: Subject
    summary: str
    moment: int
    """When the condition was first true, ns since 1970."""
    collected: int
    """ns since 1970."""
    node: str = ""
    name: str = ""
    """Name of a circuit, budget or UPS."""
    index: str = ""
    """Index of the GPU."""
    link: str = ""
    model: str = ""
    uuid: str = ""
    serial: str = ""
    pci: str = ""
    slot: str = ""
    """Physical slot, as the platform reports it."""
    rack: str = ""
    owner: str = ""
    """Person or team that the alert belonged to, by `[[owners]]`."""
    job: str = ""
    user: str = ""
    """Whose job it is."""
    account: str = ""
    process: str = ""
    jobs: tuple[AffectedJob, ...] = ()
    """Jobs that held the GPU, or GPUs of the node, at the moment, those with the most GPUs first; 8 at most."""
    jobs_total: int | None = None
    """Null where the node does not say, and of what is on no node."""
    labels: dict[str, str] = {}
    """Further labels of the alert: `user`, `circuits`, ...; 32 at most."""
    lines: tuple[EvidenceLine, ...] = ()
    """Newest first, 20 at most."""
    readings: EvidenceReadings = EvidenceReadings()
    nearby: tuple[NearbyEvent, ...] = ()
    """In order of time, 40 at most."""
    nearby_total: int = 0
    history: FaultHistory | None = None
    """Null where it can't be read."""
    remedy: Remedy = Remedy()
    commands: tuple[EvidenceCommand, ...] = ()
    missing: dict[str, str] = {}
    """By part (`readings`, `lines`, `history`), why it is missing or incomplete."""


class EvidenceReply(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of an incident."""

    at: int
    """ns since 1970."""
    incident: str
    """Its whole key."""
    title: str = ""
    cards: tuple[Evidence, ...] = ()
    """A card for each subject, the worst first."""
    problem: str = ""
    """Why there is none; empty where there is."""
