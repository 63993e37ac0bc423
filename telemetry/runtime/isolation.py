"""Isolation: a part that raises an exception of our own is set aside, while the others go on.

A part that fails is not tried at every tick: a fault that lasts would cost CPU and fill the log. It is
tried again after growing pauses and comes back by itself. Each part is of a `PartKind`, which says how the log
names it and by which rule it is reported (`aggregator/impairments.py`). Pure: `now` is an argument.

`Parts` makes what a page, push or report shows of nodes, circuits and jobs, each by itself: there is nothing
to spare by a pause, and one that raises is left out.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple, TypeVar

from telemetry.runtime.backoff import STEADY, Backoff

log = logging.getLogger(__name__)
T = TypeVar("T")
Other = TypeVar("Other")

FIRST_RETRY, LONGEST_RETRY = 1.0, 60.0
"""Seconds between two tries of a part."""
IDLE_SECONDS = 600.0
"""Seconds after its pause in which a part was not tried: there is nothing to try any more."""
_LONGEST_REASON = 300
_MOST_RECENT = 1000


class PartFault(NamedTuple):
    """A part that does not work, as it is to be reported."""

    rule: str
    """Name of its rule in `alerts/rules/monitor.toml`."""
    part: str
    """The part as it is reported: `node/dgx07`, `rule/hot_gpu`, `task/store`."""
    reason: str
    whole: bool = False
    """Whether all of the cluster is blind in this respect, rather than one node, rule or circuit."""


class PartKind(Enum):
    """Kinds of isolated parts: the name of one in the log, the rule of `alerts/rules/monitor.toml` that reports
    it, its name there, and the rule of what a node lacks where that is another one."""

    RULE = "rule {}", "rule_set_aside", "rule/{}"
    NODE = "node {}", "node_set_aside", "node/{}"
    EVENT = "the events of node {}", "node_set_aside", "node/{}"
    TEXT = "the text of rule {}", "alerting_impaired", "text/{}"
    NOTIFICATION = "the notification of {}", "alerting_impaired", "{}"
    CHANNEL = "channel {}", "alerting_impaired", "delivery/{}"
    DELIVERY = "delivery: {}", "alerting_impaired", "delivery/{}"
    QUALITY = "the count of pages of rule {}", "alerting_impaired", "quality/{}"
    JOURNAL = "the journal of {}", "alerting_impaired", "journal/{}"
    EVIDENCE = "the evidence of {}", "alerting_impaired", "evidence/{}"
    POWER = "power: {}", "circuit_set_aside", "{}"
    INGEST = "ingest of node {}", "node_set_aside", "node/{}/ingest"
    STORE = "the store of node {}", "node_set_aside", "node/{}/store"
    JOBS = "jobs of node {}", "node_set_aside", "node/{}/jobs"
    LOOP = "the turn of {}", "loop_failing", "task/{}"
    PAGE = "the part of what is shown {}", "page_set_aside", "{}", "node_set_aside"

    def __init__(self, log_name: str, rule: str, part: str, rule_of_nodes: str = "") -> None:
        self.log_name, self._part = log_name, part
        self._rule, self._rule_of_nodes = rule, rule_of_nodes or rule

    def fault(self, name: str, reason: str) -> PartFault:
        """Return what is reported of a part of this kind."""
        part = self._part.format(name)
        rule = self._rule_of_nodes if part.startswith("node/") else self._rule
        return PartFault(rule, part, reason)


@dataclass(slots=True)
class _Fault:
    """The last failure of a part."""

    reason: str
    backoff: Backoff


class Isolation:
    """Parts of one kind that run by themselves: those that failed, with their reasons and the times of their
    next tries. Any thread may run one."""

    def __init__(
        self, kind: PartKind | None, name_of: Callable[[str], str] = str, *, passes: tuple[type[Exception], ...] = ()
    ) -> None:
        """`kind`: None tells nobody. `name_of`: returns the name under which a part is reported. `passes`:
        exceptions that are no fault of a part, and go to the caller."""
        self._kind, self._name_of, self.passes = kind, name_of, passes
        self._faults: dict[str, _Fault] = {}
        self._failed: dict[str, str] = {}
        """Reasons of the failures since `recent` was last called."""
        self.failures = 0
        """Number of failures since the start."""
        self.turns = 0
        """The same, with the times at which a part worked again."""

    def __contains__(self, part: object) -> bool:
        return part in self._faults

    def __len__(self) -> int:
        return len(self._faults)

    def run(
        self, part: str, now: float, step: Callable[[], T], otherwise: Other, *, pressing: bool = False
    ) -> T | Other:
        """Return what a step of a part returns; `otherwise` where it raises, or until its next try is due.
        `pressing`: try it in any case, for what is not done now is lost."""
        if len(self._faults) and not (pressing or self.due(part, now)):
            return otherwise
        try:
            found = step()
        except self.passes:
            raise
        except Exception as error:  # noqa: BLE001 - reported by the part's name
            self.fail(part, error, now)
            return otherwise
        if len(self._faults):
            self.works(part)
        return found

    def attempt(self, part: str, now: float = 0.0) -> IsolatedBlock:
        """Return a block that ends at an exception, which costs this part; it is tried in any case."""
        return IsolatedBlock(self, part, now)

    def fail(self, part: str, error: BaseException | str, now: float) -> None:
        """Set a part aside until its next try is due; the first failure is logged with its traceback,
        and so is another reason."""
        self.failures += 1
        self.turns += 1
        reason = reason_of(error)
        fault = self._faults.get(part)
        if self._kind is not None and (fault is None or fault.reason != reason):
            name, cause = (self._kind.log_name.format(part), error if isinstance(error, BaseException) else None)
            log.error(
                "%s is set aside; the others go on. It is tried again by itself. %s", name, reason, exc_info=cause
            )
        if fault is None:
            fault = self._faults[part] = _Fault(reason, Backoff(FIRST_RETRY, LONGEST_RETRY, STEADY))
        fault.reason = self._failed[part] = reason
        if len(self._failed) > _MOST_RECENT:
            self._failed.clear()
        if fault.backoff.over(now):  # several failures of one try are one
            fault.backoff.start(now)

    def due(self, part: str, now: float) -> bool:
        """Return whether a part may be tried: it works, or its pause is over."""
        fault = self._faults.get(part)
        return fault is None or fault.backoff.over(now)

    def next_try(self, part: str) -> float:
        """Return when a part is due again; 0 for one that works."""
        fault = self._faults.get(part)
        return 0.0 if fault is None else fault.backoff.until

    def works(self, part: str) -> bool:
        """Note that a part works; return whether it had been set aside."""
        if self._faults.pop(part, None) is None:
            return False
        self.turns += 1
        if self._kind is not None:
            log.warning("%s works again", self._kind.log_name.format(part))
        return True

    def keep(self, parts: Iterable[str]) -> None:
        """Forget all parts but these: the others no longer exist."""
        kept = set(parts)
        self._faults = {part: fault for part, fault in self._faults.items() if part in kept}

    def forget(self, part: str) -> None:
        """Forget a part that no longer exists."""
        self._faults.pop(part, None)
        self._failed.pop(part, None)

    def forget_idle(self, now: float) -> None:
        """Forget the parts that nothing came from for `IDLE_SECONDS` after their pause."""
        for part, fault in self._faults.copy().items():  # threads add parts meanwhile
            if now - fault.backoff.until > IDLE_SECONDS:
                self.forget(part)

    def waiting(self, now: float) -> list[str]:
        """Return the parts whose next try is not due yet."""
        return [part for part, fault in self._faults.items() if not fault.backoff.over(now)]

    def recent(self) -> dict[str, str]:
        """Return the reason of each part that is set aside, or has failed since the last call."""
        failed, self._failed = self._failed, {}
        return failed | self.reasons()

    def faults(self) -> Iterator[PartFault]:
        """Yield what is to be reported of each part of `recent`."""
        if self._kind is not None:
            for part, reason in self.recent().items():
                yield self._kind.fault(self._name_of(part), reason)

    def reasons(self) -> dict[str, str]:
        """Return the reason of each part that is set aside."""
        return {part: fault.reason for part, fault in self._faults.copy().items()}


class IsolatedBlock:
    """A `with` block of `Isolation.attempt`: a generator's would take 2 us more."""

    __slots__ = ("_isolation", "_now", "_part")

    def __init__(self, isolation: Isolation, part: str, now: float) -> None:
        self._isolation, self._part, self._now = isolation, part, now

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> bool:
        if error is None:
            if len(self._isolation):
                self._isolation.works(self._part)
        elif isinstance(error, Exception) and not isinstance(error, self._isolation.passes):
            self._isolation.fail(self._part, error, self._now)
            return True
        return False


