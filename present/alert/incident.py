"""An alert and its incident in words: place, value, state, who took it, and what it suppresses."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from api.alerts import (
    Alert,
    AlertRow,
    AlertState,
    Incident,
    IncidentNote,
    NotificationState,
    Severity,
    Silence,
    Subject,
)
from present.device.gpu import gpu_name
from present.row import FactRow, Tone
from telemetry.text import ABSENT, counted

Clock = Callable[[int], str]
"""Function by which a face writes an instant."""
_GROUPED_BY = ("circuit", "budget", "ups", "node", "rack")
_MORE = re.compile(r" \(and [\d,]+ more(?: alike| GPUs?| alerts?)?(?: on [\d,]+ nodes)?\)$")
_PLURALS = {"has": "have", "is": "are", "was": "were", "does": "do", "goes": "go"}
_VALUES = 3
"""Values of several GPUs that a title names."""
_ENDED = {"forgotten": "its node was removed", "moved": "another aggregator has its node"}
_NOTIFIED = {
    NotificationState.NOTIFIED: ("yes", ""),
    NotificationState.INHIBITED: ("inhibited", "its cause has an alert"),
    NotificationState.FLAPPING: ("flapping", ""),
    NotificationState.STORM: ("storm", "one notification has their number"),
}


def place_of(alert: Alert) -> str:
    """Return where an alert is, in a few words: `dgx-01 GPU 3`, `dgx-01 port mlx5_0/1`, `dgx-01 nvme3`, `circuit A-12`."""
    if not alert.node:
        return f"{alert.subject.value} {alert.name}"
    label = alert.labels.get
    place = gpu_name(alert.node, label("gpu", "")) if label("gpu") else alert.node
    instance = f"{label('gpu_instance', '')}/{label('compute_instance', '')} {label('profile', '')}".rstrip()
    parts = (("link", label("link")), ("port", label("port")), ("MIG", instance.strip("/")))
    unit = f" {label('unit')}" if label("unit") else ""
    return place + "".join(f" {word} {part}" for word, part in parts if part) + unit


def where_row(incident: Incident) -> FactRow:
    """Return the place of an incident; as short form the name of what its alerts share."""
    shared = next((incident.group[key] for key in _GROUPED_BY if incident.group.get(key)), "")
    lead = incident.alerts[0] if incident.alerts else None
    name = shared or next((one.node or one.name for one in incident.alerts), "")
    return FactRow("where", name or ABSENT if lead is None else place_of(lead), short=name or ABSENT)


def title_of(lead: Alert, alerts: Sequence[Alert]) -> str:
    """Return the title of an incident: how many of what, and where. `lead`: the first of its `alerts`.

    The GPUs of its rule are counted, `8 GPUs of dgx-01 have ...`; what is not one of them stands behind it, in brackets."""
    same = [one for one in alerts if one.rule == lead.rule]
    named = {one.gpu for one in same if one.gpu}
    gpus = {one.gpu for one in alerts if one.gpu}
    if title := _of_gpus(lead, same, len(named)):
        others = sum(not one.gpu for one in alerts)
        return title + (_more(len(gpus - named), " GPU") or _more(others, " alert"))
    where = on_nodes(len({one.node for one in alerts if one.node}))
    if 1 < len(gpus) < len(alerts):  # some have several
        return lead.summary + _more(len(gpus) - 1, " GPU", where)
    alike = " alike" if len(same) == len(alerts) else ""
    return lead.summary + (f" (and {len(alerts) - 1:,} more{alike}{where})" if alerts[1:] else "")


def _more(count: int, noun: str, where: str = "") -> str:
    return f" (and {count:,} more{noun}{'' if count == 1 else 's'}{where})" if count else ""


def _of_gpus(lead: Alert, same: Sequence[Alert], gpus: int) -> str:
    """Return the summary of an alert with several GPUs in the place of its own; "" where that can't be said."""
    place = gpu_name(lead.node, lead.labels.get("gpu", ""))
    found = re.search(rf"{re.escape(place)}(?: link \d+)?(?!\w)", lead.summary)
    if gpus < 2 or found is None or lead.subject not in {Subject.GPU, Subject.LINK}:
        return ""
    nodes = {one.node for one in same}
    where = f" of {lead.node}" if len(nodes) == 1 else on_nodes(len(nodes))
    before, after = lead.summary[: found.start()], lead.summary[found.end() :]
    if not before:  # the GPU is the subject of the sentence
        after = re.sub(r"\w+", lambda verb: _plural(verb[0]), after, count=1)
    after = re.sub(r"\bits\b", "their", after)
    before, after = (_with_range(part, lead, same) for part in (before, after))
    return f"{before}{gpus:,} GPUs{where}{after}"


