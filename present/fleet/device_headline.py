"""The headline of a node's and of a GPU's page: the worst true thing in one sentence, why it is so, and what helps. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from api.alerts import Alert, AlertState, Severity
from api.device import GpuPageReply, GpuReply, NodePageReply
from api.fleet import NodeReply, NodeStatus
from api.power import CircuitState
from present.circuit.figures import assumed, known, share
from present.circuit.rows import share_row
from present.device.figures import CLOCK, CLOCK_LIMIT, HEAT, POWER, others, readings_of, slowed
from present.device.gpu import Read, clock_limit_row, gpu_name, state_row
from present.fleet.headline import IN_THE_KNOWN, WELL, Headline, Urgency, circuit_headline, sentence
from present.row import Tone
from present.units import celsius, megahertz
from telemetry.text import ABSENT, counted, duration

_ORDER = (Urgency.PAGE, Urgency.TICKET, Urgency.UNKNOWN, Urgency.WELL)


@dataclass(frozen=True, slots=True)
class OpenAlert:
    """An alert of a device, and what belongs to it elsewhere."""

    alert: Alert
    incident: str = ""
    """Key of its incident."""
    act: str = ""
    """Relief; "" where none is known."""


def node_headline(
    page: NodePageReply, alerts: Sequence[OpenAlert], circuits: Sequence[CircuitState], tones: Mapping[str, Tone]
) -> Headline:
    """Return the headline of a node's page. `circuits`: those that feed it, the most urgent first; `tones`: of the worst
    alert of each."""
    found = [
        *_of_circuits(circuits, tones, tripping=True),
        *_of_alerts(alerts),
        *_of_circuits(circuits, tones, tripping=False),
        *_of_gpus(page.gpus),
        *_of_silence(page.node),
    ]
    worst = _worst(found)
    if worst is not None:
        return _dated(worst, page.node)
    hottest = max(readings_of(page.gpus, HEAT), default=None)
    parts = [f"hottest GPU {celsius(hottest)}" if hottest is not None else ""]
    if circuits and share_row(circuits[0]).value != ABSENT:
        parts.append(f"nearest limit: {circuits[0].id} at {share_row(circuits[0]).value}")
    return _calm("; ".join(filter(None, _missing(page.gpus, circuits))), sentence(*parts))


def gpu_headline(page: GpuPageReply, alerts: Sequence[OpenAlert], peers: Sequence[GpuReply]) -> Headline:
    """Return the headline of a GPU's page. `alerts`: its own; `peers`: the other GPUs of its node."""
    its = GpuReply(page.gpu, page.readings, page.gaps)
    worst = _worst([*_of_alerts(alerts), *_of_gpus([its], peers, named=False), *_of_silence(page.node)])
    if worst is not None:
        return _dated(worst, page.node)
    read = page.readings.get
    limit = clock_limit_row(read)
    parts = (f"clocks held by {limit.value}" if limit.tone else "", *_beside(read, peers))
    missing = "" if POWER in page.readings else "its power is not known"
    return _calm(missing, sentence(*parts))


def _worst(found: Iterable[Headline]) -> Headline | None:
    return min(found, key=lambda one: _ORDER.index(one.urgency), default=None)


def _calm(missing: str, why: str) -> Headline:
    if missing:
        return Headline(Urgency.UNKNOWN, IN_THE_KNOWN, ". ".join(filter(None, (sentence(missing), why))))
    return Headline(Urgency.WELL, WELL, why)


def _of_alerts(alerts: Sequence[OpenAlert]) -> Iterator[Headline]:
    """Yield the worst of the alerts that fire, with how many there are."""
    firing = [one for one in alerts if one.alert.state is AlertState.FIRING]
    found = Counter(one.alert.severity for one in firing)
    rank = (Severity.PAGE, Severity.TICKET)
    ours = sorted(
        (one for one in firing if one.alert.severity in rank),
        key=lambda one: (rank.index(one.alert.severity), one.alert.since),
    )
    if not ours:
        return
    counts = ", ".join(counted(found[each], each.value) for each in rank if found[each])
    lead = ours[0]
    urgency = Urgency.PAGE if lead.alert.severity is Severity.PAGE else Urgency.TICKET
    what = lead.alert.summary or lead.alert.rule
    yield Headline(urgency, f"{counts}: {what}", lead.alert.description, lead.act, lead.incident)


def _of_circuits(circuits: Sequence[CircuitState], tones: Mapping[str, Tone], *, tripping: bool) -> Iterator[Headline]:
    """Yield the circuits that pass a limit: those that may trip, or the others."""
    for circuit in circuits:
        its = circuit_headline(circuit, tones.get(circuit.id, Tone.PLAIN))
        if its.urgency in {Urgency.PAGE, Urgency.TICKET} and (its.trips is not None) is tripping:
            yield replace(its, text=f"{circuit.id}, which feeds it, {its.text}")


def _of_gpus(gpus: Sequence[GpuReply], peers: Sequence[GpuReply] = (), *, named: bool = True) -> Iterator[Headline]:
    """Yield the GPUs that can't be read for a fault, and those that are slowed down, before an alert fires."""
    for one in gpus:
        name, read = gpu_name("", one.gpu.index) if named else "it", one.readings.get
        beside = peers or [each for each in gpus if each is not one]
        state = state_row(one.gpu, one.readings, one.gaps)
        if state.value and state.tone is Tone.CRIT:
            yield Headline(Urgency.PAGE, sentence(f"{name} is {state.value}"), sentence(state.note))
        elif reasons := slowed(read):
            words = f"{name} is slowed down: {reasons}"
            yield Headline(Urgency.TICKET, sentence(words), sentence(*_beside(read, beside)))


def _beside(read: Read, peers: Sequence[GpuReply]) -> Iterator[str]:
    """Yield its clock and its heat, each beside those of the others."""
    clock, most, heat = read(CLOCK), read(CLOCK_LIMIT), read(HEAT)
    if clock is not None:
        of = f" of {megahertz(most)}" if most else ""
        beside = others(CLOCK, readings_of(peers, CLOCK))
        yield f"{megahertz(clock)}{of}{f' ({beside})' if beside else ''}"
    if heat is not None:
        beside = others(HEAT, readings_of(peers, HEAT))
        yield f"{celsius(heat)}{f' ({beside})' if beside else ''}"


def _of_silence(node: NodeReply) -> Iterator[Headline]:
    if node.state is not NodeStatus.ONLINE:
        why = "What it does now is not known, nor whether anything is wrong"
        yield Headline(Urgency.UNKNOWN, _silence(node), why)


def _silence(node: NodeReply) -> str:
    age = "" if node.age_seconds is None else f": nothing new for {duration(node.age_seconds)}"
    return f"{node.node} is {node.state}{age}"


def _dated(found: Headline, node: NodeReply) -> Headline:
    """Return a headline that says that its node is silent, where it is."""
    if node.state is NodeStatus.ONLINE or found.urgency is Urgency.UNKNOWN:
        return found
    return replace(found, why=f"{_silence(node)}. {found.why}".rstrip())


def _missing(gpus: Sequence[GpuReply], circuits: Sequence[CircuitState]) -> Iterator[str]:
    unread = len(gpus) - len(readings_of(gpus, POWER))
    if unread:
        yield f"the power of {unread:,} of {counted(len(gpus), 'GPU')} is not known"
    loads = sum(not known(one) or assumed(one) or share(one) is None for one in circuits)
    if loads:
        feed = "feeds" if len(circuits) == 1 else "feed"
        yield f"the load of {loads:,} of {counted(len(circuits), 'circuit')} that {feed} it is not measured"
