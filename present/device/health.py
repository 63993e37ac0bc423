"""The health of a GPU in words: errors of its memory, rows that were replaced, its links, XIDs; and what held its clocks. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from api.device import GpuPageReply, LinkReply
from present.device.gpu import CLOCK_LIMITS, POWER_CAP, pcie_row, remapped_row
from present.device.reading import plain
from present.row import FactRow, Tone
from present.units import number, percent, rate_text
from telemetry.devices import Event
from telemetry.text import counted

_UP = 1.0
_TRAFFIC = ("link_transmit_bytes_per_second", "link_receive_bytes_per_second")
_ERRORS = {
    "corrected errors": ("gpu_ecc_volatile_corrected_total", Tone.PLAIN),
    "uncorrected errors": ("gpu_ecc_volatile_uncorrected_total", Tone.WARN),
}
"""Counters of memory errors since the driver loaded, and how loud one that is not 0 is."""


def health_rows(page: GpuPageReply) -> Iterator[FactRow]:
    """Yield the health of a GPU; a reading that is absent says why, and is never 0."""
    read = page.readings.get
    for label, (metric, tone) in _ERRORS.items():
        value = read(metric)
        if value is None:
            yield FactRow(label, _absent(page.gaps, metric), Tone.DIM)
        else:
            yield FactRow(label, number(value), tone if value else Tone.PLAIN)
    yield remapped_row(read)
    yield links_row(page.links)
    yield link_traffic_row(page.links)
    yield pcie_row(read)
    yield xid_row(page.events)


def _absent(gaps: Mapping[str, str], metric: str) -> str:
    return plain(gaps.get(metric, "")) or "not read"


def links_row(links: Sequence[LinkReply]) -> FactRow:
    """Return how many links to other GPUs and switches are up."""
    if not links:
        return FactRow("links", "")
    states = [one.readings["link_state"] for one in links if "link_state" in one.readings]
    if not states:
        return FactRow("links", "not read", Tone.DIM, note=f"of {counted(len(links), 'link')}")
    up = states.count(_UP)
    missing = len(links) - len(states)
    note = f"{counted(missing, 'link')} not read" if missing else ""
    tone = Tone.WARN if up < len(states) else Tone.PLAIN
    return FactRow("links", f"{up:,} of {len(links):,} up", tone, note=note)


def link_traffic_row(links: Sequence[LinkReply]) -> FactRow:
    """Return what the least and the most used link carry a second, both ways together, and which is the least; nothing
    where no link has the reading."""
    carried = {
        one.link.number: sum(one.readings[metric] for metric in _TRAFFIC)
        for one in links
        if all(metric in one.readings for metric in _TRAFFIC)
    }
    if not carried:
        return FactRow("over NVLink", "")
    least = min(carried, key=carried.__getitem__)
    words = dict.fromkeys(rate_text("nvlink", value) for value in (carried[least], max(carried.values())))
    notes = [f"least: link {least}"] if len(words) > 1 else []
    if missing := len(links) - len(carried):
        notes.append(f"{counted(missing, 'link')} not read")
    return FactRow(
        "over NVLink", f"{' to '.join(words).replace(' GB/s to', ' to')} a link, both ways", note=", ".join(notes)
    )


def xid_row(events: Sequence[Event]) -> FactRow:
    """Return the newest of the XIDs that are in memory, and how many there are; `events`: newest first."""
    codes = [code for one in events if isinstance(code := one.data.get("xid"), int)]
    if not codes:
        return FactRow("XIDs", "none", note="among its last events")
    return FactRow("XIDs", f"XID {codes[0]}", Tone.WARN, note=f"{len(codes):,} among its last events")


def held_row(metric: str, share: float, known: float) -> FactRow:
    """Return for which part of a time a reason limited the clocks. `known`: part of that time with readings."""
    tone = Tone.PLAIN if CLOCK_LIMITS[metric] == POWER_CAP else Tone.WARN
    whole = known > 0.99
    note = "of the time" if whole else f"of the {percent(known)} of the time that is known"
    return FactRow(CLOCK_LIMITS[metric], percent(share), tone, note=note)
