"""The page of a node: what is wrong first, its GPUs in their places, who uses them, what feeds it, and its past."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from aggregator.register.node_register import drift
from aggregator.web.bars import part_bar
from aggregator.web.device_tables import readings_table
from aggregator.web.headline_part import figure_tile, headline_part, tiles
from aggregator.web.icons import badge
from aggregator.web.markup import fact, facts, link, path, section, table, text
from aggregator.web.node_list import release_text, state_badge
from api.alerts import Alert, AlertState, Severity
from api.device import GpuReply, NodePageReply
from present.device.figures import CLOCK, HEAT, MEMORY, POWER, USE, WORDS, node_figures, share_of_limit, slowed, too_hot
from present.device.gpu import gpu_name, state_row
from present.device.listed import ListedTable, listed_tables
from present.device.node import about_row, driver_row, frame_row, gpus_row, now_rows, release_row, role_row
from present.device.reading import plain
from present.fleet.headline import Headline
from present.row import Tone
from telemetry.runtime.release import release
from telemetry.text import ABSENT, counted

_BARS = (POWER, HEAT, USE, MEMORY)
_HEADS = ("GPU", "what is wrong", "held by", "power", "temperature", "use", "memory", "clock")


HeldBy = Callable[[str], str]
"""Function that returns who holds a GPU, HTML, by its UUID."""


class NodeParts(NamedTuple):
    """Parts of the page that are made elsewhere, HTML."""

    alerts: str
    holders: str
    """Jobs and processes that hold its GPUs, with their heading."""
    feeds: str
    ports: str
    odd: str
    """Charts of the GPU that differs, with their heading."""
    past: str


def node_body(page: NodePageReply, title: Headline, parts: NodeParts, held: HeldBy | None) -> str:
    """Return the page's content. `held`: who holds a GPU; None where the caller may not see persons."""
    one = page.node
    about = about_row(one, page.host.get("product", ""), (each.gpu.name for each in page.gpus))
    host = tuple((plain(name), text(value)) for name, value in page.host.items() if name not in {"rack", "job"})
    left = parts.holders + section("Past", parts.past, "past")
    right = (
        section("Alerts", parts.alerts, "alerts")
        + section("What feeds it", parts.feeds, "feeds")
        + section("Ports", parts.ports, "ports")
        + "".join(map(_listed, listed_tables(page.devices)))
        + section("About it", facts((*_facts(page), *host)), "about")
    )
    more = f'<a href="{path("alerts", view="past", node=one.node)}">past incidents of this node</a>'
    return (
        f'<p class="about">{text(about.value)}; {state_badge(one)}</p>{headline_part(title)}'
        f"{tiles(*map(figure_tile, node_figures(page)))}"
        f"{section('GPUs', gpu_table(page.gpus, page.alerts, held), 'gpus', more=more)}{parts.odd}"
        f'<div class="stack w14">{left}</div><div class="stack w10">{right}</div>'
        f"{section('Readings of the node', readings_table(page.readings, page.gaps), 'readings')}"
    )


def _listed(one: ListedTable) -> str:
    rows = [tuple(map(text, row)) for row in one.rows]
    shown = table(counted(len(rows), one.table), one.heads, rows, range(1, len(one.heads)))
    return section(f"{one.table.capitalize()}s", shown, f"{one.table}s")


def gpu_table(gpus: Sequence[GpuReply], alerts: Iterable[Alert], held: HeldBy | None = None) -> str:
    """Return the GPUs of a node in their places, each bar up to its limit, marked where something is wrong."""
    worst = worst_by_gpu(alerts)
    rows, marks = [], []
    for each in gpus:
        wrong = list(_wrong(each, worst.get(each.gpu.uuid)))
        marks.append(min((mark for mark, _ in wrong if mark != "unknown"), default=""))  # a page first
        rows.append(tuple(_cells(each, wrong, held)))
    caption = f"{counted(len(rows), 'GPU')} in their places; a bar ends at its limit"
    shown = [place for place in range(len(_HEADS)) if held is not None or place != 2]
    rows = [tuple(row[place] for place in shown) for row in rows]
    return table(caption, [_HEADS[place] for place in shown], rows, (len(shown) - 1,), "gpus", marks)