def _plural(verb: str) -> str:
    """Return the verb of several: `have` for `has`."""
    if verb in _PLURALS:
        return _PLURALS[verb]
    stem = re.sub(r"ies$", "ys", re.sub(r"(ch|sh|ss)es$", r"\1s", verb))
    return stem.removesuffix("s")


def _with_range(text: str, lead: Alert, same: Iterable[Alert]) -> str:
    """Return a part of a summary with the values of all its alerts in the place of that of `lead`: quantities from
    the least to the greatest, XIDs and words by name."""
    if not lead.value_text:
        return text
    values = {one.value_text: one.value or 0.0 for one in same if one.value_text}
    texts = sorted(values, key=lambda each: (values[each], each))
    if len(texts) > 1 and re.match(r"[-+]?\d.*\D", lead.value_text):
        words = f"{texts[0]} to {texts[-1]}"
    else:
        words = ", ".join((*texts[:_VALUES], *(["..."] if texts[_VALUES:] else [])))
    return re.sub(rf"(?<![\w.-]){re.escape(lead.value_text)}(?![\w-])", lambda _: words, text)


def on_nodes(nodes: int) -> str:
    """Return on how many nodes something is, where that is more than one."""
    return f" on {nodes:,} nodes" if nodes > 1 else ""


def short_title(title: str) -> str:
    """Return a title without the number of further alerts: lists have a column for that."""
    return _MORE.sub("", title)


def all_firing(firing: int, total: int) -> str:
    """Return how many of an incident's alerts fire: `2 of 5 alerts fire`, `its alert fires`."""
    if total <= 1:
        return "its alert fires" if firing else "its alert is over"
    return f"{firing:,} of {total:,} alerts fire{'s' if firing == 1 else ''}"


def value_row(alert: Alert) -> FactRow:
    """Return the value that an alert is about; as note its limit."""
    value = alert.value_text or ("" if alert.value is None else f"{alert.value:g}")
    limit = alert.limit_text or ("" if alert.limit is None else f"{alert.limit:g}")
    return FactRow("value", value, note=f"limit {limit}" if limit else "", short=limit)


def value_words(alert: Alert) -> str:
    """Return the value with its limit: `92 °C (limit 88 °C)`."""
    its = value_row(alert)
    return f"{its.value} ({its.note})" if its.value and its.note else its.value


def state_row(alert: Alert) -> FactRow:
    """Return the state of an alert; as note why it ended, if not because all is well."""
    return FactRow("state", str(alert.state), note=_ENDED.get(alert.ended, alert.ended))


def notified_row(alert: AlertRow) -> FactRow:
    """Return whether a person is notified of an alert, and if not, why."""
    if alert.severity is Severity.INFO or alert.state is AlertState.PENDING:
        return FactRow("notified", "no")
    value, why = _NOTIFIED.get(alert.notification, (str(alert.notification), ""))
    return FactRow("notified", value, note=why)


def acknowledged(note: IncidentNote | None, clock: Clock) -> str:
    """Return who took an incident, when, until when, and why."""
    if note is None:
        return "not acknowledged"
    at = f" at {clock(note.at)}" if note.at else ""
    until = "" if note.until is None else f" until {clock(note.until)}"
    return f"acknowledged by {note.who}{at}{until}{f': {note.why}' if note.why else ''}"


def marked_false(note: IncidentNote) -> str:
    """Return who marked an incident as false, and why."""
    return f"marked as false by {note.who}: {note.why}"


def inhibited_row(incident: Incident) -> FactRow:
    """Return how many alerts are its consequence: shown below it, never notified."""
    number = max(incident.hidden, len(incident.inhibited))
    if not number:
        return FactRow("inhibited", "")
    return FactRow("inhibited", counted(number, "consequence"), note="not notified", short=f"+{number:,} hidden")


def matchers_words(silence: Silence) -> str:
    """Return what a silence covers: all of it must match."""
    return " ".join(map(str, silence.matchers))


def silence_kind(silence: Silence) -> str:
    """Return the kind of a silence."""
    return "maintenance window" if silence.maintenance else "silence"


def silence_row(silence: Silence, now: int) -> FactRow:
    """Return whether a silence holds, and the time until that changes. `now`: ns since 1970."""
    if now < silence.starts:
        return FactRow("state", "begins in", Tone.DIM, until=(silence.starts - now) / 1e9, short="planned")
    if now < silence.ends:
        return FactRow("state", "ends in", until=(silence.ends - now) / 1e9, short="in force")
    return FactRow("state", "over", Tone.DIM, short="over")
