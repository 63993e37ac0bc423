"""Incidents as text: lines, and counts by severity."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from api.alerts import Alert, Incident, Silence, matches_all
from present.alert.incident import short_title
from present.units import number
from telemetry.text import short_duration
from tui.kit.text import DASH, clean, fit
from tui.kit.theme import Piece
from tui.state.dashboard_state import DashboardState
from tui.state.documents import LOADING

_SEVERITIES = (("page", "▲", "crit", "CRIT"), ("ticket", "!", "warn", "WARN"))


def counts(state: DashboardState, *, words: bool = False) -> list[Piece]:
    """Return the number of open incidents by severity, and of acknowledged ones."""
    if state.incidents_unknown:
        sign = "…" if state.incidents_unknown == LOADING else DASH
        return [(sign if words else f"alerts {sign}", "stale")]
    pieces: list[Piece] = []
    severity_words = {"page": "crit", "ticket": "warn"}
    for severity, glyph, tone, _ in _SEVERITIES:
        count = sum(each.severity == severity for each in state.incidents)
        if count:
            pieces += [(f"{glyph}{number(count)}{' ' + severity_words[severity] if words else ''}", tone), (" ", "")]
    taken = sum(each.acknowledged is not None for each in state.incidents)
    if taken:
        pieces.append((f"✓{number(taken)}{' acked' if words else ''} ", "dim"))
    return pieces or [("no alerts", "dim")]


def silenced_until(incident: Incident, silences: Sequence[Silence], at: int) -> int | None:
    """Return until when all its firing alerts are silenced, ns; None if one is not."""
    running = [each for each in silences if each.starts <= at < each.ends]
    firing = [alert for alert in incident.alerts if alert.state == "firing"]
    ends = [max((each.ends for each in running if _hushes(each, alert)), default=None) for alert in firing]
    known = [end for end in ends if end is not None]
    return min(known) if known and len(known) == len(ends) else None


def _hushes(silence: Silence, alert: Alert) -> bool:
    """Return whether a silence matches an alert, by the rules of the aggregator."""
    return matches_all(silence.matchers, alert.matched_labels())


def incident_line(state: DashboardState, incident: Incident, width: int, *, place: int = 20) -> list[Piece]:
    """Draw an incident: severity, age, title, and who acknowledged it."""
    _, glyph, tone, word = _severity(incident.severity)
    taken = incident.acknowledged
    mark: list[Piece] = [(f"{glyph} {word:<4} ", "dim" if taken else tone)]
    mark.append((f"{short_duration((state.at - incident.onset) / 1e9).replace(' ', ''):>4} ", "dim"))
    many = f" (+{number(incident.firing - 1)})" if incident.firing > 1 else ""
    who = f" ✓ {clean(taken.who)}" if taken else ""
    title = clean(incident.title)
    if many:
        title = short_title(title)
    room = max(8, width - 12 - cell_len(many) - cell_len(who))
    return [*mark, (fit(title, room).rstrip(), "dim" if taken else "strong"), (many, "dim"), (who, "good")]


def firing_lines(state: DashboardState, alerts: Sequence[Alert], width: int) -> list[list[Piece]]:
    """Draw the first three firing alerts of a page, and the number of the others."""
    firing = [alert for alert in alerts if alert.state == "firing"]
    lines: list[list[Piece]] = []
    for alert in firing[:3]:
        _, glyph, tone, _ = _severity(alert.severity)
        summary = fit(clean(alert.summary), max(1, width - 10)).rstrip()
        since = short_duration((state.at - alert.since) / 1e9)
        lines.append([(f"{glyph} ", tone), (summary, "strong"), (f" {since}", "dim")])
    if len(firing) > 3:
        lines.append([(f"  and {len(firing) - 3} more", "dim")])
    return lines


def severity_mark(severity: str) -> Piece:
    """Return sign and word of a severity."""
    _, glyph, tone, word = _severity(severity)
    return f"{glyph} {word.upper()}", tone


def _severity(name: str) -> tuple[str, str, str, str]:
    """Return name, sign, tone and word of a severity."""
    return next((each for each in _SEVERITIES if each[0] == name), ("", "·", "dim", "info"))


def alert_lines(state: DashboardState, width: int, height: int) -> list[list[Piece]]:
    """Draw the worst incidents, one a line; the last line counts the rest."""
    shown = state.incidents
    if state.incidents_unknown:
        return [[(clean(state.incidents_unknown), "dim")]]
    if not shown:
        pending = sum(alert.state == "pending" for alert in state.alerts)
        if pending:
            return [[(f"no alerts; {number(pending)} pending", "dim")]]
        resolved = max((a for a in state.alerts if a.state == "resolved"), key=lambda a: a.changed, default=None)
        if resolved is None:
            return [[("no alerts", "dim")]]
        ago = short_duration((state.at - resolved.changed) / 1e9)
        return [[(f"no alerts; {ago} ago resolved: {clean(resolved.summary)}", "dim")]]
    if len(shown) > height and 0 < height <= 3:  # no line to spare: the count follows the last title
        more = f"  and {number(len(shown) - height)} more"
        last = incident_line(state, shown[height - 1], width - len(more))
        return [*(incident_line(state, each, width) for each in shown[: height - 1]), [*last, (more, "dim")]]
    room = height if len(shown) <= height else height - 1
    lines = [incident_line(state, each, width) for each in shown[: max(0, room)]]
    if room < len(shown):
        lines.append([(f"  and {number(len(shown) - max(0, room))} more", "dim")])
    return lines
