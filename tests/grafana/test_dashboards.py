"""The dashboards are what the generator makes, well formed, and ask for what there is."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from grafana import build
from grafana.dashboard import Dashboard
from power.snapshot.quantities import QUANTITIES
from telemetry.catalogue import CATALOGUE
from telemetry.metric import Kind, Table
from tests.grafana.dashboards import ALL, METRIC, influx_queries, panels, queries

COUNTERS = {f"kilowatch_{metric.name}" for metric in CATALOGUE if metric.kind is Kind.COUNTER}
UNITS = {"amp", "bytes", "Bps", "celsius", "hertz", "kwatth", "none", "percentunit", "s", "short", "watt"}


def test_what_is_checked_in_is_what_the_generator_makes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert build.main(["--check"]) == 0
    monkeypatch.setattr(build, "FOLDER", tmp_path)
    assert build.main(["--check"]) == 1
    assert build.main([]) == 0
    assert build.main(["--check"]) == 0
    (tmp_path / "old.json").write_text("{}")
    assert build.main(["--check"]) == 1


@pytest.mark.parametrize("dashboard", ALL, ids=lambda dashboard: dashboard.uid)
def test_panels_have_numbers_of_their_own_and_do_not_lie_on_one_another(dashboard: Dashboard) -> None:
    made = dashboard.json()
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
    for dashboard, panel in panels():
        where = f"{dashboard}: {panel['title']}"
        assert panel["title"], dashboard
        assert panel["description"].endswith("."), where
        assert panel["fieldConfig"]["defaults"]["unit"] in UNITS, where
        assert panel["datasource"]["uid"] == "${datasource}", where
        assert panel["targets"], where
        assert len({target["refId"] for target in panel["targets"]}) == len(panel["targets"]), where


def test_titles_and_uids_are_unique() -> None:
    assert len({dashboard.uid for dashboard in ALL}) == len(ALL)
    assert len({dashboard.title for dashboard in ALL}) == len(ALL)


def test_no_board_is_of_one_maker() -> None:
    """The main readings of GPUs are asked for by names that amdgpu serves too, and no query names a model."""
    asked = [*queries(), *influx_queries()]
    assert not [where for where, expr in asked if re.search(r"nvidia|instinct|\bamd\b", expr, re.IGNORECASE)]
    text = "\n".join(expr for _, expr in asked)
    of_amd = {metric.name for metric in CATALOGUE if metric.table is Table.GPU and "amd" in metric.sources}
    shown = {name for name in of_amd if re.search(rf"\b(kilowatch_)?{name}\b", text)}
    assert shown >= {"gpu_power_watts", "gpu_temperature_celsius", "gpu_utilization_ratio", "gpu_memory_used_bytes", "gpu_ecc_volatile_uncorrected_total"}  # fmt: skip


def test_counters_are_only_shown_as_rates() -> None:
    counters = [
        (where, expr, name)
        for where, expr in queries()
        for name in METRIC.findall(expr)
        if name in COUNTERS or name.endswith("_total")
    ]
    assert counters
    for where, expr, name in counters:
        assert re.search(rf"(rate|increase)\([^()]*{name}\b", expr), where


def test_every_metric_that_a_board_asks_for_exists() -> None:
    ours = {f"kilowatch_{metric.name}" for metric in CATALOGUE}
    ours |= {f"kilowatch_{quantity.name}" for quantity in QUANTITIES}
    ours |= {f"kilowatch_{quantity.name}_total" for quantity in QUANTITIES}
    pages = (
        "kilowatch_node_", "kilowatch_cluster_", "kilowatch_aggregator_", "kilowatch_gpu_info", "kilowatch_gpu_present", "kilowatch_gpu_job_info", "kilowatch_gpu_holders",
        "kilowatch_alerts", "kilowatch_incidents_", "kilowatch_silences_", "kilowatch_deliveries_", "kilowatch_channel_",
        "kilowatch_heartbeat_", "kilowatch_event_", "kilowatch_circuit_info", "kilowatch_circuit_pole_amps",
    )  # fmt: skip
    for where, expr in queries():
        for name in METRIC.findall(expr):
            assert name in ours or name.startswith(pages), f"{where}: {name}"


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
def test_promtool_takes_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"check:query:{number}", "expr": expr} for number, (_, expr) in enumerate(queries())]
    file = tmp_path / "rules.json"  # JSON is YAML too
    file.write_text(json.dumps({"groups": [{"name": "dashboards", "rules": rules}]}))
    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules)} rules found" in done.stdout


def test_every_field_that_influxdb_is_asked_for_is_a_metric() -> None:
    known = {metric.name for metric in CATALOGUE}
    tags = {"cluster", "node", "gpu", "uuid", "model", "link", "kind", "code", "port", "text", "count", "events", "each", "joules"}  # fmt: skip
    asked = set()
    for where, query in influx_queries():
        for name in re.findall(r'(?<!AS )"(\w+)"', query):
            assert name in known | tags or name.removesuffix("_changes") in set(Table), where
            asked |= {name} & known
    assert len(asked) > 20


def test_links_lead_to_boards_and_panels_that_exist() -> None:
    uids = {dashboard.uid for dashboard in ALL}
    links = 0
    for dashboard, panel in panels():
        for override in panel["fieldConfig"]["overrides"]:
            for setting in override["properties"]:
                for link in setting["value"] if setting["id"] == "links" else ():
                    found = re.match(r"/d/([\w-]+)\?", link["url"])
                    assert found, (dashboard, link)
                    assert found[1] in uids, (dashboard, link)
                    assert "${__url_time_range}" in link["url"]
                    assert "var-datasource=${datasource}" in link["url"]
                    links += 1
    assert links >= 6


@pytest.mark.parametrize("dashboard", ALL, ids=lambda dashboard: dashboard.uid)
def test_a_board_keeps_the_rules_that_linters_of_boards_have(dashboard: Dashboard) -> None:
    made = dashboard.json()
    source, *variables = made["templating"]["list"]
    assert (source["name"], source["type"], source["query"]) == ("datasource", "datasource", dashboard.source.kind)
    for variable in variables:
        if variable["type"] == "textbox":
            assert float(variable["current"]["value"]) > 0
            continue
        assert variable["datasource"] == dashboard.source.json
        assert variable["refresh"] == 2, "choices follow the time that is shown"
        assert variable["multi"] is False or variable["allValue"] == ".*"
    marks = [mark["name"] for mark in made["annotations"]["list"]]
    assert marks[1:] == (["Pages", "XIDs"] if dashboard.source.kind == "prometheus" else ["XIDs"])
    (link,) = made["links"]
    assert link["tags"] == made["tags"]
    assert link["includeVars"]
    assert link["keepTime"]
    for panel in made["panels"]:
        if panel["type"] == "row":
            continue
        for target in panel["targets"]:
            assert target["datasource"] == dashboard.source.json
            expr = target.get("expr", "")
            for window in re.findall(r"(?:rate|increase|irate)\([^()]*\[([^\]]+)\]", expr):
                assert window in {"$__rate_interval", "5m", "1h", "24h"}, (panel["title"], window)
            if "query" in target:
                assert "$timeFilter" in target["query"], panel["title"]
        if panel["type"] == "state-timeline":
            (mapping,) = panel["fieldConfig"]["defaults"]["mappings"]
            assert len(mapping["options"]) >= 2


def test_a_state_is_shown_as_a_state_timeline_on_both_sources() -> None:
    shown = {dashboard for dashboard, panel in panels() if panel["type"] == "state-timeline"}
    assert {"kilowatch / Node", "kilowatch / GPU", "kilowatch / Alerts"} <= shown
    assert {"kilowatch / Node (InfluxDB)", "kilowatch / GPU (InfluxDB)"} <= shown


def test_provisioning_names_sources_of_the_kinds_that_boards_ask_for() -> None:
    folder = build.FOLDER.parent / "provisioning"
    text = (folder / "datasources" / "kilowatch.yaml").read_text()
    kinds = re.findall(r"^    type: (\w+)$", text, re.MULTILINE)
    assert set(kinds) == {dashboard.source.kind for dashboard in ALL}
    assert "dbName: kilowatch" in text
    assert "path: " in (folder / "dashboards" / "kilowatch.yaml").read_text()
