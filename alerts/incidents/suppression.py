"""Suppression of alerts, by a maintenance window, a silence, or the alert that is their cause."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

import msgspec

from alerts.incidents.index import IncidentIndex
from alerts.incidents.policy import NotificationTimings
from alerts.incidents.state import SilenceWindow, TrackedAlert
from api.alerts import NotificationState, Silence, matches_all
from telemetry.runtime.isolation import Isolation

LIST_ENDED = 86_400.0
"""Seconds for which a silence that ended is listed."""


class AlertSuppressor:
    """Decides for every firing alert whether it is notified."""

    def __init__(self, index: IncidentIndex, timings: NotificationTimings, aside: Isolation) -> None:
        """`aside`: notes the alerts that raise; they are notified as if nothing suppressed them."""
        self._aside = aside
        self._index = index
        self._timings = timings
        self.pending: dict[str, None] = {}
        """Keys of alerts that must be evaluated."""
        self._releasing = {key: None for key, tracked in index.alerts.items() if tracked.release is not None}

    # -- Windows ---------------------------------------------------------------------------------

    def covers_until(self, window: SilenceWindow) -> float:
        """Return until when a window suppresses alerts."""
        after = self._timings.after_maintenance if window.silence.maintenance else 0.0
        return window.ends + after

    def update_windows(self, time: float) -> list[Silence]:
        """Begin and end the windows that are due, and return them."""
        turned = []
        for key, window in list(self._index.windows.items()):
            if window.over:
                if time - self.covers_until(window) >= LIST_ENDED:
                    self._index.remove_window(key)
                continue
            if time >= self.covers_until(window):
                window.over = True
            elif time < window.starts or window.begun:
                continue
            window.begun = True
            turned.append(window.silence)
        if turned:
            self.pending.update((key, None) for key, one in self._index.alerts.items() if one.firing)
        return turned

    def next_window(self) -> float:
        """Return when the next window begins or ends."""
        return min(
            (
                self.covers_until(window) if window.begun else window.starts
                for window in self._index.windows.values()
                if not window.over
            ),
            default=float("inf"),
        )

    # -- Alerts ----------------------------------------------------------------------------------

    def evaluate(self, time: float, recovering: Collection[str]) -> list[TrackedAlert]:
        """Evaluate all pending alerts and due releases; return alerts that need an incident."""
        found = []
        pending, self.pending = self.pending, {}
        for key in pending:
            tracked = self._index.alerts.get(key)
            if tracked is not None and tracked.firing and self._may_notify(tracked, time):
                found.append(tracked)
        for key in list(self._releasing):
            tracked = self._index.alerts.get(key)
            if tracked is None or not tracked.firing or tracked.release is None:
                del self._releasing[key]
            elif tracked.release <= time and not self._waits_for_end(tracked, recovering):
                del self._releasing[key]
                self._index.set_state(tracked, NotificationState.NOTIFIED, "")
                found.append(tracked)
        return [tracked for tracked in found if not tracked.incident]

    def next_release(self, time: float) -> float:
        """Return when the next alert that was suppressed may be notified."""
        due = (self._index.alerts[key].release for key in self._releasing)
        return min((at for at in due if at is not None and at > time), default=float("inf"))

    def _may_notify(self, tracked: TrackedAlert, time: float) -> bool:
        part, step = f"suppression/{tracked.alert.key}", partial(self._evaluate, tracked, time)
        return self._aside.run(part, time, step, True, pressing=True)

    def _evaluate(self, tracked: TrackedAlert, time: float) -> bool:
        """Evaluate one alert; return whether it may be notified now."""
        state, by = self._suppression(tracked)
        if state is NotificationState.NOTIFIED:
            return self._release(tracked, time)
        if (state, by) != (tracked.state, tracked.by) or tracked.release is not None:
            self._index.set_state(tracked, state, by)
        self._withdraw(tracked)
        return False

    def _release(self, tracked: TrackedAlert, time: float) -> bool:
        """Release an alert that nothing suppresses; after an inhibition only when a grace time
        has passed."""
        if tracked.state is NotificationState.NOTIFIED:
            return True
        if tracked.incident:
            self._index.set_state(tracked, NotificationState.NOTIFIED, "")
            return True
        if tracked.release is None:
            own = self._index.policy(tracked.alert.rule).grace
            grace = self._timings.grace if own is None else own
            inhibited = tracked.state is NotificationState.INHIBITED
            tracked.release = time + (grace if inhibited else 0.0)
            self._releasing[tracked.alert.key] = None
        return False

    def _withdraw(self, tracked: TrackedAlert) -> None:
        """Detach a suppressed alert from an incident that was not notified yet."""
        record = self._index.incidents.get(tracked.incident)
        if record is not None and record.notified is None:
            self._index.detach(tracked)

    def _suppression(self, tracked: TrackedAlert) -> tuple[NotificationState, str]:
        labels = None
        silenced = ""
        for key, window in self._index.windows.items():
            if window.over or not window.begun:
                continue
            labels = labels or tracked.alert.matched_labels()
            if matches_all(window.silence.matchers, labels):
                if window.silence.maintenance:
                    return NotificationState.MAINTENANCE, key
                silenced = silenced or key
        if silenced:
            return NotificationState.SILENCED, silenced
        record = self._index.incidents.get(tracked.incident)
        if record is not None and record.notified is not None:
            return NotificationState.NOTIFIED, ""  # what a person was notified of ends by itself
        cause = self._index.cause_of(tracked)
        return (NotificationState.INHIBITED, cause) if cause else (NotificationState.NOTIFIED, "")

    def _waits_for_end(self, tracked: TrackedAlert, recovering: Collection[str]) -> bool:
        """Whether an alert's condition is good already, and only its `keep` time has not passed.
        An edge rule's condition always is, so there it counts only against a maintenance window."""
        edge = self._index.policy(tracked.alert.rule).edge
        return tracked.alert.key in recovering and (not edge or tracked.state is NotificationState.MAINTENANCE)


def end_window(window: SilenceWindow, time: float, wall_ns: int) -> None:
    """End a window now."""
    window.ends = min(window.ends, time)
    window.starts = min(window.starts, time)
    window.silence = msgspec.structs.replace(window.silence, ends=wall_ns, starts=min(window.silence.starts, wall_ns))
