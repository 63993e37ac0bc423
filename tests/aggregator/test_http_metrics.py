"""The pages for Prometheus: the cluster, the aggregator itself, one node, all nodes."""

from __future__ import annotations

import gzip
import shutil
import subprocess
from typing import Any

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator.store.executor import StoreExecutor
from api.alerts import Alert, AlertState, Severity
from telemetry.errors import StoreError
from tests.aggregator.fake_view import FakeView, MemoryStore, inventory, readings
from tests.aggregator.http_client import Door, door, small_cluster

needs_promtool = pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")


def lint(page: str) -> str:
    """Return what promtool has to say; "" and exit status 0 when the page is clean."""
    done = subprocess.run(["promtool", "check", "metrics"], input=page.encode(), capture_output=True, check=False)
    return (done.stdout + done.stderr).decode() + (f"rc {done.returncode}" * bool(done.returncode))


def samples(page: str) -> dict[str, list[tuple[dict[str, str], float]]]:
    """Read a page with Prometheus' own parser."""
    found: dict[str, list[tuple[dict[str, str], float]]] = {}
    for family in text_string_to_metric_families(page):
        for sample in family.samples:
            found.setdefault(sample.name, []).append((sample.labels, sample.value))
    return found


async def page(client: Door, path: str) -> str:
    """Return a page that must be there, in the content type that Prometheus asks for."""
    status, body, headers = await client.text(path)
    assert status == 200
    assert headers["Content-Type"] == "text/plain; version=0.0.4; charset=utf-8"
    return body


async def test_the_cluster_page_sums_what_is_known() -> None:
    """Nodes and GPUs by state, watts, degrees; a GPU that is gone counts as lost."""
    view = await small_cluster()
    gone = inventory("n3")
    gpus = (gone.gpus[0], msgspec.structs.replace(gone.gpus[1], present=False))
    view.add(msgspec.structs.replace(gone, gpus=gpus, kilowatch="1.0"))
    known = gone.kilowatch
    view.fleet.nodes["n2"].online = False
    view.raised = [Alert(key="a/n1/", rule="a", state=AlertState.FIRING, severity=Severity.PAGE, node="n1")]
    async with door(view) as client:
        found = samples(await page(client, "/metrics"))
    nodes = {labels["state"]: value for labels, value in found["kilowatch_cluster_nodes"]}
    assert nodes == {"online": 1, "stale": 1, "offline": 1, "unheard": 0}
    of_release = found["kilowatch_cluster_nodes_by_release"]
    assert {own["release"]: n for own, n in of_release} == {"1.0": 1, known: 2}
    gpus_by = {labels["state"]: value for labels, value in found["kilowatch_cluster_gpus"]}
    assert gpus_by == {"reporting": 4, "silent": 1, "lost": 1}
    ((labels, watts),) = found["kilowatch_cluster_gpu_power_watts"]
    assert labels == {"cluster": "lab", "model": "NVIDIA H100 80GB HBM3"}
    assert watts == 2 * (300.25 + 301.25)
    assert found["kilowatch_cluster_gpu_power_known"][0][1] == 4
    assert found["kilowatch_cluster_wall_power_watts"] == [({"cluster": "lab"}, 2 * 5123.5)]
    assert found["kilowatch_cluster_gpu_temperature_max_celsius"][0][1] == 61
    alerts = {(own["state"], own["severity"]): n for own, n in found["kilowatch_cluster_alerts"]}
    assert alerts["firing", "page"] == 1
    assert alerts["pending", "info"] == 0  # there before it happens


async def test_what_is_stale_is_in_no_sum() -> None:
    """Old watts are no watts: the series end."""
    view = await small_cluster()
    view.monotonic += 4
    async with door(view) as client:
        found = samples(await page(client, "/metrics"))
    assert {own["state"]: n for own, n in found["kilowatch_cluster_gpus"]}["silent"] == 4
    assert found["kilowatch_cluster_gpu_power_known"][0][1] == 0
    assert "kilowatch_cluster_wall_power_watts" not in found
    assert "kilowatch_cluster_gpu_temperature_max_celsius" not in found


