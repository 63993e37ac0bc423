"""Impairments: what of the aggregator does not work now, since when, and why.

Whatever can't be known or done is reported here by the part that notices: a node whose messages are
refused, a task that died, a store that fails; or it is asked for, as each `Isolation` is. `/healthz` and `/readyz` list the
impairments, `/metrics` exports them, and each is an alert by the rule of its name in
`alerts/rules/monitor.toml`.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from telemetry.runtime.isolation import IsolatedBlock, Isolation, PartFault, PartKind, reason_of
from telemetry.runtime.supervision import ProgressMarks, TaskState
from telemetry.text import duration

log = logging.getLogger(__name__)
CLEARED_SHOWN = 600.0
"""Seconds for which a part that works again stays in `recent`, so that its rule sees it well and
resolves in its own time."""
SHOWN = 5.0
"""Seconds for which a fault of our own is listed at least."""
MOST_PARTS = 1000
"""Nodes, their messages, GPUs and jobs that are listed at most: more faults at once are one fault, and it is listed
already. Other parts are as few as our own tasks, rules and circuits, and are always listed."""
BOUNDED = ("bus/", "node/", "gpu/", "job/")
"""Beginnings of the parts that `MOST_PARTS` bounds."""


FaultSource = Callable[[], Iterable[PartFault]]
"""Returns what does not work now, or has failed since the last call."""


class ImpairmentKey(NamedTuple):
    """Subject of an impairment."""

    rule: str
    """Name of its rule in `monitor.toml`."""
    part: str
    """The part that does not work: `aggregator/lab`, `node/dgx07`, `rule/hot_gpu`, `task/store`."""


@dataclass(frozen=True, slots=True)
class Impairment:
    """A part that does not work."""

    rule: str
    part: str
    reason: str
    since_ns: int
    """ns since 1970."""
    whole: bool
    """Whether all of the cluster is blind in this respect, rather than one node, rule or circuit."""
    facts: Mapping[str, str]
    """Labels of its alert, beside `name` (the part without its first word)."""
    begun: float
    """Monotonic seconds of its begin; of the last one, where it began again while still listed."""
    until: float | None = None
    """Monotonic seconds at which it ends; None while it lasts."""


@dataclass(frozen=True, slots=True)
class MonitorPart:
    """A part of the monitor that can fail."""

    key: str
    """Key of its alerts without the rule: `aggregator/lab`, `channel/pager`."""
    facts: Mapping[str, str]
    """Labels of its alerts, and what their texts name in braces."""
    problems: Mapping[str, str] = field(default_factory=dict)
    """Problems that the part has now, by the name of their rule, with the reason."""


class Impairments:
    """The impairments of an aggregator. Threads may report; every method returns at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, wall: Callable[[], int] = time.time_ns) -> None:
        self._clock = clock
        self._wall = wall
        self._lock = threading.Lock()
        self._current: dict[ImpairmentKey, Impairment] = {}
        self._cleared: dict[str, tuple[float, Mapping[str, str]]] = {}
        """When a part was cleared last, with its facts."""
        self._sources: list[FaultSource] = []
        self._reported: dict[Hashable, set[ImpairmentKey]] = {}
        """Impairments that each source has reported and not cleared."""
        self._bounded = 0
        """Parts of `_current` that `MOST_PARTS` bounds."""
        self.unlisted = 0
        """Reports beyond `MOST_PARTS`, which are not listed."""

    @property
    def full(self) -> bool:
        """Whether as many nodes are listed as can be: there may be more."""
        return self._bounded >= MOST_PARTS

    def report(self, rule: str, part: str, reason: str, *, whole: bool = False, **facts: str) -> None:
        """Note that a part does not work. Reported again, it has a new reason and the same begin. A
        fault of an instant is listed for a few seconds, so that its alert fires."""
        key = ImpairmentKey(rule, part)
        with self._lock:
            known = self._current.get(key)
            if known is not None:
                if known.until:  # it was over, and begins again
                    known = replace(known, until=None, begun=self._clock())
                    self._current[key] = known
                if known.reason != reason or known.whole is not whole:
                    self._current[key] = replace(known, reason=reason, whole=whole)
            elif whole or self._bounded < MOST_PARTS or not part.startswith(BOUNDED):
                self._bounded += part.startswith(BOUNDED)
                self._current[key] = Impairment(rule, part, reason, self._wall(), whole, facts, self._clock())
            else:
                self.unlisted += 1

    def clear(self, rule: str, part: str, *, after: float = 0.0) -> None:
        """Note that a part works again, or that it never failed. `after`: seconds since it
        began, or began again, for which it is listed at least."""
        key = ImpairmentKey(rule, part)
        if key not in self._current:  # the usual case, without the lock
            return
        with self._lock:
            gone = self._current.get(key)
            if gone is None:
                return
            if gone.begun + after > self._clock():
                if gone.until is None:
                    self._current[key] = replace(gone, until=gone.begun + after)
            else:
                self._remove(key)

    def _remove(self, key: ImpairmentKey) -> None:
        gone = self._current.pop(key)
        self._bounded -= key.part.startswith(BOUNDED)
        self._cleared[key.part] = self._clock(), gone.facts

    def watch(self, *sources: FaultSource) -> None:
        """Ask these at each `refresh`, from now on."""
        self._sources += sources

    def refresh(self) -> None:
        """Report what the sources find now."""
        broken = []
        for source in self._sources:
            try:
                self._replace(source, source())
            except Exception as error:  # noqa: BLE001 - reported, and what it reported stays as it is
                broken.append(PartKind.LOOP.fault("report of faults", reason_of(error)))
        self._replace(self, broken)

    def update(self, rule: str, reasons: Mapping[str, str], *, whole: bool = False) -> None:
        """Report these parts with their reasons, and clear those of the last call for this rule."""
        self._replace(rule, [PartFault(rule, part, why, whole) for part, why in reasons.items()])

    def _replace(self, source: Hashable, faults: Iterable[PartFault]) -> None:
        """Report what a source finds, and clear what it has reported before and does not find any more. The
        facts of a part `node/x/store` are those of the node."""
        known, found = self._reported.setdefault(source, set()), set()
        for rule, part, reason, whole in faults:
            kind, name, *_ = f"{part}/".split("/")
            facts = {"name": name, "node": name} if kind == "node" else {}
            self.report(rule, part, reason, whole=whole, **facts)
            known.add(ImpairmentKey(rule, part))  # at once: the source may raise
            found.add(ImpairmentKey(rule, part))
        for rule, part in known - found:
            self.clear(rule, part, after=SHOWN)
        known &= found

    def current(self) -> list[Impairment]:
        """Return the impairments of now: those of the whole cluster first, then the oldest."""
        with self._lock:
            now = self._clock()
            over = [key for key, one in self._current.items() if one.until and one.until <= now]
            for key in over:
                self._remove(key)
            found = list(self._current.values())
        return sorted(found, key=lambda one: (not one.whole, one.since_ns, one.rule, one.part))

    def recent(self) -> dict[str, Mapping[str, str]]:
        """Return the facts of parts that were cleared lately and may have no impairment left."""
        with self._lock:
            begin = self._clock() - CLEARED_SHOWN
            self._cleared = {part: noted for part, noted in self._cleared.items() if noted[0] > begin}
            while len(self._cleared) > MOST_PARTS:
                del self._cleared[next(iter(self._cleared))]
            return {part: facts for part, (_, facts) in self._cleared.items()}


