"""What is still to be said of one incident on one channel, when several notices wait.

Pure. A receiver that was away for an hour is not told the whole hour: it is told how things stand,
in the order in which they came to be so.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import msgspec

from alerts.notice import Action, Delivery, Notice


@dataclass(frozen=True, slots=True)
class Plan:
    """What becomes of the deliveries of a chain now."""

    send: Delivery | None
    """The next to send, with the newest facts in it."""
    covered: tuple[int, ...] = ()
    """Said with `send`: settled when it is."""
    rest: tuple[int, ...] = ()
    """Wait behind it."""
    superseded: tuple[int, ...] = ()
    """Need not be said any more."""
    expired: tuple[int, ...] = ()


def plan(chain: Sequence[Delivery], old: Callable[[Delivery], bool], started: int) -> Plan:
    """Decide for all that wait of one incident on one channel, in the order of their numbers.

    `old`: whether one is too old to be of use. `started`: when this process began to send, for what
    an earlier one has sent may have arrived without being written down.
    """
    expired = tuple(one.id for one in chain if old(one))
    living = [one for one in chain if one.id not in expired]
    end = next((at for at, one in enumerate(living) if one.notice.action is Action.RESOLVE), None)
    if end is None:
        return _going_on(living, expired)
    over, before = living[end], living[:end]
    later = tuple(one.id for one in living[end + 1 :])
    gone = tuple(one.id for one in before)
    if before and _never_told(before[0], started):
        return Plan(None, rest=later, superseded=(*gone, over.id), expired=expired)
    return Plan(over, rest=later, superseded=gone, expired=expired)


def _never_told(first: Delivery, started: int) -> bool:
    """Whether the receiver has surely not heard of an incident whose first notice this is."""
    return (
        first.notice.action is Action.TRIGGER
        and first.notice.reason == "new"
        and first.tries == 0
        and (first.created >= started or first.due > started)
    )


def _going_on(living: list[Delivery], expired: tuple[int, ...]) -> Plan:
    """Of an incident that is not over: one trigger or update with the newest facts, and the last
    acknowledgement."""
    told = [one for one in living if one.notice.action is not Action.ACKNOWLEDGE]
    notes = [one for one in living if one.notice.action is Action.ACKNOWLEDGE]
    superseded = [one.id for one in notes[:-1]]
    to_send = notes[-1:]
    covered: tuple[int, ...] = ()
    if told:
        triggers = [one for one in told if one.notice.action is Action.TRIGGER]
        carrier = triggers[0] if triggers else told[0]
        newest = told[-1]
        superseded += [one.id for one in told if one.id not in {carrier.id, newest.id}]
        if newest.id != carrier.id:
            covered = (newest.id,)
        to_send.append(_carrying(carrier, triggers, living[-1].notice))
    if not to_send:
        return Plan(None, expired=expired)
    to_send.sort(key=lambda one: one.id)
    first, rest = to_send[0], tuple(one.id for one in to_send[1:])
    if first.notice.action is Action.ACKNOWLEDGE:  # what is covered belongs to the one behind it
        covered, rest = (), (*rest, *covered)
    return Plan(first, covered, rest, tuple(superseded), expired)


def _carrying(carrier: Delivery, triggers: list[Delivery], newest: Notice) -> Delivery:
    """Return a delivery with its own place and key, and the newest facts."""
    reason = carrier.notice.reason
    if triggers and reason != "new":
        reason = triggers[-1].notice.reason
    notice = msgspec.structs.replace(carrier.notice, incident=newest.incident, reason=reason)
    return msgspec.structs.replace(carrier, notice=notice)
