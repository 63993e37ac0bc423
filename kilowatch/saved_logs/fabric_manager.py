"""`fabricmanager.log`: what the service that configures NVSwitches reports."""

from __future__ import annotations

import heapq
import re
from itertools import islice

from alerts.diagnosis.finding import Finding, FindingGpu, of_gpus, with_rule
from alerts.xid.catalogue import XidSeverity
from alerts.xid.evaluate import evaluate_switch
from kilowatch.saved_logs.part import Part
from telemetry.notations.kernel_log import SXid
from telemetry.notations.pci import normal_pci
from telemetry.statements.catalogue import find_statement

_LINE = re.compile(
    r"^\[(\w{3} +\d{1,2} \d{4} \d\d:\d\d:\d\d)\] \[(\w{3,10})\] \[tid \d{1,10}\] (.{1,2000})$", re.MULTILINE
)
_SYSLOG = re.compile(
    r"^(\w{3} [ \d]\d \d\d:\d\d:\d\d|\d{4}-\d\d-\d\dT\S{8,30}) \S{1,120} "
    r"(nv-fabricmanager)(?:\[\d{1,10}\])?: (.{1,2000})$",
    re.MULTILINE,
)
"""The same messages in syslog and the journal, which have no level."""
_FAILS = re.compile(r"\berror|\bfail", re.IGNORECASE)
_SXID = re.compile(r"\bdetected NVSwitch (non-?fatal|fatal) error (\d{4,6})\b", re.IGNORECASE)
_BUS = re.compile(r"pci bus id ([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F])")
_PORT = re.compile(r"\bport (\d{1,3})\b")
_UUID = re.compile(r"\bGPU-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_CONFIGURED = "uccessfully configured all the available"
_SIGN = re.compile(r"\bFabric ?Manager\b|nv-fabricmanager", re.IGNORECASE)
_MOST = 20_000


def part_of(text: str) -> Part | None:
    """Return what the log of Fabric Manager in a text says; None for a text without one."""
    both = heapq.merge(_LINE.finditer(text), _SYSLOG.finditer(text), key=re.Match.start)
    lines = list(islice(both, _MOST + 1))
    more = len(lines) > _MOST
    del lines[_MOST:]
    fabric = "abric" in text or "NVSwitch" in text
    if not lines or not fabric:
        return None
    part = Part("fabricmanager.log", of_driver=True)
    part.lacks = ["XIDs", "memory errors", "the state of single links now"]
    configured = max((n for n, match in enumerate(lines) if _CONFIGURED in match[3]), default=-1)
    found: dict[tuple[object, ...], Finding] = {}
    for number, match in enumerate(lines):
        one = _of_line(match, later=number < configured)
        if one is None:
            continue
        key = (one.fault, one.severity, tuple(one.sxids), tuple(gpu.uuid for gpu in one.gpus))
        known = found.get(key)
        found[key] = one if known is None else _again(known, one)
    part.findings = list(found.values())
    if configured >= 0:
        part.shows = [f"the fabric was configured at {lines[configured][1]}"]
    elif not part.findings:
        part.problem = (
            "it neither reports an error nor that the fabric was configured: its beginning is in an "
            "older file (fabricmanager.log.1), or Fabric Manager did not get so far"
        )
        part.broken = True
    if more:
        part.broken, part.problem = (True, f"only the first {_MOST:,} lines of Fabric Manager were read")
    return part


def without_lines(text: str) -> str:
    """Return a text without the lines that `part_of` reads: the statements of the driver, which are
    looked for in every log, have them too. Lines of IMEX, which writes its log alike, stay."""
    if "[tid " not in text and "nv-fabricmanager" not in text:
        return text
    return _SYSLOG.sub("", _LINE.sub(_of_imex, text))


def _of_imex(match: re.Match[str]) -> str:
    known = find_statement(match[0])
    return match[0] if known is not None and known.speaker == "imex" else ""


def unknown_part(text: str) -> Part | None:
    """Return a part for a log that names Fabric Manager in a form that is not known."""
    if _SIGN.search(text[:262144]) is None:
        return None
    return Part(
        "log of Fabric Manager", broken=True, problem="it names Fabric Manager, but its lines are of no known form"
    )


def _of_line(match: re.Match[str], *, later: bool) -> Finding | None:
    level, message = match[2].upper(), match[3]
    line = match[0].strip()[:500]
    sxid = _SXID.search(message)
    bus = _BUS.search(message)
    where = [FindingGpu(uuid=uuid) for uuid in dict.fromkeys(_UUID.findall(message))][:8]
    if sxid is not None:
        record = SXid(
            int(sxid[2]),
            normal_pci(bus[1]) if bus else None,
            bus[1] if bus else "",
            message,
            fatal=sxid[1].lower() == "fatal",
        )
        fault, severity = evaluate_switch(record)
        ports = [int(port) for port in _PORT.findall(message)]
        one = Finding(
            severity=severity,
            fault=fault,
            sxids=[record.sxid],
            links=ports,
            first=match[1],
            last=match[1],
            line=line,
            lines=[line],
            action=_SWITCH[severity] + (f" NVSwitch {record.pci}." if record.pci else ""),
        )
        return with_rule(of_gpus(one, where))
    silent = match.re is _SYSLOG and _FAILS.search(message) is None
    if silent or level not in {"ERROR", "CRITICAL", "FATAL", "ALERT", "NV-FABRICMANAGER"}:
        return None
    severity = XidSeverity.INFO if later else XidSeverity.TICKET
    action = (
        "Fabric Manager reported an error, and configured the fabric after it. Nothing, unless it comes again."
        if later
        else "Fabric Manager reported an error, and has not configured the fabric since: work over "
        "NVLink may fail. Read the line; check that its version is the driver's, and that all GPUs "
        "and NVSwitches are there."
    )
    one = Finding(
        severity=severity, fault="fabric", first=match[1], last=match[1], line=line, lines=[line], action=action
    )
    return with_rule(of_gpus(one, where))


def _again(known: Finding, one: Finding) -> Finding:
    gpus = list(dict.fromkeys([*known.gpus, *one.gpus]))
    merged = Finding(
        severity=known.severity,
        fault=known.fault,
        sxids=known.sxids,
        links=sorted({*known.links, *one.links}),
        count=known.count + 1,
        first=known.first,
        last=one.last,
        line=known.line,
        lines=[*known.lines, *one.lines][:12],
        action=known.action,
    )
    return with_rule(of_gpus(merged, gpus))


_SWITCH = {
    XidSeverity.PAGE: "An NVSwitch reported a fatal error: work over NVLink fails. Drain the node and"
    " reset all its GPUs and switches together.",
    XidSeverity.TICKET: "An NVSwitch lost a link; mostly the GPU behind it went away. Check the GPUs'"
    " links; reset GPUs and switches if one stays down.",
    XidSeverity.INFO: "An NVSwitch corrected an error. Nothing.",
    XidSeverity.IGNORE: "An NVSwitch corrected an error. Nothing.",
}
