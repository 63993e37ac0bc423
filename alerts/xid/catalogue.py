"""The catalogue of XIDs: one row a number, with NVIDIA's action, a severity and texts."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files


class XidSeverity(StrEnum):
    """Severity of a line, the worst first."""

    PAGE = "page"
    """A person is notified now."""
    TICKET = "ticket"
    """A person is notified in working hours."""
    INFO = "info"
    """Shown, but not notified."""
    IGNORE = "ignore"
    """Not shown: no sign of the health of a GPU."""

    @property
    def rank(self) -> int:
        """Rank to sort by, 0 for the worst."""
        return _RANKS[self]


_RANKS = {severity: rank for rank, severity in enumerate(XidSeverity)}


@dataclass(frozen=True, slots=True)
class XidMeaning:
    """Meaning of an XID."""

    xid: int
    name: str
    """NVIDIA's name of the error, "" for a number that no catalogue has."""
    nvidia_action: str
    """The immediate action of NVIDIA's catalogue, "" where it has none."""
    fault: str
    """Name of the fault in the rules: `gpu_lost`, `ecc_contained`, `application`."""
    severity: XidSeverity
    """Severity of one line alone."""
    meaning: str
    remedy: str


@cache
def catalogue() -> dict[int, XidMeaning]:
    """Return every known XID by number."""
    text = files("alerts.xid").joinpath("catalogue.toml").read_text(encoding="utf-8")
    return {
        xid: XidMeaning(
            xid=xid,
            name=name,
            nvidia_action=action,
            fault=group["fault"],
            severity=XidSeverity(group["severity"]),
            meaning=group["meaning"],
            remedy=group["remedy"],
        )
        for group in tomllib.loads(text)["group"]
        for xid, name, action in group["xids"]
    }


def meaning_of(xid: int) -> XidMeaning:
    """Return the meaning of an XID; an unknown number is a ticket of its own."""
    known = catalogue().get(xid)
    if known is not None:
        return known
    return XidMeaning(
        xid=xid,
        name="",
        nvidia_action="",
        fault="unknown_xid",
        severity=XidSeverity.TICKET,
        meaning="This number is in no catalogue of kilowatch; it may be newer.",
        remedy="Look it up in NVIDIA's list of XIDs, with the driver's version and the line.",
    )
