"""The matrix of a node: which of its GPUs reach each other, and over what. Pure."""

from __future__ import annotations

from tui import readings
from tui.board import Board
from tui.listing import unread
from tui.messages.pages import GpuPage, NodePage
from tui.screens.gpu import page_of as gpu_page_of
from tui.screens.node import page_of
from tui.text import CROSS, DASH, clean, fit, watts
from tui.theme import Line, Piece


def matrix_lines(board: Board, node: str, width: int) -> list[Line]:
    """As `nvidia-smi topo -m`: NV<links> to a peer, SW<links> over a switch, PHB over the bus."""
    page = board.doc(page_of(node), NodePage)
    if page is None:
        return [[(board.fault(page_of(node)) or "loading …", "dim")]]
    pages = [board.doc(gpu_page_of(part.gpu.uuid), GpuPage) for part in page.gpus]
    over = {uuid: pool.over for pool in page.pools if len(pool.gpus) > 1 for uuid in pool.gpus}
    lines: list[Line] = [
        [
            (f"matrix of {clean(node)}", "strong"),
            ("   NV links to a peer · SW over a switch · PHB over PCIe", "dim"),
        ]
    ]
    gone = {part.gpu.uuid: unread(part.gpu.present, set(part.gaps.values()))
            for part in page.gpus
            if not part.readings or not part.gpu.present or "device_lost" in part.gaps.values()}  # fmt: skip
    heads = "".join(f"{f'gpu{part.gpu.index}':>6}" for part in page.gpus)
    lines.append([(fit("", 6), ""), (fit(heads, max(1, width - 6)).rstrip(), "head")])
    for row, mine in enumerate(page.gpus):
        pieces: list[Piece] = [(f"gpu{mine.gpu.index:<3}", "strong")]
        for column, other in enumerate(page.gpus):
            if row == column:
                pieces.append(("     X", "dim"))
            elif mine.gpu.uuid in gone or other.gpu.uuid in gone:
                pieces.append((f"{DASH:>6}", "dim"))
            else:
                pieces.append(_between(pages[row], mine.gpu.uuid, other.gpu.uuid, over))
        if mine.gpu.uuid in gone:
            word, tone = gone[mine.gpu.uuid]
            pieces.append((f"  {word}", tone))
        lines.append(pieces)
    for part in pages:
        if part is None or part.gpu.uuid in gone:
            continue
        down = [
            link.link.number for link in part.links if link.readings.get("link_state", 1.0) != 1.0
        ]
        if down:
            lines.append(
                [
                    (
                        f"{CROSS} gpu{part.gpu.index}: links {', '.join(map(str, down[:12]))} are down",
                        "crit",
                    )
                ]
            )
    lines.append([("wall ", "dim"), (watts(page.readings.get(readings.WALL)), "")])
    return lines


def _between(page: GpuPage | None, mine: str, other: str, over: dict[str, str]) -> Piece:
    if page is None:
        return "     …", "dim"
    direct = [link for link in page.links if link.link.peer == other]
    switch = [link for link in page.links if link.link.peer_kind == "switch"]
    for links, word in (
        (direct, "NV"),
        (switch if over.get(mine) and over.get(other) else [], "SW"),
    ):
        if links:
            states = [link.readings.get("link_state") for link in links]
            up, known = states.count(1.0), len(states) - states.count(None)
            if not known:  # so many there are; how they stand nobody tells
                return f"{f'{word}{len(links)}?':>6}", "dim"
            return f"{f'{word}{up}':>6}", "" if up == known else "crit"
    return ("   SW?" if over.get(mine) and over.get(other) else "   PHB"), "dim"
