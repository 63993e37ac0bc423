"""Rules for Prometheus: as generated, taken by promtool, and as good as our own on our own examples."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from alerts.rules.rule import Rule, load, read, words_of
from kilowatch.__main__ import main as cli
from kilowatch.prometheus.__main__ import FOLDER, files, main
from kilowatch.prometheus.rules import AlertRule, Untranslated, alert_of, translate
from kilowatch.prometheus.self_alerts import WATCHES, group
from kilowatch.prometheus.text import groups, rule_file
from kilowatch.prometheus.timelines import APART, UNPLAYED, timelines
from kilowatch.prometheus.vectors import NotExpressible
from tests.alerts.test_rules import exact_rules

MADE, LEFT = translate(load())
PLAYED = [alert for alert in MADE if alert.rule.name not in UNPLAYED]
STAY = {"nodes_silent", "busy_node_silent", "recovery_told", "ecc_repeat", "xid_app_repeat", "ecc_outlier", "pcie_outlier",
        "nvlink_outlier", "board_repeat", "slot_repeat", "job_idle", "job_gpu_unused", "process_outside", "job_loads_circuit",
        "job_stalled", "job_deadlocked", "job_slow_gpu", "job_hit", "port_gone", "port_counters_full", "nvswitch_links",
        "cooling_drift"}  # fmt: skip
"""Rules that PromQL can't say; each of the others is played below."""

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run it and wait for its end."""
    command = ["promtool", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def played(folder: Path, alert: AlertRule, numbers: set[int]) -> list[str]:
    """What promtool finds wrong with some of the examples of a rule; "" where all is well."""
    rules = folder / "rules.json"  # JSON is YAML too
    found = groups([alert], "https://runbook")
    for each in found:
        each.pop("interval", None)  # work everything out at every step
    rules.write_text(json.dumps({"groups": found}))
    by_step: defaultdict[int, list[Any]] = defaultdict(list)
    for timeline in timelines(alert):
        if timeline.number + 1 in numbers:
            by_step[timeline.every].append(timeline.body)
    wrong = []
    for step, bodies in by_step.items():
        file = folder / f"every-{step}.json"
        file.write_text(json.dumps({"rule_files": [rules.name], "evaluation_interval": f"{step}s", "tests": bodies}))
        done = promtool("test", "rules", file)
        wrong += [done.stdout + done.stderr] if done.returncode else []
    return wrong


@needs_promtool
@pytest.mark.parametrize("alert", PLAYED, ids=lambda alert: alert.rule.name)
def test_every_example_of_a_rule_comes_out_in_prometheus_too(alert: AlertRule, tmp_path: Path) -> None:
    apart = set(APART.get(alert.rule.name, ((), ""))[0])
    same = {number + 1 for number in range(len(alert.rule.example))} - apart
    assert played(tmp_path, alert, same) == []


@needs_promtool
@pytest.mark.parametrize("name", sorted(APART))
def test_what_is_said_to_come_out_otherwise_does(name: str, tmp_path: Path) -> None:
    numbers, why = APART[name]
    alert = next(alert for alert in MADE if alert.rule.name == name)
    assert why.endswith(".")
    for number in numbers:
        assert played(tmp_path, alert, {number}), f"{name} {number} is the same now"


def test_most_steps_of_all_examples_are_compared() -> None:
    """A test that leaves everything out would pass too. Not compared: hours without load, and the rules
    that PromQL can't say."""
    made = {alert.rule.name for alert in MADE}
    rules = [rule for rule in load() if rule.load is None and rule.name in made]
    assert len(rules) > 0.8 * len(load())
    steps = sum(len(words_of(example.then)) for rule in rules for example in rule.example)
    checked = 0
    fires = set()
    for alert in PLAYED:
        apart = APART.get(alert.rule.name, ((), ""))[0]
        for timeline in timelines(alert):
            if timeline.number + 1 not in apart:
                expected: Any = timeline.body["promql_expr_test"]
                checked += len(expected) if alert.rule.load is None else 0
                if any("firing" in str(one["exp_samples"]) for one in expected):
                    fires.add(alert.rule.name)
    assert checked > 0.55 * steps, (checked, steps)
    gapped = {"recovery_overdue"}  # a gap comes before they fire
    assert fires == {alert.rule.name for alert in PLAYED} - gapped


