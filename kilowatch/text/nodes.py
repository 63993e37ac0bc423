"""The register of nodes as text."""

from __future__ import annotations

from collections import Counter

from api.node_register import RegisterReply, RegisterRow, RegisterState
from kilowatch.text.table import columns
from present.device.node import DRIFTS, driver_row, frame_row, release_row, role_row
from telemetry.text import ABSENT, counted, rfc3339

_HEAD = ("NODE", "STATE", "ROLE", "EXPECTED", "RELEASE", "DRIVER", "NEWEST FRAME", "SINCE", "MACHINE", "")
_ORDER = (
    RegisterState.RETURNED, RegisterState.MISSING, RegisterState.OFFLINE, RegisterState.UNHEARD,
    RegisterState.STALE, RegisterState.ONLINE, RegisterState.RENAMED, RegisterState.RETIRED,
)  # fmt: skip
"""Order of the list: first comes what a person should look at."""
_WIDTH = 160


def node_lines(reply: RegisterReply) -> list[str]:
    """Return a line a node, what needs a person first, and one that sums up."""
    if not reply.nodes:
        return ["no node was heard or expected yet"]
    rows = sorted(reply.nodes, key=lambda row: (_place(row.state), row.node))
    lines = columns([_HEAD, *map(_cells, rows)], width=_WIDTH)
    states = Counter(row.state for row in rows)
    parts = [f"{states[each]} {each}" for each in _ORDER if states[each]]
    drifted = sum(row.drift in DRIFTS for row in rows)
    release = f"the aggregator is {reply.release}"
    if drifted:
        release += f", {counted(drifted, 'node')} not"
    return [*lines, f"{', '.join(parts)}; {release}"]


def _place(state: RegisterState) -> int:
    return _ORDER.index(state) if state in _ORDER else -1


def _cells(row: RegisterRow) -> tuple[str, ...]:
    its = release_row(row.release, row.drift)
    known = (role_row(row.role), its, driver_row(row.driver_version), frame_row(row.age_seconds))
    role, release, driver, frame = ("-" if each.value == ABSENT else each.value for each in known)
    return (
        row.node, str(row.state), role, "yes" if row.expected else "-",
        f"{release} ({its.note})" if its.note else release, driver, frame,
        "-" if row.since is None else rfc3339(row.since)[:10], row.machine or "-", "; ".join(_notes(row)),
    )  # fmt: skip


def _notes(row: RegisterRow) -> list[str]:
    notes = []
    if row.renamed_to:
        notes.append(f"now {row.renamed_to}")
    if row.formerly:
        notes.append(f"formerly {', '.join(row.formerly)}")
    if row.conflict:
        notes.append(row.conflict)
    if row.by:
        notes.append(f"by {row.by}")
    if row.why:
        notes.append(row.why)
    return notes
