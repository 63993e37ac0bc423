"""The load controller: what the aggregator sheds when more comes than it can carry. Pure.

A ladder of steps, in the order in which history, viewers and pages can be missed. Rules, pages to
people, health, the ledger and events are on no step. The controller goes up one step while
something that it measures lags, and comes down one step after a calm time; between the two limits
of a measurement it stays. A step down that proves wrong makes the next calm time twice as long.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from telemetry.runtime.backoff import STEADY, Backoff

HIGH_SECONDS, SEVERE_SECONDS = 2.0, 0.5
"""Seconds for which something must lag, and lag severely, before history is shed."""
FURTHER_SECONDS, FURTHER_SEVERE_SECONDS = 6.0, 2.0
"""The same for all steps after it, and while frames are being refilled: a commit that is under way must
first end, or what it has held up would cost viewers and pages too."""
CALM_SECONDS, LONGEST_CALM = 10.0, 160.0
"""Seconds for which all must be calm, on balance, before a step down: at first, and at most."""
RELAPSE_SECONDS = 60.0
"""A step up so soon after a step down shows that the step down was too early."""
FORGIVEN_SECONDS = 600.0
"""After so many seconds without a step, the calm time is the first one again."""
REFILL_SECONDS = 5.0
"""Seconds between two changes of the share of requests for missing frames."""
LEAST_REFILL = 1 / 16
"""Share of requests that may be under way just after shedding has ended."""
RETRY_SECONDS = 60.0
"""Seconds before a share at which something lagged is tried again."""
RETRY_FACTOR = 2.0
"""Factor by which the share that may be tried grows then."""


class ShedStep(IntEnum):
    """A step of the ladder; each includes those before it."""

    NOTHING = 0
    HALF_HISTORY = 1
    """Frames of half of the nodes are stored as means only."""
    HISTORY = 2
    """Frames of all nodes are."""
    FRAMES = 3
    """The fleet is updated every two seconds, with the newest frame of each node; others of that time
    are not even decoded."""
    SLOW_VIEWERS = 4
    """Viewers of the stream get an update every ten seconds."""
    VIEWERS = 5
    """New viewers from elsewhere than this machine are refused."""
    DEVICE_METRICS = 6
    """Metrics pages of nodes have no devices."""


PARTS = {"history": ShedStep.HALF_HISTORY, "viewers": ShedStep.SLOW_VIEWERS, "device_metrics": ShedStep.DEVICE_METRICS}
"""Names of what is shed, with the step from which on it is."""


@dataclass(frozen=True, slots=True)
class LoadSignal:
    """A measurement of the load, and its limits."""

    name: str
    text: str
    """Meaning of its value, for people: the value follows."""
    unit: str
    calm: float
    """Below it there is time to spare."""
    high: float
    """Above it something is shed."""
    severe: float
    """Above it something is shed at once."""


SIGNALS = (
    LoadSignal("loop", "the event loop was held up for", "s", 0.3, 0.6, 3.0),
    LoadSignal("ingest", "messages of the broker wait unread for", "s", 1.0, 2.0, 6.0),
    LoadSignal("arrival", "frames come later than usual by", "s", 1.2, 2.5, 6.0),
    LoadSignal("flush", "bringing new frames into the fleet takes", "s", 0.4, 1.0, 3.0),
    LoadSignal("store", "the oldest frame that is not stored waits for", "s", 3.0, 5.0, 12.0),
    LoadSignal("pending", "frames in memory take this share of store.pending_bytes:", "", 0.3, 0.5, 0.8),
    LoadSignal("rules", "the last evaluation of the rules is late by", "s", 1.0, 2.0, 3.0),
    LoadSignal("memory", "memory is at this share of its limit:", "", 0.85, 0.85, 0.93),
)
"""The measurements. The limits of `store` are those of a machine that carries its load with a p99 of
three seconds to the store; `rules` keeps an evaluation every five seconds. `arrival` shows what a broker holds
for us: that a socket is empty whenever it is looked at proves nothing.
`memory` has one limit: what a process has had resident it seldom gives back, so that a lower one would
shed for ever."""


class LoadController:
    """The step of the ladder for the measurements of now. `now`: monotonic seconds."""

    def __init__(self) -> None:
        self.step = ShedStep.NOTHING
        self.reason = ""
        """Why the last step up was made."""
        self.cause = ""
        """Name of the measurement behind the last step up."""
        self.refill = 1.0
        """Share of the usual requests for missing frames that may be under way; 0 while any history
        is shed."""
        self._high_since: float | None = None
        self._refilling = False
        """Whether frames were being refilled after shedding when something began to lag."""
        self._calm_for = 0.0
        """Seconds for which all was calm since the last step, less those in which it was not."""
        self._calm_at: float | None = None
        """When all was calm in the last update; None when it was not."""
        self._updated_at = -math.inf
        self._calm = Backoff(CALM_SECONDS, LONGEST_CALM, STEADY)
        self._relapses = 0
        self._moved_at = -math.inf
        self._down_at = -math.inf
        self._refilled_at = -math.inf
        self._shed_at = -math.inf
        """When something was shed last."""
        self._most = 1.0
        """Share that may be tried: half of that at which something lagged."""
        self._most_at = -math.inf

    def update(self, now: float, readings: Mapping[str, float]) -> ShedStep:
        """Return the step for the readings of now, by the name of their signal; one that is missing
        is calm."""
        found = [(signal, value) for signal in SIGNALS if (value := readings.get(signal.name)) is not None]
        high = [(signal, value) for signal, value in found if value > signal.high]
        if high:
            self._calm_for = 0.0
            self._rise(now, high)
        else:
            self._high_since = None
        self._count_calm(now, calm=all(value <= signal.calm for signal, value in found))
        if self.step and self._calm_for >= self._calm.after(self._relapses + 1):
            self._move(now, ShedStep(self.step - 1))
            self._down_at = now
        if now - self._moved_at > FORGIVEN_SECONDS:
            self._relapses = 0
        self._update_refill(now)
        return self.step

    def _rise(self, now: float, high: list[tuple[LoadSignal, float]]) -> None:
        if self._high_since is None:
            self._high_since = now
            self._refilling = self.refill > 0.0 and now - self._shed_at < FORGIVEN_SECONDS
            if self._refilling:
                self._most, self._most_at = max(LEAST_REFILL, self.refill / 2), now
        severe = any(value > signal.severe for signal, value in high)
        since = max(self._high_since, self._moved_at)
        further = self.step >= ShedStep.HISTORY or self._refilling
        usual, least = (FURTHER_SECONDS, FURTHER_SEVERE_SECONDS) if further else (HIGH_SECONDS, SEVERE_SECONDS)
        if now - since < (least if severe else usual) or self.step is max(ShedStep):
            return
        if now - self._down_at < RELAPSE_SECONDS:
            self._relapses += 1
            self._down_at = -math.inf
        self._move(now, ShedStep(self.step + 1))
        signal, value = max(high, key=lambda one: one[1] / one[0].high)
        self.cause = signal.name
        self.reason = f"{signal.text} {value:.3g}{f' {signal.unit}' if signal.unit else ''}, more than {signal.high:g}"

    def _count_calm(self, now: float, *, calm: bool) -> None:
        """Count calm time; a spike costs as much of it as it lasts, and only a lag all of it."""
        if calm and self._calm_at is not None:
            self._calm_for += now - self._calm_at
        elif not calm and self._calm_at is None and self._calm_for:
            self._calm_for = max(0.0, self._calm_for - (now - self._updated_at))
        self._calm_at, self._updated_at = now if calm else None, now

    def _move(self, now: float, step: ShedStep) -> None:
        self.step, self._moved_at, self._calm_for = step, now, 0.0

    def _update_refill(self, now: float) -> None:
        """Double the share while all is calm, up to what was carried, halve it while it is not, and refill
        nothing while anything lags: that is given up before any live frame is."""
        if self.step:
            self._shed_at = now
        if now - self._most_at >= RETRY_SECONDS:
            self._most, self._most_at = min(1.0, self._most * RETRY_FACTOR), now
        if self.step or self._high_since is not None:
            self.refill, self._refilled_at = 0.0, now
        elif self.refill == 0.0:
            self.refill, self._refilled_at = LEAST_REFILL, now
        elif self.refill < 1.0 and now - self._refilled_at >= REFILL_SECONDS:
            calm = self._calm_for >= REFILL_SECONDS and self._calm_at is not None
            share = 2 * self.refill if calm else self.refill / 2
            self.refill, self._refilled_at = min(self._most, max(LEAST_REFILL, share)), now