class Parts:
    """The parts of one page, push or report: nodes, circuits, jobs, each made by itself. One that raises is left out,
    and set aside as `KIND/NAME/PAGE` until it can be made again. Any thread may make them."""

    def __init__(self, aside: Isolation, page: str, now: float) -> None:
        self._aside = aside
        self._page = page
        self._now = now

    def each(self, kind: str, names: Iterable[str], make: Callable[[int], T]) -> list[T]:
        """Return what `make` returns of the place of each name, of those that it returns anything of."""
        found = []
        for place, name in enumerate(names):
            try:
                found.append(make(place))
            except Exception as error:  # noqa: BLE001 - reported by its name
                self._aside.fail(f"{kind}/{name}/{self._page}", error, self._now)
            else:
                if len(self._aside):
                    self._aside.works(f"{kind}/{name}/{self._page}")
        return found


def each(parts: Parts | None, kind: str, names: Sequence[str], make: Callable[[int], T]) -> list[T]:
    """Return what `Parts.each` returns; without `parts`, where nobody would be told, one that raises ends all."""
    if parts is None:
        return [make(place) for place in range(len(names))]
    return parts.each(kind, names, make)


def reason_of(error: BaseException | str) -> str:
    """Return an exception as one line: its type, its text, and the file and line that raised it."""
    if isinstance(error, str):
        return error[:_LONGEST_REASON]
    frames = traceback.extract_tb(error.__traceback__)
    at = ""
    if frames:
        name = frames[-1].filename.replace("\\", "/").rsplit("/", 2)
        at = f" ({'/'.join(name[-2:])}:{frames[-1].lineno})"
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text}"[: _LONGEST_REASON - len(at)].rstrip(": ") + at
