"""Shell commands in pages: complete, and safe to paste whatever a node's name or a key contains."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Sequence

from alerts.message.text import clean
from api.alerts import Alert, Remediation

_RECOVERED = frozenset({Remediation.RESET, Remediation.REBOOT, Remediation.COLD_START, Remediation.REPLACE})
"""Remediations that begin at the node."""
_LONGEST = 160
"""Characters of a pattern that a person still reads on a small screen: three GPUs."""


def command_of(*words: str) -> str:
    """Return a command of kilowatch. Each word is one argument: a node's name must run no command."""
    return " ".join(["kilowatch", *(shlex.quote(clean(word)) for word in words)])


def acknowledge_of(incident: str) -> str:
    """Return the command that acknowledges an incident, by its key."""
    return f"{command_of('ack', incident)} --why 'I am on it'"


def recover_of(alert: Alert) -> str:
    """Return the command that prints the steps of an alert's remedy; "" where the remedy is not at a
    node or its GPU."""
    return recover_at(alert.gpu or alert.node, alert.remediation) if alert.node else ""


def recover_at(place: str, remediation: Remediation | None, rule: str = "") -> str:
    """Return the command that prints the steps of a remedy at a node or GPU: of the alerts that are open
    there, or of a rule; "" where the remedy is not there."""
    if not place or remediation not in _RECOVERED:
        return ""
    return command_of("recover", place, *(["--rule", rule] if rule else []))


def show_of(incident: str) -> str:
    """Return the command that shows the evidence of an incident, by its key."""
    return command_of("alerts", "show", incident)


def past_of(node: str) -> str:
    """Return the command that lists the incidents of a node of the last 30 days."""
    return f"{command_of('alerts', '--node', node)} --history 30d"


def silence_of(conditions: Iterable[str]) -> str:
    """Return the command that silences what fulfils some conditions."""
    return f"{command_of('silence', *conditions)} --for 2h --why '...'"


def gpu_condition(alerts: Sequence[Alert]) -> list[str]:
    """Return the condition that some alerts of a node are about these GPUs; none where any of them is
    about the node, or the condition would be too long. By UUID: an index changes when a GPU is lost."""
    uuids = dict.fromkeys(alert.gpu or "" for alert in alerts)
    if not uuids or "" in uuids:
        return []
    if len(uuids) == 1:
        return [f"uuid={next(iter(uuids))}"]
    pattern = "|".join(map(re.escape, uuids))
    return [f"uuid=~{pattern}"] if len(pattern) <= _LONGEST else []
