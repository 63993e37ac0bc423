"""Words and links of a job that several pages share."""

from __future__ import annotations

from collections.abc import Sequence

from aggregator.web.markup import link, text
from api.jobs import JobPhase, JobRow
from telemetry.text import duration
from telemetry.wire.jobs import OF_A_NODE, JobKey

UNKNOWN = '<span class="dim">not known</span>'
HIDDEN = '<span class="dim">with a token</span>'
"""In place of what says something of persons, for a caller without a token."""
MOST_NAMED = 8


def job_link(words: object, key: JobKey, *, run: bool = False) -> str:
    """Return a link to the page of a job; `run`: to this run of it, and not to the newest."""
    return link(
        words,
        "jobs",
        key.id,
        scheduler=key.scheduler,
        node=key.cluster if key.scheduler in OF_A_NODE else None,
        restart=str(key.restart) if run else None,
    )


def known(words: str, *, private: bool = True) -> str:
    """Return a text of a job, or that it is not known. `private`: whether the caller sees what says something
    of persons."""
    if not private:
        return HIDDEN
    return text(words) if words else UNKNOWN


def phase_badge(row: JobRow) -> str:
    """Return the state of a job, with the scheduler's word for it."""
    mark = {JobPhase.SILENT: " ticket", JobPhase.LOST: " ticket"}.get(row.phase)
    word = row.state.lower()
    reported = f' <span class="dim">{text(word)}</span>' if word and word != row.phase else ""
    code = f' <span class="dim">exit code {row.exit_code}</span>' if row.exit_code else ""
    shown = text(row.phase) if mark is None else f'<span class="badge{mark}">{text(row.phase)}</span>'
    return f"{shown}{reported}{code}"


def times_text(times: int) -> str:
    """Return how often something happened: `once`, `3 times`."""
    return "once" if times == 1 else f"{times:,} times"


def nodes_text(names: list[str]) -> str:
    """Return links to the nodes of a job, the first of them where they are many."""
    shown = ", ".join(link(name, "nodes", name) for name in names[:MOST_NAMED])
    more = len(names) - MOST_NAMED
    return f"{shown} and {more:,} more" if more > 0 else shown or UNKNOWN


def lasted(row: JobRow, at: int) -> str:
    """Return for how long a job has run or ran."""
    return duration(max(0, (row.end or at) - row.begin) / 1e9)


def lacking(missing: Sequence[str]) -> str:
    """Return a line about the aggregators whose part is missing; nothing where none is."""
    names = ", ".join(map(text, missing))
    return (
        f"<p class=problems>Without what {names} {'know' if len(missing) > 1 else 'knows'}: no answer came.</p>"
        if missing
        else ""
    )