async def test_the_aggregator_tells_of_itself() -> None:
    """Every counter of `Stats`, the store's size, and the process."""
    view = await small_cluster()
    view.stats.dropped = {"oversize": 3, "strange": 1}
    view.stats.refused = {"n1": {"malformed": 2}, "(unknown)": {"foreign": 7}}
    view.stats.holes_open = 5
    view.stats.lag.add(0.25)
    async with door(view) as client:
        found = samples(await page(client, "/metrics"))
    dropped = {own["reason"]: n for own, n in found["kilowatch_aggregator_messages_dropped_total"]}
    assert dropped == {"malformed": 0, "oversize": 3, "foreign": 0, "schema": 0, "budget": 0, "strange": 1}
    refused = found["kilowatch_aggregator_messages_refused_total"]
    assert refused == [({"node": "(unknown)", "reason": "foreign"}, 7.0), ({"node": "n1", "reason": "malformed"}, 2.0)]
    single = {
        "kilowatch_aggregator_frames_received_total": 2,
        "kilowatch_aggregator_frames_stored_total": 2,
        "kilowatch_aggregator_holes_open": 5,
        "kilowatch_aggregator_bus_connected": 1,
        "kilowatch_aggregator_lag_seconds_count": 1,
        "kilowatch_aggregator_lag_seconds_sum": 0.25,
        "kilowatch_aggregator_lag_last_seconds": 0.25,
        "kilowatch_aggregator_stream_viewers": 0,
    }
    assert {name: found[name][0][1] for name in single} == single
    parts = {own["part"]: n for own, n in found["kilowatch_aggregator_store_bytes"]}
    assert parts["hot"] > 0
    assert "version" in found["kilowatch_build_info"][0][0]
    for name in ("resident_memory_bytes", "cpu_seconds_total", "open_fds"):
        assert found[f"process_{name}"][0][1] > 0


async def test_a_store_that_fails_costs_only_its_size() -> None:
    """The page is most needed then."""

    class Failing(MemoryStore):
        def size(self) -> dict[str, int]:
            raise StoreError("disk full")

    view = FakeView()
    view.store = StoreExecutor(Failing(), view.stats)
    async with door(view) as client:
        found = samples(await page(client, "/metrics"))
    assert "kilowatch_aggregator_store_bytes" not in found
    assert "kilowatch_aggregator_store_memory_bytes" not in found
    assert "kilowatch_aggregator_frames_received_total" in found


@needs_promtool
@pytest.mark.parametrize("path", ["/metrics", "/metrics/node/n1", "/metrics/nodes"])
async def test_promtool_finds_nothing_to_say_about(path: str) -> None:
    """Names, types and help by Prometheus' conventions."""
    view = await small_cluster()
    view.stats.messages = {"frame": 2, "status": 1}
    async with door(view) as client:
        assert lint(await page(client, path)) == ""


async def test_a_nodes_page_has_its_readings_and_no_gaps() -> None:
    """Short numbers, exact counters, facts as labels."""
    view = await small_cluster()
    async with door(view) as client:
        text = await page(client, "/metrics/node/n1")
    assert "NaN" not in text
    assert "nan" not in text
    assert "gpu_fan_speed_ratio" not in text  # not supported
    gpu = 'cluster="lab",node="n1",gpu="0",uuid="GPU-n1-0"'
    lines = text.splitlines()
    assert f"kilowatch_gpu_power_watts{{{gpu}}} 300.25" in lines
    assert f"kilowatch_gpu_utilization_ratio{{{gpu}}} 0.67" in lines
    assert f"kilowatch_gpu_memory_total_bytes{{{gpu}}} 85520809984" in lines
    assert f"kilowatch_gpu_sm_clock_hertz{{{gpu}}} 2505000000" in lines
    assert f"kilowatch_gpu_energy_joules_total{{{gpu}}} 123456789.125" in lines
    assert f'kilowatch_link_state{{{gpu},link="1"}} 1' in lines
    assert 'kilowatch_node_up{cluster="lab",node="n1"} 1' in lines
    assert 'kilowatch_node_wall_power_watts{cluster="lab",node="n1"} 5123.5' in lines
    found = samples(text)
    assert found["kilowatch_gpu_info"][0][0]["serial"] == "160000"
    assert "n2" not in text


