"""The boards are what the generator makes, well formed, and ask for what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from grafana import build
from grafana.board import Board
from grafana.boards import BOARDS
from power.quantities import QUANTITIES
from telemetry.catalogue import CATALOGUE
from telemetry.metric import Kind
from tests.grafana.boards import METRIC, filled, panels, queries

COUNTERS = {f"kilowatch_{metric.name}" for metric in CATALOGUE if metric.kind is Kind.COUNTER}
UNITS = {
    "amp", "bytes", "Bps", "celsius", "hertz", "kwatth", "none", "percentunit", "s", "short", "watt",
}  # fmt: skip


def test_what_is_checked_in_is_what_the_generator_makes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert build.main(["--check"]) == 0
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    assert build.main(["--check"]) == 1
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
    (tmp_path / "old.json").write_text("{}")
    assert build.main(["--check"]) == 1


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_panels_have_numbers_of_their_own_and_do_not_lie_on_one_another(board: Board) -> None:
    made = board.json()
    assert made["schemaVersion"] == 41
    assert len(made["uid"]) <= 40
    ids = [panel["id"] for panel in made["panels"]]
    assert len(set(ids)) == len(ids)
    taken: Counter[tuple[int, int]] = Counter()
    for panel in made["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24, panel["title"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                taken[x, y] += 1
    assert max(taken.values()) == 1
    assert json.loads(json.dumps(made)) == made


def test_every_panel_says_what_it_shows_in_which_unit_from_which_source() -> None:
    for board, panel in panels():
        where = f"{board}: {panel['title']}"
        assert panel["title"], board
        assert panel["description"].endswith("."), where
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, where
        assert panel["datasource"]["uid"] == "${datasource}", where
        assert panel["targets"], where
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), where


def test_titles_and_uids_are_unique() -> None:
    assert len({board.uid for board in BOARDS}) == len(BOARDS)
    assert len({board.title for board in BOARDS}) == len(BOARDS)


def test_counters_are_only_shown_as_rates() -> None:
    for where, expr in queries():
        for name in METRIC.findall(expr):
            if name in COUNTERS or name.endswith("_total"):
                assert re.search(rf"(rate|increase)\([^()]*{name}\b", expr), where


def test_every_metric_that_a_board_asks_for_exists() -> None:
    ours = {f"kilowatch_{metric.name}" for metric in CATALOGUE}
    ours |= {f"kilowatch_{quantity.name}" for quantity in QUANTITIES}
    ours |= {f"kilowatch_{quantity.name}_total" for quantity in QUANTITIES}
    pages = (
        "kilowatch_node_", "kilowatch_cluster_", "kilowatch_aggregator_", "kilowatch_gpu_info", "kilowatch_gpu_present",
    )  # fmt: skip
    for where, expr in queries():
        for name in METRIC.findall(expr):
            assert name in ours or name.startswith(pages), f"{where}: {name}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
def test_promtool_takes_every_query(tmp_path: Path) -> None:
    rules = [
        {"record": f"check:query:{number}", "expr": expr}
        for number, (_, expr) in enumerate(queries())
    ]
    asked = {
        re.sub(r"label_values\((.*), \w+\)", r"\1", filled(variable["definition"]))
        for board in BOARDS
        for variable in board.json()["templating"]["list"]
        if variable["type"] == "query"
    }
    assert asked
    rules += [
        {"record": f"check:variable:{number}", "expr": expr}
        for number, expr in enumerate(sorted(asked))
    ]
    file = tmp_path / "rules.json"  # JSON is YAML too
    file.write_text(json.dumps({"groups": [{"name": "boards", "rules": rules}]}))
    done = subprocess.run(
        ["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout
