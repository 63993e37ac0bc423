"""One state has one word, on every screen; and what is not known is never called nothing."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from api.alerts import Alert, Incident, Matcher, Silence
from api.device import GpuPageReply, GpuReply, LinkReply, NodePageReply
from api.fleet import NodeReply
from api.power import RowsReply
from api.report import Report
from telemetry.devices import Gpu, Link, MemoryPool
from telemetry.text import counted
from tests.tui.test_lines import SECOND, line_text, state
from tui.kit.text import CROSS, DASH
from tui.screens.circuit import circuit_lines
from tui.screens.energy import energy_lines
from tui.screens.gpu import gpu_lines
from tui.screens.gpu import page_of as gpu_page_of
from tui.screens.incident import incident_lines
from tui.screens.node import node_lines, page_of
from tui.screens.pools import matrix_lines
from tui.state.circuits import Now
from tui.state.documents import BUDGETS, TODAY
from tui.state.incidents import silenced_until
from tui.tables.listing import MARKS, unread

NODE = NodeReply("rig", "online")
UNREAD = [
    (False, {}, f"{CROSS} LOST", "it has left the bus"),
    (True, {"gpu_power_watts": "device_lost"}, f"{CROSS} LOST", "it has left the bus"),
    (True, {"gpu_power_watts": "timed_out"}, f"{CROSS} HUNG", "the driver does not answer"),
    (True, {"gpu_power_watts": "stale"}, "▒ STALE", "nothing new has come"),
    (True, {"gpu_power_watts": "unknown"}, "▒ NO DATA", "why is not known"),
]


@pytest.mark.parametrize(("present", "gaps", "word", "why"), UNREAD, ids=lambda each: str(each)[:9])
def test_pages_of_a_gpu_and_its_node_show_the_same_status(
    present: bool, gaps: dict[str, str], word: str, why: str
) -> None:
    facts = Gpu(uuid="G0", index=0, name="H100", present=present)
    shown = state().with_doc(gpu_page_of("G0"), GpuPageReply(at=1, node=NODE, gpu=facts, gaps=gaps), 100.0)
    shown = shown.with_doc(page_of("rig"), NodePageReply(at=1, node=NODE, gpus=[GpuReply(facts, {}, gaps)]), 1.0)
    page = [line_text(line) for line in gpu_lines(shown, "G0", 900, 100, 30, utc=True)]
    assert f"{word}  {why}" in "\n".join(page)
    node = node_lines(shown, "rig", 900, 100, 30, Now(0.0), utc=True)
    row = next(line for line in map(line_text, node) if line.startswith("    0   "))
    assert row.endswith(word)
    assert unread(present, set(gaps.values()))[0] == word


def test_the_page_of_the_dashboard_has_every_status_word() -> None:
    docs = (Path(__file__).parents[2] / "docs/dashboard.md").read_text()
    words = {mark for mark, _ in MARKS.values()} | {word for *_, word, _ in UNREAD}
    assert not {word for word in words if f"`{word}`" not in docs}


def test_pages_show_what_has_not_come_yet() -> None:
    """Not that there is none of it."""
    bare = replace(state(), docs={})
    bare = bare.with_doc(page_of("rig"), NodePageReply(at=1, node=NODE), 1.0).with_doc(TODAY, Report(), 1.0)
    node = [line_text(line) for line in node_lines(bare, "rig", 900, 100, 30, Now(0.0), utc=True)]
    assert "circuits: loading …" in node
    assert [line_text(line) for line in incident_lines(bare, "k", 80, 20, utc=True)] == ["loading …"]
    past = (np.empty(0), np.empty(0))
    assert line_text(circuit_lines(bare, "a", past, Now(0.0), 80, 20, utc=True)[0]) == "loading …"
    budget = next(line for line in map(line_text, energy_lines(bare, 80, 30)) if "budget" in line)
    assert budget.split() == ["budget", "loading", "…"]
    none = bare.with_doc(BUDGETS, RowsReply(rows=[]), 1.0)
    budget = next(line for line in map(line_text, energy_lines(none, 80, 30)) if "budget" in line)
    assert budget.split() == ["budget", "none", "configured"]


def test_counts_are_words() -> None:
    assert [counted(n, "page") for n in (0, 1, 1250)] == ["0 pages", "1 page", "1,250 pages"]
    assert counted(2, "process") == "2 processes"


# -- Silences ------------------------------------------------------------------------------------


def alert(node: str, rule: str = "gpu_lost", state: str = "firing") -> Alert:
    """One of a GPU."""
    return Alert(f"{rule}/{node}", rule, state, "page", node, labels={"rack": "R1"})


def silence(ends: int, *conditions: Matcher, starts: int = 0) -> Silence:
    """One of ops, in seconds."""
    return Silence(id="s", matchers=conditions, who="ops", why="CHG-1", starts=starts * SECOND, ends=ends * SECOND)


NODE_A, RACK = Matcher("node", "a"), Matcher("rack", "R.*", is_regex=True)


@pytest.mark.parametrize(
    ("alerts", "silences", "until"),
    [
        ([alert("a")], [silence(300, NODE_A)], 300),
        ([alert("a")], [silence(300, NODE_A), silence(900, RACK)], 900),
        ([alert("a"), alert("b")], [silence(300, NODE_A)], None),
        ([alert("a"), alert("b")], [silence(300, NODE_A), silence(200, RACK)], 200),
        ([alert("a"), alert("b", state="resolved")], [silence(300, NODE_A)], 300),
        ([alert("a")], [silence(300, NODE_A, Matcher("rule", "x"))], None),
        ([alert("a")], [silence(300, Matcher("node", "a", is_equal=False))], None),
        ([alert("a")], [silence(90, NODE_A)], None),
        ([alert("a")], [silence(300, NODE_A, starts=200)], None),
        ([], [silence(300)], None),
    ],
    ids=["one", "longest", "half", "each", "resolved", "rule", "other", "over", "to come", "empty"],
)
def test_an_incident_is_silenced_where_all_that_fires_is(
    alerts: list[Alert], silences: list[Silence], until: int | None
) -> None:
    found = silenced_until(
        Incident(key="k", severity="page", title="t", began=0, alerts=alerts), silences, 100 * SECOND
    )
    assert found == (None if until is None else until * SECOND)


# -- The matrix of a node ------------------------------------------------------------------------


def test_the_matrix_has_no_links_of_a_gpu_that_is_lost() -> None:
    """And counts as up only links that say so."""
    rows = [Gpu(uuid=f"G{n}", index=n, name="H100", present=n != 1) for n in range(4)]
    parts = [GpuReply(row, {"gpu_power_watts": 1.0} if row.present else {}) for row in rows]
    states = {"G0": {"link_state": 1.0}, "G2": {"link_state": 0.0}, "G3": {}}
    shown = state().with_doc(
        page_of("rig"),
        NodePageReply(at=1, node=NODE, gpus=parts, pools=[MemoryPool(gpus=tuple(r.uuid for r in rows), over="nvlink")]),
        1.0,
    )
    for row in rows:
        links = [
            LinkReply(
                Link(gpu=row.uuid, number=number, peer_kind="gpu", peer=other.uuid),
                states.get(row.uuid, {"link_state": 1.0}),
            )
            for number, other in enumerate(rows)
            if other is not row
        ]
        page = GpuPageReply(at=1, node=NODE, gpu=row, links=links)
        shown = shown.with_doc(gpu_page_of(row.uuid), page, 1.0)
    lines = [line_text(line) for line in matrix_lines(shown, "rig", 80)]
    assert lines[2].split() == ["gpu0", "X", DASH, "NV1", "NV1"]
    assert lines[3].split() == ["gpu1", DASH, "X", DASH, DASH, CROSS, "LOST"]
    assert lines[4].split() == ["gpu2", "NV0", DASH, "X", "NV0"]
    assert lines[5].split() == ["gpu3", "NV1?", DASH, "NV1?", "X"]
    down = [line for line in lines if "are down" in line]
    assert [line.split()[1] for line in down] == ["gpu2:"]
