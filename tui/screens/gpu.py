"""A GPU's page: readings, alerts, clock limit reasons, history, errors and links."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from urllib.parse import quote

from api.columns import HistoryReply
from api.device import GpuPageReply, InstanceReply, LinkReply
from present.device.gpu import (
    clock_limit_row,
    event_row,
    identity_rows,
    limit_word,
    memory_row,
    pcie_row,
    performance_row,
    power_row,
    remapped_row,
    state_row,
)
from present.device.health import link_traffic_row
from present.row import Tone
from present.units import celsius, exact_watts, gibibytes, in_gibibytes, megahertz, number, percent
from telemetry.text import duration, time_of_day
from tui.feed.wants import DocumentRequest, Wants
from tui.kit.chart import Mark
from tui.kit.text import CROSS, DASH, STEP, bar, clean, fit
from tui.kit.theme import Line, Piece
from tui.screens.history import (
    Plot,
    beside,
    grid,
    history_request,
    path_of,
    plot_lines,
    scale_number,
    scale_percent,
    scale_watts,
    share_of,
)
from tui.screens.job_text import MOST_SHOWN, holder_lines, holder_piece, process_lines
from tui.screens.page import PageView
from tui.screens.view import COMPARE_KEYS, COPY_KEYS
from tui.state import readings
from tui.state.dashboard_state import DashboardState
from tui.state.incidents import firing_lines
from tui.tables.listing import unread_mark

_GOOD_LINK = 1.0


def gpu_tables(page: GpuPageReply, width: int, *, utc: bool) -> list[Line]:
    blocks = [_instances(page.instances), _ecc(page), _links(page.links), _pcie(page), _events(page, utc=utc)]
    blocks = [block for block in blocks if len(block) > 1]
    if width < 96:
        return [line for block in blocks for line in block]
    column = width // max(1, len(blocks))
    drawn: list[Line] = []
    for number_, block in enumerate(blocks):
        cut = [_cut(line, column - 2 if number_ < len(blocks) - 1 else width - number_ * column) for line in block]
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


def _ecc(page: GpuPageReply) -> list[Line]:
    read = page.readings.get
    rows = (
        ("corrected", "gpu_ecc_volatile_corrected_total", "gpu_ecc_aggregate_corrected_total", "warn"),
        ("uncorrected", "gpu_ecc_volatile_uncorrected_total", "gpu_ecc_aggregate_uncorrected_total", "crit"),
    )
    lines: list[Line] = [[("ECC errors    boot   ever", "head")]]
    for word, volatile, ever, _ in rows:
        now, all_ = read(volatile), read(ever)
        if now is not None or all_ is not None:
            lines.append([(f"{word:<12}{number(now):>6} {number(all_):>6}", "" if not now else "strong")])
    its = remapped_row(read)
    if its.value:
        lines.append([(f"{its.label} {its.value}, ", ""), (its.note, its.tone or "dim")])
    return lines


def _instances(instances: list[InstanceReply]) -> list[Line]:
    if not instances:
        return []
    lines: list[Line] = [[("MIG          GiB used    of  SM", "head")]]
    for each in instances:
        read = each.readings.get
        used, total = read("instance_memory_used_bytes"), read("instance_memory_total_bytes")
        text = f"{fit(each.instance.name, 13)}{in_gibibytes(used):>8} {in_gibibytes(total):>5}"
        lines.append([(f"{text} {percent(read('instance_sm_active_ratio')):>4}", "")])
        lines += [[("  ", ""), *holder_piece(holder)] for holder in each.holders or ()]
    return lines


def _links(links: list[LinkReply]) -> list[Line]:
    if not links:
        return []
    known = [part for part in links if "link_state" in part.readings]
    bad = [part.link.number for part in known if part.readings["link_state"] != _GOOD_LINK]
    kinds = {part.link.peer_kind or "?" for part in links}
    lines: list[Line] = [[(f"NVLink  to {', '.join(sorted(kinds))}", "head")]]
    lines.append([(f"{len(known) - len(bad)}/{len(links)} up", "" if len(known) == len(links) else "stale")])
    if bad:
        lines.append([(f"{CROSS} down: {', '.join(map(str, bad[:8]))}", "crit")])
    errors = {
        word: sum(part.readings.get(metric, 0.0) for part in links)
        for word, metric in (
            ("CRC", "link_crc_errors_total"),
            ("replays", "link_replays_total"),
            ("recoveries", "link_recoveries_total"),
        )
    }
    lines.append([("  ".join(f"{word} {number(count)}" for word, count in errors.items()), "dim")])
    if (traffic := link_traffic_row(links)).value:
        lines.append([(traffic.value, "")])
        if traffic.note:
            lines.append([(traffic.note, "dim")])
    return lines


def _pcie(page: GpuPageReply) -> list[Line]:
    read = page.readings.get
    its = pcie_row(read)
    if not its.value:
        return []
    replays = f"replays {number(read('gpu_pcie_replays_total'))}"
    return [[(its.label, "head")], [(its.value, its.tone), (f" {its.note}", "dim")], [(replays, "dim")]]


def _events(page: GpuPageReply, *, utc: bool) -> list[Line]:
    lines: list[Line] = [[("Events", "head")]]
    for event in page.events[:8]:
        its = event_row(event)
        lines.append(
            [(f"{time_of_day(event.at, utc=utc)} ", "dim"), (f"{clean(its.label)} ", its.tone), (clean(its.value), "")]
        )
    return lines


SHARES = tuple(
    (f"gpu_clocks_event_{name}_seconds_total", limit_word(name))
    for name in ("sw_power_cap", "sw_thermal_slowdown", "hw_thermal_slowdown", "hw_power_brake_slowdown")
)
_MEMORY_HOT = "gpu_memory_temperature_celsius"


def page_of(uuid: str) -> str:
    """Return the path of a GPU's page."""
    return f"api/v1/gpus/{quote(uuid, safe='')}"


