"""A GPU in words: its name and place, why it is not read, its clocks, memory and links, and its events."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping

from present.row import FactRow, Tone
from present.units import gibibytes_of, number, watts_of
from telemetry.devices import Event, Gpu
from telemetry.text import ABSENT

Read = Callable[[str], float | None]
"""Function that returns a reading by metric, None where there is none."""
_FLAG = "gpu_clocks_event_"
CLOCK_LIMITS = {
    f"{_FLAG}hw_power_brake_slowdown": "power brake",
    f"{_FLAG}hw_thermal_slowdown": "hw thermal",
    f"{_FLAG}sw_thermal_slowdown": "sw thermal",
    f"{_FLAG}hw_slowdown": "hw slowdown",
    f"{_FLAG}sw_power_cap": "power cap",
}
"""Words of the clock limit reasons that are shown, by metric, worst first."""
POWER_CAP = CLOCK_LIMITS[f"{_FLAG}sw_power_cap"]
"""How a busy GPU works; all other reasons take speed away for a fault."""
_CRITICAL, _CAUTION = {"xid", "gpu_lost"}, {"gpu_hung", "clocks_down"}


def gpu_name(node: str, index: int | str) -> str:
    """Return a GPU's name: `dgx-01 GPU 3`; of one whose node is clear `GPU 3`."""
    return f"{node} GPU {index}".lstrip()


def short_model(name: str) -> str:
    """Return a model without its maker, for a column."""
    return name.removeprefix("NVIDIA ")


def slot_text(slot: str) -> str:
    """Return the place of a GPU in its node: `slot 3`; a platform that says more has the word itself."""
    return f"slot {slot}" if slot.isdigit() else slot


def identity_rows(gpu: Gpu) -> Iterator[FactRow]:
    """Yield what identifies a board, and its place."""
    yield FactRow("UUID", gpu.uuid)
    near = "" if gpu.numa_node is None else f"NUMA node {gpu.numa_node}"
    yield FactRow("PCI", gpu.pci or "", note=near)
    yield FactRow("serial", gpu.serial or "")
    yield FactRow("slot", gpu.slot or "", short=slot_text(gpu.slot or ""))


def unread_row(present: bool, gaps: Collection[str]) -> FactRow:
    """Return why nothing can be read of a GPU, by the reasons of its gaps. The store holds few of them: one that
    was lost in the past may have no data."""
    if not present or "device_lost" in gaps:
        return _unread("lost", "it has left the bus", Tone.CRIT)
    if "timed_out" in gaps:
        return _unread("hung", "the driver does not answer for it", Tone.CRIT)
    if "stale" in gaps or not any(gaps):
        return _unread("stale", "nothing new has come of it", Tone.STALE)
    return _unread("no data", "why is not known", Tone.STALE)


def _unread(word: str, why: str, tone: Tone) -> FactRow:
    return FactRow("state", word, tone, note=f"{why}: nothing can be read", short=word.upper())


def state_row(gpu: Gpu, readings: Mapping[str, float], gaps: Mapping[str, str]) -> FactRow:
    """Return why nothing can be read of a GPU; without a value where it is read."""
    reasons = set(gaps.values())
    if readings and gpu.present and "device_lost" not in reasons:
        return FactRow("state", "")
    return unread_row(gpu.present, reasons)


def limit_word(reason: str) -> str:
    """Return a clock limit reason, named as by the catalogue without its prefix: `hw thermal`."""
    return CLOCK_LIMITS.get(_FLAG + reason, reason.replace("_", " "))


def clock_limit_row(read: Read) -> FactRow:
    """Return the clock limit reasons now; the worst as short form."""
    flags = [(word, read(metric)) for metric, word in CLOCK_LIMITS.items()]
    words = [word for word, flag in flags if flag]
    if words:
        tone = Tone.DIM if words == [POWER_CAP] else Tone.WARN
        return FactRow("clock limit", ", ".join(words), tone, short=words[0])
    known = any(flag is not None for _, flag in flags)
    return FactRow("clock limit", "none" if known else ABSENT, short="" if known else ABSENT)


def power_row(read: Read) -> FactRow:
    """Return the power and its limit."""
    its, limit = read("gpu_power_watts"), read("gpu_power_limit_watts")
    return FactRow("power", watts_of(its, limit, exact=True))


def memory_row(read: Read) -> FactRow:
    """Return the memory in use and its size."""
    used, total = read("gpu_memory_used_bytes"), read("gpu_memory_total_bytes")
    return FactRow("memory", gibibytes_of(used, total))


def performance_row(read: Read) -> FactRow:
    """Return the performance state: `P0` is the fastest."""
    state = read("gpu_performance_state")
    return FactRow("performance state", ABSENT if state is None else f"P{state:.0f}")


def pcie_row(read: Read) -> FactRow:
    """Return generation and width of its bus link, and the most that it can have; marked where it is narrow."""
    generation, width = read("gpu_pcie_link_generation"), read("gpu_pcie_link_width")
    if generation is None and width is None:
        return FactRow("PCIe", "")
    most, widest = read("gpu_pcie_link_generation_max"), read("gpu_pcie_link_width_max")
    narrow = width is not None and widest is not None and width < widest
    of = "" if most is None and widest is None else f"of gen {number(most)} x{number(widest)}"
    tone = Tone.WARN if narrow else Tone.PLAIN
    return FactRow("PCIe", f"gen {number(generation)} x{number(width)}", tone, note=of)


def remapped_row(read: Read) -> FactRow:
    """Return the rows of memory that are remapped, and whether that is done."""
    rows, pending = read("gpu_remapped_rows_uncorrectable"), read("gpu_remapped_rows_pending")
    if rows is None and pending is None:
        return FactRow("rows remapped", "")
    failed = read("gpu_remapped_rows_failure")
    note = "failed" if failed else "pending: reset it" if pending else "none pending"
    return FactRow("rows remapped", number(rows), Tone.WARN if failed or pending else Tone.PLAIN, note=note)


def now_rows(read: Read) -> Iterator[FactRow]:
    """Yield what its page says of it now, beside single readings; what it lacks is left out."""
    rows = (power_row(read), memory_row(read), clock_limit_row(read), performance_row(read), pcie_row(read),
            remapped_row(read))  # fmt: skip
    return (row for row in rows if row.value not in {"", ABSENT})


def event_name(event: Event) -> str:
    """Return the kind of an event, with the number of an XID: `xid 79`."""
    code = event.data.get("xid", event.data.get("sxid"))
    return f"{event.kind} {code}" if isinstance(code, int) else event.kind


def event_row(event: Event) -> FactRow:
    """Return an event: its kind, and the line of the log, else its message."""
    words = str(event.data.get("line") or event.message)
    tone = Tone.CRIT if event.kind in _CRITICAL else Tone.WARN if event.kind in _CAUTION else Tone.PLAIN
    return FactRow(event_name(event).replace("_", " "), words, tone)
