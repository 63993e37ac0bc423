"""Everything at once: mosquitto, influxd, Prometheus, Alertmanager and kilowatch, as they are shipped.

Then every query of every board is asked of the real Prometheus and the real InfluxDB, and must return
series. The machines are simulated, and much goes wrong with them, so that each panel has something.
"""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import wire
from deploy.stack.servers import DEPLOY, PORTS, Stack, missing
from telemetry.files import local_token
from tests.aggregator.otlp_receiver import Otlp, by_grpc
from tests.brokers import free_port
from tests.grafana.dashboards import influx_queries, queries
from tests.influxes import Reply, Request, Scripted
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"apt-get install {' '.join(missing())}")

FAULTS = "xid79@dgx-02/3+4s,power_brake@dgx-01+8s:600s,node_loss@dgx-02+14s:600s"
POWER = """
[aggregator.remote_write]
url = "{hook}/write"
every_seconds = 2
[aggregator.otlp]
url = "{otlp}"
protocol = "grpc"
every_seconds = 2
[alerts.channels.hook]
type = "webhook"
url = "{hook}/take"
[alerts.heartbeat]
url = "{hook}/heard"
every = 10
[[expected]]
match = {{ node = "dgx-02" }}
gpus = 9
[power]
region = "US"
[power.circuits.a]
breaker = 20
volts = 208
poles = 3
wiring = "3ph-wye"
redundancy = {{ group = "rack", role = "A" }}
[power.circuits.c]
parent = "a"
breaker = 4.5
volts = 208
poles = 3
wiring = "3ph-wye"
[power.circuits.b]
breaker = 20
volts = 208
poles = 3
wiring = "3ph-wye"
redundancy = {{ group = "rack", role = "B" }}
[power.budgets.hall]
circuits = ["a", "b"]
kw = 20
kwh_month = 15000
[power.bill]
demand_charge = 11.5
[power.nodes.dgx-01]
profile = "dgx-h100"
cords = [{{ psu = "1-3", circuit = "c" }}, {{ psu = "4-6", circuit = "b" }}]
[power.nodes.dgx-02]
profile = "dgx-h100"
cords = [{{ psu = "1-3", circuit = "a" }}, {{ psu = "4-6", circuit = "b" }}]
"""
"""Two feeds that are too small, so that there are partners to lose, one of a node that is heard to the end, so that there is
a trip to foresee for as long as anybody asks; and a node that differs from what is declared."""


LATER = ("kilowatch_budget_energy_ratio", "kilowatch_budget_peak_watts")
"""A month is projected only after an hour, and has a peak only after a quarter of one; Prometheus must take
the queries all the same."""


def ask(url: str, **query: str) -> Any:
    """Ask a server for JSON."""
    with urllib.request.urlopen(f"{url}?{urllib.parse.urlencode(query)}", timeout=10) as answer:
        return json.loads(answer.read())