def test_few_rules_stay_with_us_and_each_says_why() -> None:
    assert {left.rule.name for left in LEFT} == STAY
    assert all(left.reason for left in LEFT)
    text = files()["kilowatch.rules.yml"]
    assert all(f"{left.rule.name}: {left.reason}" in text for left in LEFT)


def test_what_is_checked_in_is_what_the_generator_makes(tmp_path: Path) -> None:
    assert main(["--check"]) == 0
    assert main(["--check"], tmp_path) == 1
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0


@needs_promtool
def test_promtool_takes_the_shipped_files() -> None:
    done = promtool("check", "rules", *FOLDER.glob("*.rules.yml"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sum(map(int, re.findall(r"(\d+) rules found", done.stdout))) > len(MADE)


@pytest.mark.skipif(shutil.which("jsonnet") is None, reason="apt-get install jsonnet")
def test_the_mixin_has_all_of_it_under_the_usual_names() -> None:
    asked = """local m = (import 'mixin.libsonnet') + { _config+:: { runbookURL: 'https://r' } };
    { alerts: m.prometheusAlerts, rules: m.prometheusRules, boards: std.objectFieldsAll(m.grafanaDashboards) }"""
    done = subprocess.run(["jsonnet", "-J", FOLDER, "-e", asked], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    mixin = json.loads(done.stdout)
    alerts = [rule for group in mixin["alerts"]["groups"] for rule in group["rules"]]
    ours = {alert.rule.name for alert in MADE} | {watch.name for watch in WATCHES}
    assert {rule["alert"] for rule in alerts} == ours
    assert all(rule["annotations"]["runbook_url"].startswith("https://r#") for rule in alerts)
    assert [group["name"] for group in mixin["rules"]["groups"]] == ["kilowatch-records"]
    boards = FOLDER.parents[1] / "grafana" / "dashboards"
    theirs = [path.name for path in boards.glob("*.json") if "-influx-" not in path.name]
    assert mixin["boards"] == sorted(theirs)


OWN = """
[[rule]]
name = "{name}"
table = "{table}"
when = {when}
keep = 300
severity = "ticket"
remediation = "reset"
summary = "{{where}} {{value}}"
description = "d"
runbook = "r"
"""


def own(folder: Path, when: str, table: str = "gpu") -> Rule:
    """Return a rule of a user's own file."""
    path = folder / "own_rules.toml"
    path.write_text(OWN.format(name="own", table=table, when=when))
    (rule,) = read(path)
    return rule


@pytest.mark.parametrize(
    ("when", "expr"),
    [
        ('{ type = "above", metric = "gpu_power_watts", level = 500 }', "kilowatch_gpu_power_watts >= 500"),
        ('{ type = "expr", expr = "not (gpu_power_watts > 1 or gpu_utilization_ratio >= 0.5)" }',
         "(kilowatch_gpu_power_watts <= 1) and on (cluster, node, gpu, uuid) (kilowatch_gpu_utilization_ratio < 0.5)"),
        ('{ type = "expr", expr = "1 < gpu_power_watts < 2" }',
         "(1 < kilowatch_gpu_power_watts) and on (cluster, node, gpu, uuid) (kilowatch_gpu_power_watts < 2)"),
        ('{ type = "expr", expr = "gpu_power_watts > node_wall_power_watts / 2" }',
         "kilowatch_gpu_power_watts > on (cluster, node) group_left () (kilowatch_node_wall_power_watts / 2)"),
        ('{ type = "expr", expr = "max(gpu_power_watts, 100) > abs(-gpu_temperature_celsius)" }',
         "clamp_min(kilowatch_gpu_power_watts, 100) > abs(-kilowatch_gpu_temperature_celsius)"),
        ('{ type = "forecast", metric = "gpu_temperature_celsius", level = 90, within = 600, window = 900 }',
         "(predict_linear(kilowatch_gpu_temperature_celsius[15m], 600) >= 90 and kilowatch_gpu_temperature_celsius < 90)"
         " or (predict_linear(kilowatch_gpu_temperature_celsius[15m], 600) <= 90 and kilowatch_gpu_temperature_celsius > 90)"),
    ],
)  # fmt: skip
def test_rules_of_ones_own_are_said_too(when: str, expr: str, tmp_path: Path) -> None:
    assert alert_of(own(tmp_path, when)).expr == expr


@needs_promtool
def test_a_file_of_ones_own_is_taken_by_promtool(tmp_path: Path) -> None:
    rule = own(tmp_path, '{ type = "outlier", metric = "gpu_power_watts", above = 1.5, least = 50 }')
    file = tmp_path / "own.rules.yml"
    file.write_text(rule_file([rule], "https://r", "a test"))
    done = promtool("check", "rules", file)
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_cannot_be_said_is_refused_with_a_reason(tmp_path: Path) -> None:
    when = '{ type = "expr", expr = "gpu_power_watts > 1 or node_wall_power_watts > 2" }'
    with pytest.raises(NotExpressible, match="different things"):
        alert_of(own(tmp_path, when))
    when = '{ type = "in", metric = "monitor_bus_lost", values = [1] }'
    with pytest.raises(NotExpressible, match="exported apart"):
        alert_of(own(tmp_path, when, "monitor"))
    made, left = translate([own(tmp_path, '{ type = "repeats", xids = [13], count = 3, window = 60 }')])
    assert made == []
    assert isinstance(left[0], Untranslated)
    part = '{ type = "any", of = [{ type = "repeats", xids = [13], count = 3, window = 60 }, { type = "event", xids = [79] }] }'
    assert "left out: PromQL can't count single events" in alert_of(own(tmp_path, part)).notes[0]


@needs_promtool
def test_people_read_the_device_its_value_and_what_is_asked_for(tmp_path: Path) -> None:
    """A template that asks Prometheus for the serial number gets it."""
    alert = next(alert for alert in MADE if alert.rule.name == "gpu_lost")
    (tmp_path / "rules.json").write_text(json.dumps({"groups": groups([alert], "https://r")}))
    its = 'cluster="lab",node="n1",gpu="3",uuid="GPU-3"'
    info = f'kilowatch_gpu_info{{{its},name="H100",pci="0000:18:00.0",serial="1654"}}'
    test = {
        "rule_files": ["rules.json"],
        "evaluation_interval": "1m",
        "tests": [{
            "interval": "1m",
            "input_series": [
                {"series": f'kilowatch_gpu_unread{{{its},reason="device_lost"}}', "values": "1x5"},
                {"series": info, "values": "1x5"},
            ],
            "alert_rule_test": [{
                "eval_time": "2m", "alertname": "gpu_lost",
                "exp_alerts": [{
                    "exp_labels": {"severity": "critical", "subject": "gpu", "remediation": "reboot","cluster": "lab",
                                   "node": "n1", "gpu": "3", "uuid": "GPU-3"},
                    "exp_annotations": {
                        "summary": "GPU 3 of n1 has fallen off the bus",
                        "description": "Drain n1 and reboot it; if the GPU is lost again, have it replaced. "
                        "The driver no longer reaches this GPU (H100, 0000:18:00.0, serial 1654).",
                        "runbook_url": "https://r#gpu-lost",
                    },
                }],
            }],
        }],
    }  # fmt: skip
    (tmp_path / "test.json").write_text(json.dumps(test))
    done = promtool("test", "rules", tmp_path / "test.json")
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_command_prints_rules_of_ones_own(tmp_path: Path) -> None:
    own(tmp_path, '{ type = "above", metric = "gpu_power_watts", level = 500 }')
    path = tmp_path / "own_rules.toml"
    done = CliRunner().invoke(cli, ["rules", "prometheus", str(path), "--runbook", "https://r"])
    assert done.exit_code == 0, done.output
    assert "kilowatch_gpu_power_watts >= 500" in done.output
    assert 'runbook_url: "https://r#r"' in done.output
    assert "gpu_lost" not in done.output
    done = CliRunner().invoke(cli, ["rules", "prometheus"])
    assert "- alert: gpu_lost" in done.output
    path.write_text("[[rule]]\nname = 3\n")
    assert CliRunner().invoke(cli, ["rules", "prometheus", str(path)]).exit_code == 64


@needs_promtool
def test_the_shipped_configuration_of_prometheus_is_taken() -> None:
    done = promtool("check", "config", FOLDER / "prometheus.yml")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(shutil.which("amtool") is None, reason="apt-get install prometheus-alertmanager")
def test_the_shipped_configuration_of_alertmanager_is_taken_and_inhibits_as_we_do() -> None:
    file = FOLDER / "alertmanager.yml"
    done = subprocess.run(["amtool", "check-config", file], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{sum(len({one.within for one in rule.inhibits}) for rule in load())} inhibit rules" in done.stdout


WELL = {
    "kilowatch_aggregator_uptime_seconds": "0+15x40",
    "kilowatch_aggregator_bus_connected": "1x40",
    "kilowatch_aggregator_store_ok": "1x40",
    "kilowatch_aggregator_rules_seconds_count": "0+15x40",
    "kilowatch_influxdb_connected": "1x40",
    "kilowatch_influxdb_spool_points": "5x60",
    'kilowatch_channel_failing{channel="am",kind="alertmanager"}': "0x40",
}
"""Five minutes are well; then one of them is as said below."""
ILL = {
    "aggregator_down": ("kilowatch_aggregator_uptime_seconds", "0+15x20 stale", "7m"),
    "bus_lost": ("kilowatch_aggregator_bus_connected", "1x20 0x20", "6m30s"),
    "store_failing": ("kilowatch_aggregator_store_ok", "1x20 0x20", "6m30s"),
    "rules_failing": ("kilowatch_aggregator_rules_seconds_count", "0+15x20 300x20", "8m"),
    "influxdb_failing": ("kilowatch_influxdb_connected", "1x20 0x30", "11m"),
    "delivery_failing": ('kilowatch_channel_failing{channel="am",kind="alertmanager"}', "0x20 1x20", "5m30s"),
}


@needs_promtool
@pytest.mark.parametrize("name", [watch.name for watch in WATCHES])
def test_what_is_wrong_with_kilowatch_itself_is_seen_from_outside(name: str, tmp_path: Path) -> None:
    (tmp_path / "rules.json").write_text(json.dumps({"groups": [group("https://r")]}))
    series, values, late = ILL[name]
    given = WELL | {series: values}
    test = {
        "rule_files": ["rules.json"],
        "evaluation_interval": "15s",
        "tests": [
            {
                "interval": "15s",
                "input_series": [{"series": one, "values": its} for one, its in given.items()],
                "promql_expr_test": [
                    {"expr": 'count(ALERTS{alertstate="firing"})', "eval_time": "5m", "exp_samples": []},
                    {
                        "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
                        "eval_time": late,
                        "exp_samples": [{"labels": f'{{alertname="{name}"}}', "value": 1}],
                    },
                ],
            }
        ],
    }
    (tmp_path / "test.json").write_text(json.dumps(test))
    done = promtool("test", "rules", tmp_path / "test.json")
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
@pytest.mark.parametrize("constant", [0.2, 0.7, 1e-5], ids=str)
def test_a_reading_that_equals_a_constant_comes_out_in_prometheus_too(constant: float, tmp_path: Path) -> None:
    """Both compare it with the constant as the rule's author wrote it."""
    path = tmp_path / "exact.toml"
    path.write_text(exact_rules(constant))
    made, left = translate(read(path))
    assert left == []
    wrong = {alert.expr: found for alert in made if (found := played(tmp_path, alert, {1}))}
    assert wrong == {}


def test_a_constant_is_exported_with_all_its_digits(tmp_path: Path) -> None:
    when = '{ type = "rate", metric = "gpu_energy_joules_total", level = 1234567.5, window = 1234567 }'
    expr = "rate(kilowatch_gpu_energy_joules_total[1234567s]) >= 1234567.5"
    assert alert_of(own(tmp_path, when)).expr == expr
