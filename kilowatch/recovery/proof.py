"""The proof that a place works again: findings about the node as the aggregator shows it.

Pure. Three answers: a reading that is absent proves nothing. What counts as a fault is the rules'
business: a rule that fires there after the remedy is one, and no limit is written here a second time.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from alerts.xid.catalogue import XidSeverity, meaning_of
from api.alerts import AlertRow, AlertState, NotificationState, Remediation, RuleRow, Severity
from api.device import GpuReply, NodePageReply
from api.fleet import NodeStatus
from kilowatch.recovery.plan import Plan
from telemetry.devices import Event
from telemetry.text import duration

_SECOND = 1_000_000_000
_STATES = ("gpu_recovery_action", "gpu_remapped_rows_pending", "gpu_remapped_rows_failure", "gpu_retired_pages_pending")
"""States of a GPU that are 0 when nothing is left to do."""
_FAULTS = frozenset({"gpu_lost", "gpu_hung", "driver_down", "sxid"})
"""Kinds of events that are a new fault, beside XIDs."""


_ENDS_WORK = frozenset({Remediation.RESET, Remediation.REBOOT, Remediation.COLD_START, Remediation.REPLACE})
"""Remedies that a GPU needs before it may have work."""


class ProofState(StrEnum):
    """Meaning of a finding."""

    GOOD = "good"
    BAD = "bad"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class ProofFinding:
    """Result of a look at one part of the place."""

    state: ProofState
    text: str
    final: bool = False
    """Whether waiting can't make it better: a new fault after the remedy."""


def proof_of(
    plan: Plan,
    page: NodePageReply,
    alerts: Iterable[AlertRow],
    rules: Sequence[RuleRow],
    events: Iterable[Event],
    *,
    since: int,
    seconds: float,
    remedied: Mapping[str | None, int] | None = None,
) -> list[ProofFinding]:
    """Return what proves that a place works again, or does not.

    `since`: the end of the remedy, ns since 1970, by the aggregator's clock. `seconds`: how long there
    must have been no new fault. `remedied`: when the last remedy of each GPU ended by the record, by
    UUID; None is the whole node.
    """
    alerts = list(alerts)
    found = [_node(page)]
    found += _gpus(plan, page)
    found += _alerts(plan, alerts, {rule.name: rule for rule in rules}, since)
    found += _neighbours(plan, alerts, remedied or {})
    events = [each for each in events if each.at >= since]
    found += _restart(plan, events)
    fresh = [each for each in events if _concerns(plan, each)]
    found += [ProofFinding(ProofState.BAD, _fault_text(each), final=True) for each in fresh]
    passed = (page.at - since) / _SECOND
    if not fresh:
        enough = passed >= seconds
        text = f"no new fault for {duration(max(0, int(passed)))}"
        found.append(
            ProofFinding(ProofState.GOOD, text)
            if enough
            else ProofFinding(ProofState.UNKNOWN, f"{text}; {duration(int(seconds))} are asked for")
        )
    return found


def _node(page: NodePageReply) -> ProofFinding:
    node = page.node
    if node.state is not NodeStatus.ONLINE:
        return ProofFinding(ProofState.BAD, f"the node is {node.state}")
    if node.driver_state not in {"up", "none"}:
        return ProofFinding(ProofState.BAD, f"its driver is {node.driver_state or 'not known'}")
    return ProofFinding(ProofState.GOOD, f"the node is online and its driver {node.driver_state}")


def _restart(plan: Plan, events: Iterable[Event]) -> Iterator[ProofFinding]:
    """Yield whether a node that was to be rebooted has come back: it may not have gone down yet."""
    if plan.remediation in {Remediation.REBOOT, Remediation.COLD_START}:
        if any(each.kind == "collector_started" for each in events):
            yield ProofFinding(ProofState.GOOD, "its collector has started again")
        else:
            yield ProofFinding(ProofState.UNKNOWN, "its collector has not started again since")


