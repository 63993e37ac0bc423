"""The words of PromQL that rules are said in: series of a metric, and how they are matched."""

from __future__ import annotations

from dataclasses import dataclass, field

from aggregator.http.circuit_metrics import LABEL_OF, name_of
from alerts.engine.recent_events import DISTURBS
from alerts.rules.names import WORDS, home
from api.alerts import Subject
from power.snapshot.snapshot import Quantity
from telemetry.exposition import PREFIX

_NODE = ("cluster", "node")
_GPU = (*_NODE, "gpu", "uuid")
STEP = 15
"""Seconds between two points that a subquery looks at: the usual interval of scrapes."""


class NotExpressible(Exception):  # noqa: N818 - it is an answer, not an error
    """A condition that PromQL can't say over what the metrics pages show; the text says why."""


def identity(subject: Subject) -> tuple[str, ...]:
    """Return the labels that tell one device from another."""
    match subject:
        case Subject.GPU:
            return _GPU
        case Subject.LINK:
            return (*_GPU, "link")
        case Subject.NODE:
            return _NODE
        case _:
            snapshot = subject.snapshot_kind
            assert snapshot is not None  # noqa: S101 - what is no device is a power snapshot's
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
    """A condition in PromQL: it has a series for each device that is bad."""

    expr: str
    subject: Subject
    """What its series are about."""
    notes: tuple[str, ...] = ()
    """How this differs from what kilowatch itself judges."""
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


def home_of(names: tuple[str, ...], default: Subject) -> Subject:
    """Return what an expression over some metrics is about."""
    return finest([home(name) for name in names]) if names else default


def literal(value: float) -> str:
    """Return a constant as PromQL writes it, with all the digits that a rule's author wrote."""
    return f"{value:.15g}"


def unless_disturbed(seconds: float) -> str:
    """Return what leaves out devices whose driver or node has begun anew a moment ago."""
    kinds = "|".join(sorted(DISTURBS))
    last = f'max by (cluster, node) ({PREFIX}event_timestamp_seconds{{kind=~"{kinds}"}})'
    return f" unless on (cluster, node) (time() - {last} < {literal(seconds)})"
