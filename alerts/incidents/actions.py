"""Requests of people, validated: which incident or silence is meant, by whom, and why."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import TypeVar

from alerts.incidents.clock import SteadyClock
from alerts.incidents.index import IncidentIndex
from alerts.incidents.state import IncidentRecord, SilenceWindow
from api.alerts import Matcher, Silence, matches_all
from telemetry.errors import IncidentError, did_you_mean

_LONGEST = 500
_Record = TypeVar("_Record")


def record_of(key: str, index: IncidentIndex) -> IncidentRecord:
    """Return an incident by its key, a unique prefix of that, or the key of one of its alerts.

    Raises `IncidentError`.
    """
    tracked = index.alerts.get(key)
    if tracked is not None and tracked.incident:
        return index.incidents[tracked.incident]
    opened = {one.key: one for one in index.incidents.values() if one.closed is None}
    found = _find(key, opened) or _find(key, index.incidents)
    if found is None:
        hint = did_you_mean(key, opened) or "`kilowatch alerts` lists those that are open."
        raise IncidentError(f"no incident {key!r}. {hint}")
    return found


def window_of(key: str, index: IncidentIndex) -> SilenceWindow:
    """Return a silence or maintenance window by its id or a unique prefix. Raises `IncidentError`."""
    found = _find(key, index.windows)
    if found is None:
        hint = did_you_mean(key, index.windows) or "`kilowatch silence --list` lists them."
        raise IncidentError(f"no silence {key!r}. {hint}")
    return found


def _find(key: str, records: Mapping[str, _Record]) -> _Record | None:
    if key in records:
        return records[key]
    found = [name for name in records if name.startswith(key)] if len(key) >= 4 else []
    if len(found) > 1:
        raise IncidentError(f"{key!r} may be {_joined(found)}. Write more of it.")
    return records[found[0]] if found else None


def _joined(names: Sequence[str]) -> str:
    few = ", ".join(names[:3])
    return f"{few} or {len(names) - 3} more" if len(names) > 3 else few


def required(what: str, text: str) -> str:
    """Return a text with single blanks. Raises `IncidentError` when it is empty or too long."""
    text = " ".join(text.split())
    if not text:
        raise IncidentError(f"{what} is missing. Write it in a few words, for others to read.")
    if len(text) > _LONGEST:
        raise IncidentError(f"{what} has {len(text)} characters. Use at most {_LONGEST}.")
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
    """Return a new silence. Raises `IncidentError` for an invalid one."""
    what = "maintenance" if maintenance else "silence"
    if not matchers:
        raise IncidentError(f"{what}: there is no matcher. Name one label at least, as node=dgx-01.")
    if matches_all(matchers, {}):
        text = ", ".join(map(str, matchers))
        raise IncidentError(f"{what}: {text} would silence every alert. Name a label that they have.")
    begins = clock.wall if starts is None else max(starts, clock.wall)
    if ends <= begins:
        when = "has passed" if ends <= clock.wall else "is before its start"
        raise IncidentError(f"{what}: its end {when}. Give a later one.")
    who, why = required(f"{what}: who", who), required(f"{what}: why", why)
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