def worst_by_gpu(alerts: Iterable[Alert]) -> dict[str, Alert]:
    """Return the worst alert that fires on each GPU."""
    rank = {Severity.PAGE: 0, Severity.TICKET: 1}
    found: dict[str, Alert] = {}
    for one in alerts:
        if one.state is not AlertState.FIRING or not one.gpu or one.severity not in rank:
            continue
        before = found.get(one.gpu)
        if before is None or rank[one.severity] < rank[before.severity]:
            found[one.gpu] = one
    return found


def odd_one(gpus: Sequence[GpuReply], alerts: Iterable[Alert]) -> GpuReply | None:
    """Return the GPU of which something is wrong, the worst one; None where none is read that differs."""
    worst = worst_by_gpu(alerts)

    def order(one: GpuReply) -> tuple[int, int]:
        alert = worst.get(one.gpu.uuid)
        bad = 0 if alert is None else 2 if alert.severity is Severity.PAGE else 1
        return bad, bool(slowed(one.readings.get) or too_hot(one.readings.get))

    known = [one for one in gpus if HEAT in one.readings or POWER in one.readings]
    found = max(known, key=order, default=None)
    return None if found is None or order(found) == (0, 0) else found


def _wrong(one: GpuReply, alert: Alert | None) -> Iterator[tuple[str, str]]:
    """Yield what is wrong with a GPU: its urgency, and words."""
    state, read = state_row(one.gpu, one.readings, one.gaps), one.readings.get
    if alert is not None:
        yield alert.severity.value, plain(alert.rule)
    if state.value and (alert is None or state.tone is not Tone.CRIT):
        yield "page" if state.tone is Tone.CRIT else "unknown", state.value
    if words := slowed(read):
        yield "ticket", words


def _cells(one: GpuReply, wrong: Sequence[tuple[str, str]], held: HeldBy | None) -> Iterator[str]:
    read = one.readings.get
    yield link(gpu_name("", one.gpu.index), "gpus", one.gpu.uuid)
    yield " ".join(badge(mark, words) for mark, words in wrong)
    yield "" if held is None else held(one.gpu.uuid)
    for name in _BARS:
        mark = "ticket" if name == HEAT and too_hot(read) else ""
        yield _barred(one, name, mark)
    yield _word(one, CLOCK)


def _word(one: GpuReply, name: str) -> str:
    """Return a reading, or the reason of its gap."""
    value = one.readings.get(name)
    if value is not None:
        return text(WORDS[name](value))
    return f'<span class="dim">{text(plain(one.gaps.get(name, ""))) or ABSENT}</span>'


def _barred(one: GpuReply, name: str, mark: str) -> str:
    part = share_of_limit(name, one.readings.get)
    known = name in one.readings
    bar = part_bar(part, mark) if part is not None or not known else ""
    return f'<div class="barred"><span>{_word(one, name)}</span>{bar}</div>'


def _facts(page: NodePageReply) -> Iterator[tuple[str, str]]:
    one = page.node
    rows = (
        frame_row(one.age_seconds),
        driver_row(one.driver_version, one.driver_state, one.driver_message),
        role_row(one.role),
        gpus_row(one.gpus, one.gpus_present, one.role),
    )
    yield from ((row.label, fact(row)) for row in rows)
    yield "source", text(one.source)
    yield "rack", text(one.rack)
    yield "job", text(one.job)
    release_ = release_row(one.release, drift(one.release, release()))
    yield release_.label, release_text(release_)
    read: Mapping[str, float] = page.readings
    yield from ((row.label, fact(row)) for row in now_rows(read.get, page.power) if row.value != ABSENT)