class Asked:
    """The servers of a stack, as a client sees them."""

    def __init__(self, url: Callable[[str], str], otlp: Otlp) -> None:
        self.url, self.otlp = url, otlp

    def prometheus(self, expr: str) -> list[Any]:
        """Series of an instant query; an error is one of ours."""
        try:
            found = ask(f"{self.url('prometheus')}/api/v1/query", query=expr)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expr}: {error.read().decode()}") from error
        return list(found["data"]["result"])

    def prometheus_lately(self, expr: str) -> list[Any]:
        """Series of a query over the last minutes: some have an answer for a moment only."""
        now = time.time()
        found = ask(
            f"{self.url('prometheus')}/api/v1/query_range",
            query=expr,
            start=f"{now - 300:.0f}",
            end=f"{now:.0f}",
            step="5",
        )
        return list(found["data"]["result"])

    def influx(self, query: str) -> list[Any]:
        """Series of a query."""
        found = ask(f"{self.url('influxd')}/query", db="kilowatch", q=query, epoch="ms")
        (result,) = found["results"]
        assert "error" not in result, f"{query}: {result}"
        return list(result.get("series", []))

    def alertmanager(self) -> set[str]:
        """Names of the alerts that it holds."""
        found = ask(f"{self.url('alertmanager')}/api/v2/alerts")
        return {alert["labels"]["alertname"] for alert in found}

    def acknowledge(self) -> None:
        """Acknowledge an incident that was sent, as a person does."""
        url = self.url("kilowatch")
        token = local_token.find(url)

        def sent() -> list[str]:
            """Return the keys of incidents that somebody was notified of."""
            keys = [one["key"] for one in ask(f"{url}/api/v1/incidents")["incidents"]]
            return [
                key
                for key in keys
                for event in ask(f"{url}/api/v1/incidents/{key}/timeline")["events"]
                if event["what"] == "told"
            ]

        wait_until(sent, "an incident that was sent", seconds=90)
        key = sent()[0]
        request = urllib.request.Request(
            f"{url}/api/v1/incidents/{key}/ack",
            json.dumps({"why": "seen"}).encode(),
            {"Content-Type": "application/json", "Authorization": f"Bearer {token}"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    def page(self) -> str:
        """The aggregator's own page of metrics."""
        with urllib.request.urlopen(f"{self.url('kilowatch')}/metrics", timeout=10) as answer:
            return str(answer.read().decode())


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asked]:
    """A running stack whose machines have faults and whose circuits are too small."""
    with by_grpc() as otlp:
        yield from _running(tmp_path_factory.mktemp("stack"), otlp)


def _running(folder: Path, otlp: Otlp) -> Iterator[Asked]:
    hook = Scripted(take)
    shipped = (DEPLOY / "stack" / "kilowatch.toml").read_text()
    text = shipped[: shipped.index("[power]")] + POWER.format(hook=hook.url, otlp=otlp.url)
    ports = {name: free_port() for name in PORTS}
    running = Stack(folder, ports, "1s", FAULTS, {"kilowatch.toml": text})
    try:
        running.start()
        asked = Asked(running.url, otlp)
        wait_until(lambda: len(asked.prometheus('up{job="kilowatch"} == 1')) == 2, "both nodes")
        yield asked
        running.check()
    except BaseException:
        for log in folder.glob("*.log"):
            print(f"--- {log.name}\n{log.read_text()[-1500:]}")
        raise
    finally:
        running.stop()
        hook.close()


def take(_request: Request) -> Reply:
    """A pager that takes everything."""
    return Reply(200, "{}")


def all_return(asked: list[tuple[str, str]], ask_one: Callable[[str], list[Any]]) -> None:
    """Wait until each query has returned series once; fail with those that never did."""
    left = list(asked)

    def answered() -> bool:
        left[:] = [(where, query) for where, query in left if not ask_one(query)]
        return not left

    try:
        wait_until(answered, "series", seconds=90)
    except AssertionError:
        pytest.fail("nothing came of:\n" + "\n".join(f"{where}: {query}" for where, query in left))


def test_every_query_of_the_boards_returns_series_on_a_real_prometheus(stack: Asked) -> None:
    asked = list(queries("10s"))
    assert len(asked) > 130
    later = [query for _, query in asked if any(name in query for name in LATER)]
    assert [stack.prometheus(query) for query in later] == [[]] * len(LATER)
    asked = [(where, query) for where, query in asked if query not in later]
    # A rise is seen by whom the counter was read before it alone.
    counted = "kilowatch_alerts_outcomes_total"
    wait_until(lambda: stack.prometheus(counted), "counters of outcomes", seconds=90)
    stack.acknowledge()
    all_return(asked, stack.prometheus_lately)


def test_every_query_of_the_boards_returns_series_on_a_real_influxdb(stack: Asked) -> None:
    asked = list(influx_queries())
    assert len(asked) > 60
    stored = "kilowatch_aggregator_frames_stored_total > 0"
    wait_until(lambda: stack.prometheus(stored), "a frame in InfluxDB")  # its database too
    all_return(asked, stack.influx)


def read(url: str) -> bytes | None:
    """Return a page of metrics; None while it has nothing."""
    with contextlib.suppress(urllib.error.HTTPError), urllib.request.urlopen(url, timeout=10) as answer:
        page: bytes = answer.read()
        return page if len(page) > 1000 else None
    return None


def lint(url: str) -> tuple[int, list[str]]:
    """Return the status and the lines of promtool for a page of metrics, once there are readings on it: a simulator that had
    no processor for some seconds is a node that is silent."""
    page = wait_until(lambda: read(url), f"readings on {url}")
    command = ["promtool", "check", "metrics"]
    done = subprocess.run(command, input=page, capture_output=True, check=False)
    return done.returncode, (done.stdout + done.stderr).decode().splitlines()


def test_the_pages_are_clean_by_promtools_rules(stack: Asked) -> None:
    for path in ("/metrics", "/metrics/node/dgx-01", "/metrics/nodes"):
        assert lint(f"{stack.url('kilowatch')}{path}") == (0, []), path


def test_the_page_for_dcgms_boards_has_no_faults_but_dcgms_own_names(stack: Asked) -> None:
    """Labels such as modelName, and counters without _total: its boards ask for them so."""
    code, found = lint(f"{stack.url('kilowatch')}/metrics/dcgm/dgx-01")
    names = ("'snake_case' not 'camelCase'", 'should have "_total" suffix', "not include type 'counter'")
    assert code in {0, 3}  # 3: readable, but not by the rules
    assert [line for line in found if not line.endswith(names)] == []


def test_rules_in_prometheus_fire_for_what_kilowatch_pages_for(stack: Asked) -> None:
    """Both detect the lost GPU, and kilowatch sends it to Alertmanager."""
    fires = 'ALERTS{alertname="gpu_lost",alertstate="firing"}'
    wait_until(lambda: stack.prometheus(fires), "the alert in Prometheus")
    (alert,) = stack.prometheus(fires)
    assert (alert["metric"]["node"], alert["metric"]["gpu"]) == ("dgx-02", "3")
    wait_until(lambda: "gpu_lost" in stack.alertmanager(), "the alert in Alertmanager")
    groups = ask(f"{stack.url('prometheus')}/api/v1/rules")["data"]["groups"]
    rules = [rule for group in groups for rule in group["rules"]]
    assert len(rules) > 90
    wait_until(lambda: unwell(stack) == [], "all rules")


def unwell(stack: Asked) -> list[tuple[str, str]]:
    """Rules that the real Prometheus could not work out, with its words."""
    groups = ask(f"{stack.url('prometheus')}/api/v1/rules")["data"]["groups"]
    return [
        (rule["name"], rule.get("lastError", rule["health"]))
        for group in groups
        for rule in group["rules"]
        if rule["health"] != "ok"
    ]


def test_the_aggregator_pushes_where_it_is_told_to(stack: Asked) -> None:
    taken = "kilowatch_aggregator_remote_write_samples_total > 1000"
    wait_until(lambda: stack.prometheus(taken), "samples")
    assert stack.prometheus("kilowatch_aggregator_remote_write_dropped_total == 0")


def test_readings_and_events_arrive_by_otlp(stack: Asked) -> None:
    """The aggregator is as it is shipped, the receiver a gRPC server of the official service."""
    wait_until(lambda: any(each.name == "kilowatch.xid" for each in stack.otlp.records), "the XID")
    watts = {each.node for each in stack.otlp.points if each.name == "hw.power" and each.value > 0}
    assert watts == {"dgx-01", "dgx-02"}
    [xid] = [each for each in stack.otlp.records if each.name == "kilowatch.xid"]
    assert (xid.node, xid.attributes["kilowatch.xid"]) == ("dgx-02", 79)
    wait_until(lambda: stack.prometheus("kilowatch_aggregator_otlp_sent_total > 1000"), "its count")
    assert stack.prometheus("kilowatch_aggregator_otlp_dropped_total == 0")


def test_nodes_are_targets_with_up_and_instance(stack: Asked) -> None:
    found = stack.prometheus('up{job="kilowatch"}')
    assert {each["metric"]["instance"] for each in found} == {"dgx-01", "dgx-02"}
    assert {each["value"][1] for each in found} == {"1"}


def test_the_command_of_the_docs_brings_up_the_same_and_ends_it(tmp_path: Path) -> None:
    """`python -m deploy.stack`, with the shipped configuration and nothing else."""
    process = subprocess.Popen(
        [sys.executable, "-m", "deploy.stack", "--free-ports", "--scrape", "1s",
         "--faults", "xid79@dgx-02/3+3s", "--folder", tmp_path],
        cwd=DEPLOY.parent, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        lines: list[str] = []
        while not (lines and lines[-1].startswith("files")):
            lines.append(process.stdout.readline())
            assert lines[-1], process.communicate(timeout=60)
        said = "".join(lines)
        ports = {
            "kilowatch": re.search(r"kilowatch +http://127.0.0.1:(\d+)/healthz", said),
            "prometheus": re.search(r"Prometheus +http://127.0.0.1:(\d+)/targets", said),
            "alertmanager": re.search(r"Alertmanager +http://127.0.0.1:(\d+)", said),
            "influxd": re.search(r"InfluxDB +curl 'http://127.0.0.1:(\d+)/query", said),
        }
        found = {name: match[1] for name, match in ports.items() if match}
        assert set(found) == set(ports), said
        asked = Asked(lambda name: f"http://127.0.0.1:{found[name]}", Otlp())
        series = "kilowatch_gpu_power_watts"
        wait_until(lambda: len(asked.prometheus(series)) >= 15, "GPUs in Prometheus")
        each = 'SELECT last("gpu_power_watts") FROM "gpu" GROUP BY "uuid"'
        wait_until(lambda: len(asked.influx(each)) == 16, "GPUs in InfluxDB")
        wait_until(lambda: "gpu_lost" in asked.alertmanager(), "gpu_lost")
        assert 'kilowatch_cluster_nodes{cluster="stack",state="online"} 2' in asked.page()
    finally:
        process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)
    assert process.returncode == 0, output


def test_the_broker_asks_for_a_password(stack: Asked) -> None:
    """Another user of the machine can't publish readings of these nodes."""
    port = int(stack.url("mosquitto").rpartition(":")[2])
    with pytest.raises(ConnectionRefusedError):
        wire.connect("127.0.0.1", port, "stranger")
