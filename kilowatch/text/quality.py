"""Alert quality as text for people. Pure: values in, lines out."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from api.quality import QualityReply, RuleQuality, RuleSuggestion
from kilowatch.text.table import WIDTH, columns
from present.units import percent
from telemetry.text import counted, duration, timestamp

NOTHING = "-"
"""In place of a figure that nobody knows."""


def quality_lines(reply: QualityReply) -> list[str]:
    """Return the quality of the rules, a line each, and of which rules there is no data."""
    lines = []
    if reply.recorded_since > reply.since:
        lines.append(f"recorded since {timestamp(reply.recorded_since)}: of what was before, nothing is known")
    head = ("RULE", "PAGES", "TICKETS", "ACKED", "MEDIAN", "P90", "SELF-RESOLVED", "SILENCED",
            "FLAPPING", "FALSE", "PRECISION")  # fmt: skip
    rows = [
        (one.rule, one.pages or NOTHING, one.tickets or NOTHING, _of_sent(one, one.acknowledged),
         _wait(one.acknowledged_median_seconds), _wait(one.acknowledged_p90_seconds),
         _of_sent(one, one.self_resolved), one.silenced or NOTHING, _of_sent(one, one.flapping),
         one.marked_false or NOTHING, _precision(one))
        for one in reply.rules
    ]  # fmt: skip
    lines += columns([head, *rows], gap=" ") if rows else ["no page and no ticket in this time"]
    if reply.quiet:
        count = len(reply.quiet)
        text = f"no page in this time, nor a ticket, of {counted(count, 'rule')}: " + ", ".join(reply.quiet)
        lines += ["", *textwrap.wrap(text, WIDTH)]
    return lines


def overall_line(one: RuleQuality) -> str:
    """Return the quality of all rules together as a sentence."""
    sent = one.pages + one.tickets
    if not sent:
        return "no page and no ticket in this time"
    parts = [f"{counted(one.pages, 'page')} and {counted(one.tickets, 'ticket')}"]
    if one.acknowledged_median_seconds is None:
        parts.append("none acknowledged")
    else:
        parts.append(
            f"{one.acknowledged} acknowledged after {_wait(one.acknowledged_median_seconds)} "
            f"(median), {_wait(one.acknowledged_p90_seconds)} (p90)"
        )
    parts.append(f"{one.self_resolved} resolved by themselves")
    if one.precision is not None:
        parts.append(f"{one.marked_false} marked as false, precision {percent(one.precision)}")
    return "; ".join(parts)


def suggestion_lines(suggestions: Sequence[RuleSuggestion]) -> list[str]:
    """Return the suggested changes with their evidence, or why there is none."""
    if not suggestions:
        return ["nothing was marked as false in this time: kilowatch ack KEY --false --why TEXT"]
    lines = []
    for one in suggestions:
        if one.setting:
            text = (
                f"{one.rule}: {one.setting} = {one.suggested:g} in place of {one.present:g} avoids "
                f"{one.avoided} of {counted(one.false_alerts, 'false alert')}, and "
                f"{one.kept} of {counted(one.true_alerts, 'true one')} still fire"
            )
        else:
            text = f"{one.rule}: no change is suggested: {one.reason}"
        evidence = f" ({one.false_replayed} false and {one.true_replayed} true could be replayed)"
        if not one.finished:
            evidence = ""
        lines += textwrap.wrap(text + evidence, WIDTH, subsequent_indent="    ")
    return lines


def _of_sent(one: RuleQuality, count: int) -> str:
    """Return a count of notifications; nothing of a rule that sent none."""
    return str(count) if one.pages + one.tickets else NOTHING


def _wait(seconds: float | None) -> str:
    return NOTHING if seconds is None else duration(seconds)


def _precision(one: RuleQuality) -> str:
    if one.precision is None:
        return "no mark" if one.pages + one.tickets else "no page in this time"
    return f"{percent(one.precision)} of {one.reviewed}"