class LoopTurns(Isolation):
    """Turns of the loops of a service: an exception in one costs this turn, and is reported at once; the loop goes on
    with the next one."""

    def __init__(self, impairments: Impairments) -> None:
        super().__init__(PartKind.LOOP)
        self._impairments = impairments
        self._turns: dict[str, tuple[IsolatedBlock, str, bool]] = {}
        impairments.watch(self.faults)

    def turn(self, name: str, *, rule: str = "loop_failing", whole: bool = False) -> IsolatedBlock:
        """Return a block that reports its exception under `task/<name>`, and clears it when it has succeeded."""
        found = self._turns.get(name)
        if found is None:  # once, for each message is in two of them
            found = self._turns[name] = self.attempt(name), rule, whole
        return found[0]

    def faults(self) -> Iterator[PartFault]:
        """Yield what is to be reported of each turn that has failed."""
        for name, reason in self.recent().items():
            _, rule, whole = self._turns[name]
            yield PartFault(rule, f"task/{name}", reason, whole)

    def fail(self, part: str, error: BaseException | str, now: float) -> None:
        """Report the exception of a turn: at once where it is another than before, else with all others."""
        fault = self._faults.get(part)
        before = None if fault is None else fault.reason
        super().fail(part, error, now)
        if self._faults[part].reason != before:  # a message that raises may come ten thousand times a second
            self._impairments.refresh()

    def works(self, part: str) -> bool:
        """Clear what a turn of this name reported before."""
        worked = super().works(part)
        if worked:
            self._impairments.refresh()
        return worked


CHECK_SECONDS = 1.0
LATE_SECONDS = 5.0
"""Seconds between two checks from which on the whole process stood still."""


def report_task(impairments: Impairments, state: TaskState) -> None:
    """Report the state of a task that failed, or clear it: a `telemetry.runtime.supervision` report."""
    part = f"task/{state.name}"
    for rule, holds in (
        ("task_restarted", bool(state.failures) and not state.failing),
        ("task_failing", state.failing),
    ):
        if holds:
            impairments.report(rule, part, state.reason)
        else:
            impairments.clear(rule, part)


class BlockedParts:
    """The parts that make no progress, as impairments."""

    def __init__(self, impairments: Impairments, marks: ProgressMarks) -> None:
        self._impairments = impairments
        self._marks = marks
        self._before: set[str] = set()
        """The parts that the last check found blocked."""
        self._checked: float | None = None

    def check(self, now: float) -> None:
        """Report each part that this check and the last one found blocked. A check that comes late is
        the first again: the whole process stood still (`docker pause`), and has its work to do now."""
        if self._checked is not None and now - self._checked > LATE_SECONDS:
            self._before = set()
        self._checked = now
        blocked = self._marks.blocked()
        for part in self._marks.limits:
            key = f"task/{part}"
            if part not in blocked:
                self._impairments.clear("task_blocked", key)
            elif part in self._before:
                why = f"no progress for {duration(round(blocked[part]))}"
                self._impairments.report("task_blocked", key, why, whole=part in self._marks.vital)
        self._before = set(blocked)


async def report_blocked(impairments: Impairments, marks: ProgressMarks) -> None:
    """Report each part that makes no progress, until cancelled."""
    parts = BlockedParts(impairments, marks)
    while True:
        parts.check(time.monotonic())
        await asyncio.sleep(CHECK_SECONDS)
