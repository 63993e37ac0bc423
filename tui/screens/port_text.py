"""Lines about ports: those of a node, and those of the fleet by switch and rail."""

from __future__ import annotations

from collections.abc import Sequence

from api.alerts import Alert, Severity
from api.device import PortReply
from api.ports import PortGroup, PortLine, PortsReply, firing_by_port
from present.port import line_of
from present.units import gigabits, number
from telemetry.devices import Gpu
from telemetry.text import counted
from tui.kit.text import DASH, clean, fit
from tui.kit.theme import Line, Piece

_COLUMNS = (("port", 14), ("role", 10), ("gpu", 4), ("rail", 5), ("state", 13), ("speed", 9), ("errors", 7))
_FAR = 8
"""Least width of the far end, which is left out where there is less."""


def node_port_lines(ports: Sequence[PortReply], gpus: Sequence[Gpu], alerts: Sequence[Alert], width: int) -> list[Line]:
    """Draw the ports of a node; nothing without any."""
    if not ports:
        return []
    firing = firing_by_port(alerts)
    lines = [
        line_of(each, gpus, firing[each.port.id, Severity.PAGE], firing[each.port.id, Severity.TICKET])
        for each in ports
    ]
    return [_head(width, ""), *(_line(line, width, "") for line in lines)]


def fabric_lines(found: PortsReply | None, why: str, width: int, height: int) -> list[Line]:
    """Draw the ports of the fleet: by switch, else by rail, then those that are not well. `why`: the reason where
    nothing was found."""
    title: list[Piece] = [("Fabric", "head")]
    if found is None:
        return [title, [(why or "loading …", "dim")]]
    if not found.ports:
        return [title, [("no node has told of a port", "dim")]]
    kind = "switch" if any(group.kind == "switch" for group in found.groups) else "rail"
    groups = [group for group in found.groups if group.kind == kind]
    bad = [line for line in found.lines if line.pages or line.tickets or line.slow]
    most = max(4, height - 5 - min(len(bad), max(3, height // 2)))
    lines: list[Line] = [
        title,
        [(fit(f"{kind:<14} nodes  ports     up   down  not known   slow  alerts", width), "dim")],
    ]
    lines += [_group(group) for group in groups[:most]]
    if len(groups) > most:
        lines.append([(f"and {len(groups) - most:,} more", "dim")])
    if not groups:
        lines[1:] = [[(f"{counted(found.ports, 'port')}, none on a rail or a known switch", "dim")]]
    if not bad:
        return [*lines, [(f"· nothing fires on the {counted(found.ports, 'port')}", "ok")]]
    room = max(3, height - len(lines) - 2)
    lines += [[], _head(width, "node"), *(_line(line, width, line.node) for line in bad[:room])]
    if len(bad) > room:
        lines.append([(f"and {len(bad) - room:,} more", "dim")])
    return lines


def _group(group: PortGroup) -> Line:
    tone = "warn" if group.firing else ""
    return [
        (fit(clean(group.name), 14), "strong"),
        (f"{group.nodes:>6,}{group.ports:>7,}{group.up:>7,}", ""),
        (f"{group.down:>7,}", "warn" if group.down and group.firing else ""),
        (f"{group.unknown:>11,}", "stale" if group.unknown else ""),
        (f"{group.slow:>7,}", "warn" if group.slow else ""),
        (f"{group.firing:>8,}", tone),
    ]


def _head(width: int, node: str) -> Line:
    words = fit(node, 14) if node else ""
    words += "".join(fit(word, room) for word, room in _COLUMNS)
    return [
        (fit(f"{words}far end" if width >= len(words) + _FAR else words, width).rstrip(), "head" if not node else "dim")
    ]


def _line(line: PortLine, width: int, node: str) -> Line:
    firing = "crit" if line.pages else "warn" if line.tickets else ""
    unknown = "stale" if line.up is None else ""
    cells = {
        "port": (clean(line.name), "strong"),
        "role": (clean(line.role) or DASH, "dim"),
        "gpu": (DASH if line.gpu is None else str(line.gpu), ""),
        "rail": (DASH if line.rail is None else str(line.rail), ""),
        "state": (clean(line.state), firing or unknown),
        "speed": (gigabits(line.speed), "warn" if line.slow else ""),
        "errors": (number(line.errors), "warn" if line.errors and firing else ""),
    }
    pieces: list[Piece] = [(fit(clean(node), 13, tail=True) + " ", "strong")] if node else []
    pieces += [(fit(cells[word][0], room - 1) + " ", cells[word][1]) for word, room in _COLUMNS]
    left = width - sum(len(text) for text, _ in pieces)
    far = " ".join(filter(None, (line.switch, line.switch_port)))
    if left >= _FAR:
        pieces.append((fit(clean(far), left).rstrip() or DASH, "dim"))
    return pieces
