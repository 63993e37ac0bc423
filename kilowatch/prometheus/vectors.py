"""PromQL for rules: the series of a metric, and how they are matched."""

from __future__ import annotations

from dataclasses import dataclass, field

from aggregator.http.circuit_metrics import LABEL_OF, name_of
from alerts.engine.recent_events import DISTURBS
from alerts.rules.names import WORDS
from api.alerts import Subject
from power.snapshot.snapshot import Quantity
from telemetry.wire.exposition import PREFIX

_NODE = ("cluster", "node")
_GPU = (*_NODE, "gpu", "uuid")
STEP = 15
"""Seconds between two points of a subquery: the usual interval of scrapes."""


class NotExpressible(Exception):  # noqa: N818 - an answer, not an error
    """A condition that can't be expressed over the exported metrics; the text has the reason."""


def identity(subject: Subject) -> tuple[str, ...]:
    """Return the labels that tell one device from another."""
    match subject:
        case Subject.GPU:
            return _GPU
        case Subject.LINK:
            return (*_GPU, "link")
        case Subject.NODE:
            return _NODE
        case Subject.INSTANCE:
            return (*_NODE, "instance_uuid")
        case Subject.MONITOR:
            raise NotExpressible("rules about kilowatch itself are exported apart")
        case _ if subject.table is not None:
            return (*_NODE, str(subject.table))
        case _:
            snapshot = subject.snapshot_kind
            assert snapshot is not None  # noqa: S101 - no device
            return ("cluster", LABEL_OF[snapshot])


def on(subject: Subject) -> str:
    """Return the labels that two series of one device share, as a matching clause."""
    return f"on ({', '.join(identity(subject))})"


def series(name: str) -> str:
    """Return a metric as Prometheus knows it."""
    word = WORDS[name]
    return name_of(word) if isinstance(word, Quantity) else f"{PREFIX}{name}"


@dataclass(frozen=True, slots=True)
class PromQL:
    """A condition in PromQL, with a series for each device that is bad."""

    expr: str
    subject: Subject
    """Subject of its series."""
    notes: tuple[str, ...] = ()
    """Differences from the evaluation of kilowatch itself."""
    records: tuple[tuple[str, str], ...] = ()
    """Recording rules that it needs: name and expression."""
    spare: float = 0.0
    """Seconds for which the expression itself stays true after an instant."""
    plain: bool = field(default=True, kw_only=True)
    """Whether the expression is one term, and needs no brackets."""

    @property
    def term(self) -> str:
        """The expression, in brackets where it needs some."""
        return self.expr if self.plain else f"({self.expr})"


def finest(subjects: list[Subject]) -> Subject:
    """Return the most detailed of some subjects: a link's series name its GPU and node too."""
    return max(subjects, key=lambda each: len(identity(each)))


def literal(value: float) -> str:
    """Return a constant as PromQL writes it, with all the digits that a rule's author wrote."""
    return f"{value:.15g}"


def unless_disturbed(seconds: float) -> str:
    """Return a clause that leaves out devices whose driver or node started a moment ago."""
    kinds = "|".join(sorted(DISTURBS))
    last = f'max by (cluster, node) ({PREFIX}event_timestamp_seconds{{kind=~"{kinds}"}})'
    return f" unless on (cluster, node) (time() - {last} < {literal(seconds)})"
