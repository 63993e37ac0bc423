"""The tables on a GPU's page: ECC, links, PCIe, events."""

from __future__ import annotations

from tui.messages.pages import GpuPage, LinkPart
from tui.text import CROSS, clean, clock_of, fit, number
from tui.theme import Line, Piece

_GOOD_LINK = 1.0


def gpu_tables(page: GpuPage, width: int, *, utc: bool) -> list[Line]:
    blocks = [_ecc(page), _links(page.links), _pcie(page), _events(page, utc=utc)]
    blocks = [block for block in blocks if len(block) > 1]
    if width < 96:
        return [line for block in blocks for line in block]
    from tui.screens.history import beside  # noqa: PLC0415

    column = width // max(1, len(blocks))
    drawn: list[Line] = []
    for number_, block in enumerate(blocks):
        cut = [
            _cut(line, column - 2 if number_ < len(blocks) - 1 else width - number_ * column)
            for line in block
        ]
        drawn = cut if not drawn else beside(drawn, cut, column * number_, 0)
    return drawn


def _cut(line: Line, width: int) -> Line:
    pieces: list[Piece] = []
    left = width
    for text, tone in line:
        if left > 0:
            pieces.append((fit(text, min(left, len(text))), tone))
            left -= len(text)
    return pieces


def _ecc(page: GpuPage) -> list[Line]:
    read = page.readings.get
    rows = (
        (
            "corrected",
            "gpu_ecc_volatile_corrected_total",
            "gpu_ecc_aggregate_corrected_total",
            "warn",
        ),
        (
            "uncorrected",
            "gpu_ecc_volatile_uncorrected_total",
            "gpu_ecc_aggregate_uncorrected_total",
            "crit",
        ),
    )
    lines: list[Line] = [[("ECC errors    boot   ever", "head")]]
    for word, volatile, ever, _ in rows:
        now, all_ = read(volatile), read(ever)
        if now is not None or all_ is not None:
            lines.append(
                [(f"{word:<12}{number(now):>6} {number(all_):>6}", "" if not now else "strong")]
            )
    pending, failed = read("gpu_remapped_rows_pending"), read("gpu_remapped_rows_failure")
    rows_ = read("gpu_remapped_rows_uncorrectable")
    if pending is not None or rows_ is not None:
        words = "failed" if failed else "pending: reset it" if pending else "none pending"
        lines.append(
            [
                (f"rows remapped {number(rows_)}, ", ""),
                (words, "warn" if pending or failed else "dim"),
            ]
        )
    return lines


def _links(links: list[LinkPart]) -> list[Line]:
    if not links:
        return []
    known = [part for part in links if "link_state" in part.readings]
    bad = [part.link.number for part in known if part.readings["link_state"] != _GOOD_LINK]
    kinds = {part.link.peer_kind or "?" for part in links}
    lines: list[Line] = [[(f"NVLink  to {', '.join(sorted(kinds))}", "head")]]
    lines.append(
        [(f"{len(known) - len(bad)}/{len(links)} up", "" if len(known) == len(links) else "stale")]
    )
    if bad:
        lines.append([(f"{CROSS} down: {', '.join(map(str, bad[:8]))}", "crit")])
    errors = {word: sum(part.readings.get(metric, 0.0) for part in links) for word, metric in
              (("CRC", "link_crc_errors_total"), ("replays", "link_replays_total"), ("recoveries", "link_recoveries_total"))}  # fmt: skip
    lines.append([("  ".join(f"{word} {number(count)}" for word, count in errors.items()), "dim")])
    return lines


def _pcie(page: GpuPage) -> list[Line]:
    read = page.readings.get
    generation, width = read("gpu_pcie_link_generation"), read("gpu_pcie_link_width")
    most, widest = read("gpu_pcie_link_generation_max"), read("gpu_pcie_link_width_max")
    if generation is None and width is None:
        return []
    narrow = width is not None and widest is not None and width < widest
    lines: list[Line] = [[("PCIe", "head")]]
    lines.append([(f"gen {number(generation)} x{number(width)}", "warn" if narrow else ""),
                  (f" of gen {number(most)} x{number(widest)}", "dim")])  # fmt: skip
    lines.append([(f"replays {number(read('gpu_pcie_replays_total'))}", "dim")])
    return lines


def _events(page: GpuPage, *, utc: bool) -> list[Line]:
    lines: list[Line] = [[("Events", "head")]]
    for event in page.events[:8]:
        tone = (
            "crit"
            if event.kind in {"xid", "gpu_lost"}
            else "warn"
            if event.kind in {"gpu_hung", "clocks_down"}
            else ""
        )
        lines.append(
            [
                (f"{clock_of(event.at, utc=utc)} ", "dim"),
                (f"{clean(event.kind)} ", tone),
                (clean(event.message), ""),
            ]
        )
    return lines