async def test_a_gpu_that_is_gone_leaves_only_the_word_that_it_is_gone() -> None:
    """Its series end in Prometheus at the next scrape."""
    view = await small_cluster()
    what = view.fleet.nodes["n1"].inventory
    gpus = (what.gpus[0], msgspec.structs.replace(what.gpus[1], present=False))
    view.add(msgspec.structs.replace(what, gpus=gpus))
    view.put("n1", _without_gpu(what), 1)
    async with door(view) as client:
        text = await page(client, "/metrics/node/n1")
    about = [line for line in text.splitlines() if 'gpu="1"' in line and "link=" not in line]
    its = 'cluster="lab",node="n1",gpu="1",uuid="GPU-n1-1"'
    assert about == [f"kilowatch_gpu_present{{{its}}} 0", f'kilowatch_gpu_unread{{{its},reason="device_lost"}} 1']


def _without_gpu(what: Any) -> dict[int, list[list[float]]]:
    from telemetry.gap import DEVICE_LOST
    from telemetry.metric import Table
    from telemetry.wire.schema import SCHEMA

    blocks = readings(what, 1)
    for number, block in enumerate(SCHEMA.blocks):
        if block.table is Table.GPU:
            blocks[number][1] = [DEVICE_LOST] * len(block.names)
        if block.table is Table.INSTANCE:  # its only one
            blocks[number] = [[DEVICE_LOST] * len(block.names) for _ in what.instances]
    return blocks


async def test_a_stale_node_only_says_that_it_is_down_and_when_it_was_last_seen() -> None:
    """200, for the scrape worked; the node did not."""
    view = await small_cluster()
    sampled = view.fleet.nodes["n1"].sampled_at / 1e9
    view.monotonic += 4
    async with door(view) as client:
        found = samples(await page(client, "/metrics/node/n1"))
    assert {name: series[0][1] for name, series in found.items()} == {
        "kilowatch_node_up": 0.0,
        "kilowatch_node_last_frame_timestamp_seconds": sampled,
        "kilowatch_node_frame_interval_seconds": 1.0,
        "kilowatch_node_clock_skew_seconds": 0.0,
        "kilowatch_node_ended": 0.0,
    }


async def test_a_node_that_is_not_there_is_answered_with_the_nearest() -> None:
    """404, and a suggestion."""
    async with door(await small_cluster()) as client:
        status, body = await client.json("/metrics/node/n11")
        assert status == 404
        assert body["error"]["cure"] == "Did you mean 'n1'?"
        status, body = await client.json("/metrics/node/n1?labels=devices")
        assert (status, body["error"]["where"]) == (400, "labels")


async def test_large_pages_are_gzipped_when_asked_for() -> None:
    """Level 1: five times faster than the usual level, and a third larger."""
    view = await small_cluster()
    async with door(view) as client:
        plain = await page(client, "/metrics/node/n1")
        async with client.session.get(
            client.url + "/metrics/node/n1", headers={"Accept-Encoding": "gzip"}, auto_decompress=False
        ) as answer:
            assert answer.headers["Content-Encoding"] == "gzip"
            body = await answer.read()
        async with client.session.get(
            client.url + "/metrics/node/n1", headers={"Accept-Encoding": "gzip;q=0"}
        ) as answer:
            assert "Content-Encoding" not in answer.headers
    assert gzip.decompress(body).decode() == plain
    assert len(body) < len(plain) / 5


async def test_all_nodes_are_on_one_page_unless_they_are_too_many() -> None:
    """A fleet of 200 MB of text is scraped node by node."""
    view = await small_cluster()
    async with door(view) as client:
        text = await page(client, "/metrics/nodes")
        assert text.count("# TYPE kilowatch_gpu_power_watts ") == 1
        assert text.count("\nkilowatch_gpu_power_watts{") == 4
        for number in range(3):
            view.fleet.place(inventory(f"wide{number}", gpus=5000, links=0))
        status, body = await client.json("/metrics/nodes")
    assert status == 413
    assert "/sd/prometheus" in body["error"]["cure"]