def _gpus(plan: Plan, page: NodePageReply) -> Iterator[ProofFinding]:
    """Yield what the GPUs of the plan show; a replaced board is the one that is now at its index."""
    by_uuid = {each.gpu.uuid: each for each in page.gpus}
    by_index = {each.gpu.index: each for each in page.gpus if each.gpu.present}
    for gpu in plan.gpus:
        found = by_uuid.get(gpu.uuid)
        name = f"GPU {gpu.index}"
        if found is None or not found.gpu.present:
            other = by_index.get(gpu.index)
            if other is not None and other.gpu.uuid != gpu.uuid and plan.remediation is Remediation.REPLACE:
                yield ProofFinding(ProofState.GOOD, f"{name} is another board: {other.gpu.uuid}")
                found = other
            elif other is not None and not gpu.uuid:
                found = other
            else:
                yield ProofFinding(ProofState.BAD, f"{name} is not in the inventory")
                continue
        yield from _readings(name, found)


def _readings(name: str, found: GpuReply) -> Iterator[ProofFinding]:
    if "gpu_temperature_celsius" not in found.readings and "gpu_power_watts" not in found.readings:
        reason = found.gaps.get("gpu_temperature_celsius", "no reading yet")
        yield ProofFinding(ProofState.UNKNOWN, f"{name} is there, but can't be read: {reason}")
        return
    yield ProofFinding(ProofState.GOOD, f"{name} is there and answers")
    for metric in _STATES:
        value = found.readings.get(metric)
        gap = found.gaps.get(metric)
        if value is not None and value != 0:
            yield ProofFinding(ProofState.BAD, f"{name}: {metric} is {value:g}")
        elif value is None and gap not in {None, "not_supported"}:
            yield ProofFinding(ProofState.UNKNOWN, f"{name}: {metric} is not known ({gap})")


def _alerts(plan: Plan, alerts: Iterable[AlertRow], rules: Mapping[str, RuleRow], since: int) -> Iterator[ProofFinding]:
    """Yield the alerts that still fire. That an XID was seen before the remedy proves nothing now: the
    alert of an event fires until its time has passed."""
    uuids = {gpu.uuid for gpu in plan.gpus}
    for one in alerts:
        if one.state is not AlertState.FIRING or one.severity is Severity.INFO:
            continue
        if one.node != plan.place.node or one.gpu not in {None, *uuids}:
            continue
        rule = rules.get(one.rule)
        if one.changed >= since or rule is None or not rule.keep:
            yield ProofFinding(ProofState.BAD, f"{one.rule} fires: {one.summary}")
        elif rule.kind != "event":
            yield ProofFinding(
                ProofState.UNKNOWN,
                f"{one.rule} fires for up to {duration(int(rule.keep))} after its condition has ended",
            )


def _neighbours(plan: Plan, alerts: Iterable[AlertRow], remedied: Mapping[str | None, int]) -> Iterator[ProofFinding]:
    """Yield what other GPUs still need: a node that takes work again gives it to them too."""
    uuids = {gpu.uuid for gpu in plan.gpus}
    for one in alerts:
        if one.state is not AlertState.FIRING or one.severity is not Severity.PAGE:
            continue
        if one.node != plan.place.node or one.gpu in {None, *uuids}:
            continue
        if one.notification is NotificationState.INHIBITED or one.remediation not in _ENDS_WORK:
            continue
        if one.changed < max(remedied.get(one.gpu, 0), remedied.get(None, 0)):
            continue  # it was recovered since; the alert of an event fires until its time has passed
        word = f"{one.remediation} is due elsewhere on the node".replace("_", " ")
        yield ProofFinding(ProofState.BAD, f"{word}: {one.summary}", final=True)


def _concerns(plan: Plan, event: Event) -> bool:
    """Whether an event is a new fault of the place."""
    if event.gpu is not None and event.gpu not in {gpu.uuid for gpu in plan.gpus}:
        return False
    xid = event.data.get("xid")
    if event.kind == "xid" and isinstance(xid, int):
        return meaning_of(xid).severity.rank <= XidSeverity.TICKET.rank
    return event.kind in _FAULTS


def _fault_text(event: Event) -> str:
    xid = event.data.get("xid")
    number = f" {xid}" if event.kind == "xid" else ""
    return f"a new fault after the remedy: {event.kind}{number} {event.message}".rstrip()
