"""Lines of the kernel about InfiniBand and Ethernet adapters (mlx5): without them, jobs over several
nodes fail although every GPU is well."""

from __future__ import annotations

import re

from alerts.diagnosis.finding import Finding
from alerts.diagnosis.log_time import LogClock, LogTime
from alerts.xid.catalogue import XidSeverity
from kilowatch.saved_logs.part import Part
from telemetry.kernel_log import message_start

_BEGINS = re.compile(r"(?:mlx5_core|infiniband|NETDEV WATCHDOG|mlx5_\d)")
_DEVICE = re.compile(r"[0-9a-fA-F]{4}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-9a-fA-F]|mlx5_\d{1,3}")
_LINK = re.compile(r"\bLink (down|up)\b", re.IGNORECASE)
_KINDS: tuple[tuple[str, XidSeverity, re.Pattern[str], str], ...] = (
    (
        "nic_failed", XidSeverity.PAGE,
        re.compile(r"health compromised|health poll failed|internal error|[Ff]atal error \d|in error state"),
        "The firmware of a network adapter has stopped. Drain the node and reboot it; if it comes again, "
        "update its firmware or replace it.",
    ),
    (
        "nic_module", XidSeverity.TICKET, re.compile(r"Port module event\[error\]|Cable error|High Temperature"),
        "A cable or module of a network port is bad, too hot or unplugged. Reseat or replace it.",
    ),
    (
        "nic_power", XidSeverity.TICKET, re.compile(r"insufficient power on the PCIe slot"),
        "A network adapter gets too little power from its slot. Check slot and riser.",
    ),
    (
        "nic_timeout", XidSeverity.TICKET, re.compile(r"cmd_exec.{0,80}timeout|timeout\. Will cause a leak|transmit queue \d+ timed out"),
        "A network adapter does not answer its driver in time. Drain the node and reboot it if it goes on.",
    ),
    (
        "nic_pcie", XidSeverity.TICKET, re.compile(r"available PCIe bandwidth, limited by"),
        "A network adapter has fewer or slower PCI Express lanes than it could use. Reseat it.",
    ),
)  # fmt: skip
_MOST = 20_000


def part_of(text: str) -> Part | None:
    """Return what the kernel's lines about mlx5 adapters say; None for a text without any."""
    if "mlx5" not in text:
        return None
    clock = LogClock()
    found: dict[tuple[str, str], tuple[Finding, LogTime]] = {}
    links: dict[str, tuple[bool, str, LogTime]] = {}
    lines = 0
    named = _lines(text)
    for line in named[:_MOST]:
        start = message_start(line)
        message = line[start:]
        if _BEGINS.match(message) is None:
            continue
        lines += 1
        moment = clock.read(line[:start])
        device = _DEVICE.search(message)
        where = "" if device is None else device[0]
        if (link := _LINK.search(message)) is not None:
            links[where] = (link[1].lower() == "up", line, moment)
        kind = next((kind for kind in _KINDS if kind[2].search(message)), None)
        if kind is not None:
            _add(found, (kind[0], where), kind[1], kind[3], line, moment)
    for where, (up, line, moment) in links.items():
        if not up:
            _add(found, ("nic_link", where), XidSeverity.TICKET, _DOWN, line, moment)
    if not lines:
        return None
    part = Part("kernel lines of mlx5", findings=[one for one, _ in found.values()])
    part.needs_driver = True
    if len(named) > _MOST:
        part.broken, part.problem = True, f"only the first {_MOST:,} lines of mlx5 were read"
    if not part.findings:
        part.shows = [f"network adapters: no fault in {lines} lines of mlx5"]
    return part


_DOWN = "A network port went down and has not come up in this log. Check cable, module and switch."


def _lines(text: str) -> list[str]:
    """Return the lines that name mlx5, without a look at the others."""
    found: list[str] = []
    at = text.find("mlx5")
    while at >= 0 and len(found) <= _MOST:
        end = text.find("\n", at)
        end = len(text) if end < 0 else end
        found.append(text[text.rfind("\n", 0, at) + 1 : end][:2048])
        at = text.find("mlx5", end)
    return found


def _add(
    found: dict[tuple[str, str], tuple[Finding, LogTime]], key: tuple[str, str],
    severity: XidSeverity, action: str, line: str, moment: LogTime,
) -> None:  # fmt: skip
    shown = line.strip()[:500]
    known = found.get(key)
    where = f" Adapter: {key[1]}." if key[1] else ""
    if known is None:
        one = Finding(severity=severity, fault=key[0], first=moment.text, last=moment.text,
                      moment=moment.in_file(""), action=action + where, line=shown, lines=[shown])  # fmt: skip
    else:
        before = known[0]
        one = Finding(severity=severity, fault=key[0], count=before.count + 1, first=before.first,
                      last=moment.text, moment=before.moment, action=before.action, line=before.line,
                      lines=[*before.lines, shown][:12])  # fmt: skip
    found[key] = one, moment
