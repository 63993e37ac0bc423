"""What people ask of the desk, checked: which incident is meant, who asks, and why."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from alerts.incidents.clock import SteadyClock
from alerts.incidents.index import IncidentIndex
from alerts.incidents.state import IncidentRecord, SilenceWindow
from api.alerts import Matcher, Silence, matches_all
from telemetry.errors import DeskError, did_you_mean

_LONGEST = 500
_Thing = TypeVar("_Thing")


def dossier_of(key: str, cabinet: IncidentIndex) -> IncidentRecord:
    """Return the incident that is meant: by its key, how only that begins, or an alert's key."""
    case = cabinet.cases.get(key)
    if case is not None and case.incident:
        return cabinet.dossiers[case.incident]
    open_ones = {one.key: one for one in cabinet.dossiers.values() if one.closed is None}
    found = _meant(key, open_ones) or _meant(key, cabinet.dossiers)
    if found is None:
        hint = did_you_mean(key, open_ones) or "`kilowatch alerts` lists those that are open."
        raise DeskError(f"no incident {key!r}. {hint}")
    return found


def window_of(key: str, cabinet: IncidentIndex) -> SilenceWindow:
    """Return the silence or maintenance window that is meant."""
    found = _meant(key, cabinet.windows)
    if found is None:
        hint = did_you_mean(key, cabinet.windows) or "`kilowatch silence --list` lists them."
        raise DeskError(f"no silence {key!r}. {hint}")
    return found


def _meant(key: str, things: Mapping[str, _Thing]) -> _Thing | None:
    if key in things:
        return things[key]
    found = [name for name in things if name.startswith(key)] if len(key) >= 4 else []
    if len(found) > 1:
        raise DeskError(f"{key!r} may be {_some(found)}. Write more of it.")
    return things[found[0]] if found else None


def _some(names: Sequence[str]) -> str:
    few = ", ".join(names[:3])
    return f"{few} or {len(names) - 3} more" if len(names) > 3 else few


def said(what: str, text: str) -> str:
    """Return what a person said, without spaces around it. Raises `DeskError` when it is nothing."""
    text = " ".join(text.split())
    if not text:
        raise DeskError(f"{what} is missing. Others will want to know; say it in a few words.")
    if len(text) > _LONGEST:
        raise DeskError(f"{what} has {len(text)} characters. Use at most {_LONGEST}.")
    return text


def silence_of(
    matchers: Sequence[Matcher],
    who: str,
    why: str,
    starts: int | None,
    ends: int,
    maintenance: bool,
    clock: SteadyClock,
) -> Silence:
    """Return a silence as it was asked for. Raises `DeskError` for one that makes no sense."""
    what = "maintenance" if maintenance else "silence"
    if not matchers:
        raise DeskError(f"{what}: of which alerts? Name one label at least, as node=dgx-01.")
    if matches_all(matchers, {}):
        text = ", ".join(map(str, matchers))
        raise DeskError(f"{what}: {text} would hold back every alert. Name a label that they have.")
    begins = clock.wall if starts is None else max(starts, clock.wall)
    if ends <= begins:
        when = "has passed" if ends <= clock.wall else "is before its start"
        raise DeskError(f"{what}: its end {when}. Give a later one.")
    who, why = said(f"{what}: who asks for it", who), said(f"{what}: why", why)
    return Silence(
        id=_id([str(clock.order()), str(clock.wall), who, *map(str, matchers)]),
        matchers=tuple(matchers),
        who=who,
        why=why,
        starts=begins,
        ends=ends,
        created=clock.wall,
        maintenance=maintenance,
    )


def _id(parts: Iterable[str]) -> str:
    return hashlib.sha256("/".join(parts).encode()).hexdigest()[:12]
