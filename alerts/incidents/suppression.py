"""What holds an alert back: a maintenance window, a silence, or the alert that is its cause."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from alerts.incidents.clock import SteadyClock
from alerts.incidents.index import IncidentIndex
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import SilenceWindow, TrackedAlert
from api.alerts import NotificationState, Silence, matches_all

KEEP_OVER = 86_400.0
"""Seconds for which a silence that ended is listed."""


class AlertSuppressor:
    """Decides for every alert that fires whether it may be told."""

    def __init__(self, cabinet: IncidentIndex, patience: NotificationTimings) -> None:
        self._cabinet = cabinet
        self._patience = patience
        self.asked: dict[str, None] = {}
        """Keys of alerts whose standing must be looked at."""
        self.left: dict[str, list[str]] = {}
        """By key of an incident that was told: its alerts that turned out to be consequences."""
        self._releasing = {
            key: None for key, case in cabinet.cases.items() if case.release is not None
        }

    def ask_all(self) -> None:
        """Look at every alert that fires: windows have changed."""
        self.asked.update((key, None) for key, case in self._cabinet.cases.items() if case.firing)

    # -- Windows ---------------------------------------------------------------------------------

    def covers_until(self, window: SilenceWindow) -> float:
        """Return until when a window holds alerts back."""
        after = self._patience.after_maintenance if window.silence.maintenance else 0.0
        return window.ends + after

    def turn(self, time: float) -> list[Silence]:
        """Let windows begin and end; return those that did."""
        turned = []
        for key, window in list(self._cabinet.windows.items()):
            if window.over:
                if time - self.covers_until(window) >= KEEP_OVER:
                    del self._cabinet.windows[key]
                    self._cabinet.touched_windows[key] = None
                continue
            if time >= self.covers_until(window):
                window.over = True
            elif time < window.starts or window.begun:
                continue
            window.begun = True
            self._cabinet.touched_windows[key] = None
            turned.append(window.silence)
        if turned:
            self.ask_all()
        return turned

    def next_turn(self) -> float:
        """Return when the next window begins or ends."""
        return min(
            (
                self.covers_until(window) if window.begun else window.starts
                for window in self._cabinet.windows.values()
                if not window.over
            ),
            default=float("inf"),
        )

    # -- Alerts ----------------------------------------------------------------------------------

    def settle(self, time: float, recovering: Collection[str]) -> list[TrackedAlert]:
        """Look at all that was asked for and all that is due; return alerts that need an incident."""
        free = []
        asked, self.asked = self.asked, {}
        for key in asked:
            case = self._cabinet.cases.get(key)
            if case is not None and case.firing and self._judge(case, time):
                free.append(case)
        for key in list(self._releasing):
            case = self._cabinet.cases.get(key)
            if case is None or not case.firing or case.release is None:
                del self._releasing[key]
            elif case.release <= time and not self._only_kept(case, recovering):
                del self._releasing[key]
                self._cabinet.stand(case, NotificationState.NOTIFIED, "")
                free.append(case)
        return [case for case in free if not case.incident]

    def next_release(self, time: float) -> float:
        """Return when the next alert is told that was held back."""
        due = (self._cabinet.cases[key].release for key in self._releasing)
        return min((at for at in due if at is not None and at > time), default=float("inf"))

    def _judge(self, case: TrackedAlert, time: float) -> bool:
        """Look at one alert; return whether it may be told now."""
        standing, by = self._held_by(case, time)
        if standing is NotificationState.NOTIFIED:
            return self._free(case, time)
        if (standing, by) != (case.standing, case.by) or case.release is not None:
            self._cabinet.stand(case, standing, by)
        if standing is NotificationState.INHIBITED:
            self._leave(case, time, told_too=True)
        else:
            self._leave(case, time, told_too=False)
        return False

    def _free(self, case: TrackedAlert, time: float) -> bool:
        """Nothing holds an alert back: it is told, but not at once when something just did."""
        if case.standing is NotificationState.NOTIFIED:
            return True
        if case.incident:
            self._cabinet.stand(case, NotificationState.NOTIFIED, "")
            return True
        if case.release is None:
            grace = self._patience.grace if case.standing is NotificationState.INHIBITED else 0.0
            case.release = time + grace
            self._cabinet.touched_cases[case.alert.key] = None
            self._releasing[case.alert.key] = None
        return False

    def _leave(self, case: TrackedAlert, time: float, *, told_too: bool) -> None:
        """Take an alert that is held back out of its incident; out of one that was told only where
        its cause is."""
        dossier = self._cabinet.dossiers.get(case.incident)
        if dossier is None or (dossier.told is not None and not told_too):
            return
        self._cabinet.part(case)
        if dossier.told is not None:
            self.left.setdefault(dossier.key, []).append(case.alert.key)

    def _held_by(self, case: TrackedAlert, time: float) -> tuple[NotificationState, str]:
        labels = None
        silenced = ""
        for key, window in self._cabinet.windows.items():
            if window.over or not window.begun:
                continue
            labels = labels or case.alert.matched_labels()
            if matches_all(window.silence.matchers, labels):
                if window.silence.maintenance:
                    return NotificationState.MAINTENANCE, key
                silenced = silenced or key
        if silenced:
            return NotificationState.SILENCED, silenced
        dossier = self._cabinet.dossiers.get(case.incident)
        told = dossier is not None and dossier.told is not None
        if told and dossier is not None and time - dossier.told_at > self._patience.late_cause:
            return NotificationState.NOTIFIED, ""  # what was told long before is no consequence
        cause = self._cabinet.cause_of(case)
        return (NotificationState.INHIBITED, cause) if cause else (NotificationState.NOTIFIED, "")

    def _only_kept(self, case: TrackedAlert, recovering: Collection[str]) -> bool:
        """Whether an alert is good already, and fires only because its `keep` has not passed. What
        speaks of an instant always is, so there it counts only against a maintenance window."""
        edge = self._cabinet.policy(case.alert.rule).edge
        return case.alert.key in recovering and (
            not edge or case.standing is NotificationState.MAINTENANCE
        )


def make(silence: Silence, clock: SteadyClock, cabinet: IncidentIndex) -> None:
    """Add a window."""
    cabinet.windows[silence.id] = SilenceWindow(
        silence=silence,
        order=clock.order(),
        starts=clock.at(silence.starts),
        ends=clock.at(silence.ends),
    )
    cabinet.touched_windows[silence.id] = None


def cut(window: SilenceWindow, time: float, wall_ns: int) -> None:
    """End a window now."""
    window.ends = min(window.ends, time)
    window.starts = min(window.starts, time)
    window.silence = msgspec.structs.replace(
        window.silence, ends=wall_ns, starts=min(window.silence.starts, wall_ns)
    )