def gpu_documents(uuid: str, span: int) -> tuple[DocumentRequest, ...]:
    """Return the documents of its page."""
    metrics = (readings.POWER, readings.TEMPERATURE, readings.UTILIZATION, readings.MEMORY_USED)
    return (
        DocumentRequest(page_of(uuid), GpuPageReply, 1.0),
        *(history_request("gpu", uuid, metric, span) for metric in metrics),
        *(DocumentRequest(path_of("gpu", uuid, metric, span), HistoryReply, 15.0) for metric, _ in SHARES),
    )


def gpu_lines(state: DashboardState, uuid: str, span: int, width: int, height: int, *, utc: bool) -> list[Line]:
    """Draw the page."""
    path = page_of(uuid)
    page = state.doc(path, GpuPageReply)
    if page is None:
        return [[(state.fault(path) or "loading …", "dim")]]
    lines = _head(state, page, width)
    lines += _now(page, width)
    lines += firing_lines(state, page.alerts, width) or [[("· nothing fires on it", "dim")]]
    lines.append(clock_limits(state, page, uuid, span))
    lines += holder_lines(page.holders, page.at)
    if page.processes:
        lines += process_lines(page.processes, width, most=MOST_SHOWN)
    tables = gpu_tables(page, width, utc=utc)
    room = height - len(lines) - min(len(tables), 9)
    plots = _plots(page)
    across = 2 if width >= 96 else 1
    charts = plots[: 4 if across == 2 and room >= 12 else max(1, min(4, room // 6))]
    each = max(5, min(12, room // max(1, -(-len(charts) // across))))

    def drawn(plot: Plot) -> Callable[[int, int], list[Line]]:
        return lambda w, h: plot_lines(state, "gpu", uuid, plot, span, w, h, utc=utc)

    rows = -(-len(charts) // across)
    lines += grid([drawn(plot) for plot in charts], width, each * rows, across)
    return [*lines, *tables]


def _head(state: DashboardState, page: GpuPageReply, width: int) -> list[Line]:
    gpu = page.gpu
    feeds = ", ".join(map(clean, state.feeds.get(page.node.node, ()))) or DASH
    uuid, pci, serial, slot = identity_rows(gpu)
    named = f"{serial.label} {serial.value}" if serial.value else ""
    facts = [uuid.value, pci.value, named, slot.short]
    return [
        [(f"{clean(page.node.node)}/gpu{gpu.index}", "strong"), ("  ", ""), (clean(gpu.name), ""),
         *([(f"  rack {clean(page.node.rack)}", "dim")] if page.node.rack else []),
         ("  circuit ", "dim"), (feeds, ""),
         *([("  job ", "dim"), (clean(page.node.job), "")] if page.node.job and page.holders is None else [])],
        [(fit(clean("  ".join(filter(None, facts))), width).rstrip(), "dim")],
    ]  # fmt: skip


def _now(page: GpuPageReply, width: int) -> list[Line]:
    read = page.readings.get
    power, limit = read(readings.POWER), read(readings.LIMIT)
    util, clock = read(readings.UTILIZATION), read(readings.CLOCK)
    state = state_row(page.gpu, page.readings, page.gaps)
    if state.value:
        mark, tone = unread_mark(state)
        return [[(mark, tone), (f"  {state.note}", tone)]]
    small = 10 if width < 100 else 16
    return [
        [("power ", "dim"), (f"{power_row(read).value} ", "strong"),
         (bar(power / limit if power is not None and limit else None, small), "bar"),
         ("  util ", "dim"), (f"{percent(util)} ", "strong"), (bar(util, small), "bar"),
         ("  mem ", "dim"), (memory_row(read).value, "strong")],
        [("temp ", "dim"), (celsius(read(readings.TEMPERATURE)), "strong"), ("  memory ", "dim"),
         (celsius(read(_MEMORY_HOT)), "strong"), ("  clock ", "dim"),
         (megahertz(clock), "strong"), ("  state ", "dim"),
         (performance_row(read).value, "strong"), ("  processes ", "dim"),
         (number(read("gpu_processes")), "strong")],
    ]  # fmt: skip


def clock_limits(state: DashboardState, page: GpuPageReply, uuid: str, span: int) -> Line:
    """Draw the clock limit reasons now, and for what share of the time."""
    now = clock_limit_row(page.readings.get)
    pieces: list[Piece] = [(f"{now.label} ", "dim"), (now.value, "warn" if now.tone is Tone.WARN else "")]
    shares = [(word, share_of(state.doc(path_of("gpu", uuid, metric, span), HistoryReply))) for metric, word in SHARES]
    limited = [f"{word} {share}" for word, share in shares if share not in {DASH, "0%"}]
    if any(share != DASH for _, share in shares):
        pieces += [(f"  of the last {duration(span)}: ", "dim"), (", ".join(limited) or "none", "")]
    return pieces


def _plots(page: GpuPageReply) -> list[Plot]:
    read = page.readings.get
    limit, slow = read(readings.LIMIT), read("gpu_temperature_slowdown_celsius")
    total = read(readings.MEMORY_TOTAL)
    power, util, used = read(readings.POWER), read(readings.UTILIZATION), read(readings.MEMORY_USED)
    top = max(limit or 0.0, power or 0.0) * 1.1 or 1200.0
    return [
        Plot("Power W", readings.POWER, (0.0, top), scale_watts, exact_watts(power),
             [Mark(limit, f"limit {limit:.0f}", "strong")] if limit else []),
        Plot("Temperature °C", readings.TEMPERATURE, (20.0, max(100.0, (slow or 0) + 3)), scale_number,
             celsius(read(readings.TEMPERATURE)), [Mark(slow, f"slows at {slow:.0f}")] if slow else []),
        Plot("Utilisation", readings.UTILIZATION, (0.0, 1.0), scale_percent, percent(util)),
        Plot("Memory GiB", readings.MEMORY_USED, (0.0, total or 80 * 2.0**30), in_gibibytes,
             gibibytes(used)),
    ]  # fmt: skip


class GpuView(PageView):
    """The page of a GPU."""

    NAME: ClassVar[str] = "gpu"
    TITLE: ClassVar[str] = "GPU"
    FRAME_KEYS = COPY_KEYS | COMPARE_KEYS

    def wants(self) -> Wants:
        """Return its page and history; nothing of the stream."""
        return Wants(nodes=(), documents=gpu_documents(self.subject, self.context.span))

    def lines(self, width: int, height: int) -> list[Line]:
        """Draw the page."""
        context = self.context
        return gpu_lines(context.shown, self.subject, context.span, width, height, utc=context.utc)

    def title(self) -> str:
        """Return node and number."""
        page = self.context.shown.doc(page_of(self.subject), GpuPageReply)
        return self.subject if page is None else f"{clean(page.node.node)} {STEP} gpu{page.gpu.index}"

    def neighbours(self) -> list[str]:
        """Return the GPUs of the fleet in their order."""
        gpus = self.context.shown.gpus
        return [gpus.who.uuid[row] for row in gpus.order.tolist()]

    def record(self) -> Any:
        """Return its page."""
        return self.context.shown.doc(page_of(self.subject), GpuPageReply)
