"""How the journal itself is: alerts about it, for people to hear of like of any other."""

from __future__ import annotations

from pathlib import Path

import msgspec

from api.alerts import Alert, AlertState, Severity, Subject

RULES = ("journal_lost", "journal_unwritable")
LOST_SHOWN_NS = 86_400_000_000_000
"""So long is it told that a journal was lost."""
_PATIENCE_NS = 10_000_000_000
"""A disk that could not be written for so long is somebody's business."""
_NODE = "aggregator"


class JournalHealth:
    """What is wrong with the journal, and what of that was told."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lost: Alert | None = None
        self._unwritten_since: int | None = None
        self._told: dict[str, Alert] = {}

    def lost(self, what: str, wall_ns: int) -> None:
        """The journal, or a part of it, was lost at opening."""
        self._lost = _alert(
            "journal_lost",
            Severity.TICKET,
            wall_ns,
            f"The alert journal was lost: {what}",
            "Acknowledgements, silences and what was not yet delivered are forgotten; alerts that "
            "fire are told anew. Check the disk; the old file is kept beside the new one.",
        )

    def changes(self, trouble: str, wall_ns: int) -> list[Alert]:
        """Return the alerts that began or ended since the last call. `trouble`: why the file could
        not be written, or ""."""
        wrong = {alert.key: alert for alert in self._wrong(trouble, wall_ns)}
        began = [alert for key, alert in wrong.items() if key not in self._told]
        ended = [
            msgspec.structs.replace(alert, state=AlertState.RESOLVED, changed=wall_ns)
            for key, alert in self._told.items()
            if key not in wrong
        ]
        self._told = {key: self._told.get(key, alert) for key, alert in wrong.items()}
        return began + ended

    def _wrong(self, trouble: str, wall_ns: int) -> list[Alert]:
        found = []
        if self._lost is not None and wall_ns - self._lost.since < LOST_SHOWN_NS:
            found.append(self._lost)
        if not trouble:
            self._unwritten_since = None
            return found
        if self._unwritten_since is None:
            self._unwritten_since = wall_ns
        if wall_ns - self._unwritten_since >= _PATIENCE_NS:
            found.append(
                _alert(
                    "journal_unwritable",
                    Severity.PAGE,
                    self._unwritten_since,
                    f"The alert journal can't be written: {trouble}",
                    f"{self._path}: make room or repair the disk. Alerts are still told, but a "
                    "restart would forget what has happened since, and may tell it twice.",
                )
            )
        return found


def _alert(rule: str, severity: Severity, since: int, summary: str, description: str) -> Alert:
    return Alert(
        key=f"{rule}/{_NODE}/journal",
        rule=rule,
        state=AlertState.FIRING,
        severity=severity,
        node=_NODE,
        subject=Subject.NODE,
        since=since,
        changed=since,
        summary=summary,
        description=description,
        runbook=rule.replace("_", "-"),
    )
