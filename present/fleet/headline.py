"""The headline of a cluster, a circuit or an incident: the worst true thing in one sentence, why it is so, and
what helps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from api.alerts import Incident, Severity, Subject
from api.power import CircuitState
from present.circuit.figures import assumed, known, share
from present.circuit.outlook import NextKind, next_event, outlook
from present.circuit.rows import relief_row, share_row
from present.row import Tone
from telemetry.text import ABSENT, counted

WELL = "Nothing is wrong that kilowatch knows of."
IN_THE_KNOWN = "Nothing is wrong in what is known."


class Urgency(StrEnum):
    """Kinds of headlines, by what the worst fact demands of a person."""

    PAGE = "page"
    TICKET = "ticket"
    UNKNOWN = "unknown"
    """Nothing is wrong in what is known, and not all is known."""
    WELL = "well"


@dataclass(frozen=True, slots=True)
class Heard:
    """The known part of a cluster."""

    nodes: int
    silent: int
    """Nodes whose collector is not online."""
    gpus: int
    unread: int
    """GPUs that report no power."""

    @property
    def missing(self) -> str:
        """The unknown part in words; "" where all is known."""
        parts = [] if self.nodes else ["no node has reported"]
        if self.silent:
            parts.append(
                f"{self.silent:,} of {counted(self.nodes, 'node')} {'is' if self.silent == 1 else 'are'} not heard"
            )
        if self.unread:
            parts.append(f"the power of {self.unread:,} of {counted(self.gpus, 'GPU')} is not known")
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class Headline:
    """The first words of every overview. Its texts may hold names from outside."""

    urgency: Urgency
    text: str
    why: str = ""
    act: str = ""
    """Relief, the gentlest first; "" where none is known."""
    incident: str = ""
    """Key of the incident that it speaks of; "" for none."""
    trips: CircuitState | None = None
    """The circuit that trips first, if the load stays."""


def sentence(*parts: str) -> str:
    """Return parts of a sentence in one, but for empty ones, with a capital letter."""
    words = "; ".join(filter(None, parts))
    return words[:1].upper() + words[1:]


def headline(incidents: Sequence[Incident], circuits: Sequence[CircuitState], heard: Heard) -> Headline:
    """Return the headline. `incidents`: those that are open, worst first; `circuits`: the most urgent first."""
    nearest = circuits[0] if circuits else None
    trips = nearest if nearest is not None and nearest.trip_seconds.earliest is not None else None
    found = Counter(one.severity for one in incidents)
    taken = Counter(one.severity for one in incidents if one.acknowledged is not None)
    counts = [
        counted(found[each], each.value) + _taken(taken[each], found[each])
        for each in (Severity.PAGE, Severity.TICKET)
        if found[each]
    ]
    if not counts:
        return _calm(circuits, heard, trips)
    gravest = [one for one in incidents if one.severity is incidents[0].severity]
    worst = next((one for one in gravest if one.acknowledged is None), gravest[0])
    lead = worst.alerts[0] if worst.alerts else None
    why, act = ("", "") if lead is None else (lead.description, lead.act)
    if lead is not None and lead.subject is Subject.CIRCUIT:
        about = next((one for one in circuits if one.id == lead.name), None)
        if about is not None:
            its = circuit_headline(about, Tone.CRIT)
            why, act = f"{its.text}; {its.why}", its.act or act
    urgency = Urgency.PAGE if found[Severity.PAGE] else Urgency.TICKET
    return Headline(urgency, f"{', '.join(counts)}: {worst.title or worst.key}", why, act, worst.key, trips)


def _taken(acknowledged: int, of: int) -> str:
    if not acknowledged:
        return ""
    return " (acknowledged)" if acknowledged == of else f" ({acknowledged:,} acknowledged)"


def circuit_headline(circuit: CircuitState, alert: Tone = Tone.PLAIN) -> Headline:
    """Return the headline of a circuit's page. `alert`: the tone of its worst alert."""
    its, load = outlook(circuit, alert), share_row(circuit).value
    kind = next_event(circuit).kind
    if kind in {NextKind.UNKNOWN, NextKind.ASSUMED} and alert is Tone.PLAIN:
        urgency = Urgency.UNKNOWN
    elif alert is Tone.CRIT or kind is NextKind.TRIP:
        urgency = Urgency.PAGE
    elif alert is Tone.WARN or kind in _PASSED:
        urgency = Urgency.TICKET
    elif kind is NextKind.NOTHING and (share(circuit) is None or not circuit.trip_known):
        urgency = Urgency.UNKNOWN
    else:
        urgency = Urgency.WELL
    trips = circuit if kind is NextKind.TRIP else None
    why = "; ".join(part for part in (f"{load} now" if load != ABSENT else "", its.note) if part)
    return Headline(urgency, its.text, why, relief_row(circuit, alert).value, trips=trips)


def incident_headline(incident: Incident, circuit: CircuitState | None = None) -> Headline:
    """Return the headline of an incident's page. `circuit`: the one that it is about, as it is now."""
    lead = incident.alerts[0] if incident.alerts else None
    what = incident.title or incident.key
    why, act = ("", "") if lead is None else (lead.description, lead.act)
    if incident.ended is not None:
        return Headline(Urgency.WELL, what, why)
    urgency = Urgency.PAGE if incident.severity is Severity.PAGE else Urgency.TICKET
    if circuit is None:
        return Headline(urgency, what, why, act)
    its = circuit_headline(circuit, Tone.CRIT)
    return Headline(urgency, what, f"{its.text}; {its.why}", its.act or act, trips=its.trips)


_PASSED = (NextKind.FULL, NextKind.OVER)


def _calm(circuits: Sequence[CircuitState], heard: Heard, trips: CircuitState | None) -> Headline:
    limit = ""
    if circuits:
        nearest, load = circuits[0], share_row(circuits[0]).value
        its = circuit_headline(nearest)
        if its.urgency in {Urgency.PAGE, Urgency.TICKET}:  # before its alert
            return replace(its, urgency=Urgency.TICKET, text=f"{nearest.id} {its.text}")
        limit = f"Nearest limit: {nearest.id} at {load}" if load != ABSENT else ""
    unread = sum(not known(one) or assumed(one) or share(one) is None for one in circuits)
    loads = f"the load of {unread:,} of {counted(len(circuits), 'circuit')} is not measured" if unread else ""
    missing = "; ".join(filter(None, (heard.missing, loads)))
    if missing:
        return Headline(Urgency.UNKNOWN, IN_THE_KNOWN, ". ".join(filter(None, (missing, limit))), trips=trips)
    return Headline(Urgency.WELL, WELL, limit, trips=trips)
