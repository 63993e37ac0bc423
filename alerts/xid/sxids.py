"""The catalogue of SXIDs, the errors of NVSwitches: name, and how much of the fabric each costs."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files


class Fatality(StrEnum):
    """Traffic that an error of an NVSwitch costs."""

    FABRIC = "fabric"
    """The whole fabric's."""
    PORT = "port"
    """A single port's: a GPU's, or a baseboard's where the port is a trunk."""
    NONE = "none"
    """None is lost for good."""
    UNKNOWN = "unknown"
    """No source says; the line itself does."""


@dataclass(frozen=True, slots=True)
class SxidMeaning:
    """Meaning of an SXID."""

    sxid: int
    name: str
    """Name in the header of NVIDIA's driver, without the prefix that all have."""
    fatal: Fatality
    remedy: str
    """"" where it is not known whether it is fatal."""
    sources: tuple[str, ...]
    """Where the name, and whether it is fatal, were found."""
    date: str
    """When they were, `2026-11-22`."""


@cache
def sxids() -> dict[int, SxidMeaning]:
    """Return every known SXID by number."""
    text = files("alerts.xid").joinpath("sxids.toml").read_text(encoding="utf-8")
    table = tomllib.loads(text)
    fatal = {sxid: (Fatality(group["degree"]), group["source"]) for group in table["fatal"] for sxid in group["sxids"]}
    names = {
        unit["first"] + number: f"{unit['name']}_{member}"
        for unit in table["unit"]
        for number, member in enumerate(unit["members"].split())
    }
    sources = table["sources"]
    found = {}
    for sxid, name in sorted(names.items()):
        degree, source = fatal.get(sxid, (Fatality.UNKNOWN, ""))
        used = ["header", *([source] if source else [])]
        found[sxid] = SxidMeaning(
            sxid=sxid,
            name=name,
            fatal=degree,
            remedy=table["remedy"].get(degree.value, ""),
            sources=tuple(sources[key]["url"] for key in used),
            date=max(sources[key]["date"] for key in used),
        )
    return found


def fatality_of(sxid: int) -> Fatality:
    """Return what an error costs; `UNKNOWN` also for a number that no catalogue has."""
    known = sxids().get(sxid)
    return Fatality.UNKNOWN if known is None else known.fatal
