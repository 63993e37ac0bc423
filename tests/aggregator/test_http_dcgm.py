"""The page with dcgm-exporter's names: right numbers, and Grafana's board 12239 finds its series."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator.http.config import HttpConfig
from aggregator.http.dcgm import COUNTERS
from docs.dcgm_names import NOT_SERVED
from telemetry.catalogue import BY_NAME
from telemetry.devices import Event
from telemetry.metric import Kind, Table
from telemetry.wire.jobs import JobKey
from tests.aggregator.fake_view import START
from tests.aggregator.http_client import door, small_cluster
from tests.aggregator.test_http_jobs import shared
from tests.aggregator.test_http_prometheus import discovering, prometheus, until

BOARD_12239 = (
    'DCGM_FI_DEV_GPU_TEMP{instance=~"n1|n2", gpu=~"0|1"}',
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"n1|n2", gpu=~"0|1"})',
    'DCGM_FI_DEV_POWER_USAGE{instance=~"n1|n2", gpu=~"0|1"}',
    'sum(DCGM_FI_DEV_POWER_USAGE{instance=~"n1|n2", gpu=~"0|1"})',
    'DCGM_FI_DEV_SM_CLOCK{instance=~"n1|n2", gpu=~"0|1"} * 1000000',
    'DCGM_FI_DEV_GPU_UTIL{instance=~"n1|n2", gpu=~"0|1"}',
    'DCGM_FI_DEV_FB_USED{instance=~"n1|n2", gpu=~"0|1"}',
    'DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{instance=~"n1|n2", gpu=~"0|1"}',
)
"""What the board asks, with its variables filled in."""


def test_every_counter_is_a_metric_of_the_catalogue() -> None:
    assert {counter.metric for counter in COUNTERS} <= set(BY_NAME)
    names = [counter.name for counter in COUNTERS]
    assert len(set(names)) == len(names)
    for counter in COUNTERS:
        if BY_NAME[counter.metric].kind is Kind.COUNTER:
            assert counter.kind == "counter", counter.name


def test_what_is_under_our_name_only_is_of_the_catalogue_and_not_served() -> None:
    """Of adapters' ports too, for which dcgm-exporter has no names."""
    wanted = {name for each in NOT_SERVED for name in each.metrics}
    assert wanted <= set(BY_NAME)
    assert {BY_NAME[name].table for name in wanted} >= {Table.PORT, Table.LINK, Table.NODE}
    assert not {each.name for each in NOT_SERVED} & {counter.name for counter in COUNTERS}


async def test_units_and_labels_are_the_exporters() -> None:
    view = await small_cluster()
    view.happened = [
        Event(id="7-2", node="n1", at=START, kind="xid", gpu="GPU-n1-1", data={"xid": 79}),
        Event(id="7-1", node="n1", at=START, kind="xid", gpu="GPU-n1-1", data={"xid": 13}),
    ]
    async with door(view) as client:
        status, text, headers = await client.text("/metrics/dcgm/n1")
        assert (status, headers["Content-Type"][:10]) == (200, "text/plain")
        found = {
            (sample.name, sample.labels["gpu"]): sample
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        watts = found["DCGM_FI_DEV_POWER_USAGE", "0"]
        assert watts.value == 300.25
        assert watts.labels == {
            "gpu": "0",
            "UUID": "GPU-n1-0",
            "pci_bus_id": "00000000:01:00.0",
            "device": "nvidia0",
            "modelName": "NVIDIA H100 80GB HBM3",
            "Hostname": "n1",
            "DCGM_FI_DRIVER_VERSION": "595.10",
        }
        assert found["DCGM_FI_DEV_GPU_UTIL", "0"].value == pytest.approx(67)
        assert found["DCGM_FI_DEV_SM_CLOCK", "0"].value == 2505
        assert found["DCGM_FI_DEV_FB_USED", "0"].value == pytest.approx(40e9 / 2**20, rel=1e-6)
        energy = next(s for (name, gpu), s in found.items() if "ENERGY" in name and gpu == "0")
        assert energy.value == pytest.approx(123_456_789_125)
        last = found["DCGM_FI_DEV_XID_ERRORS", "1"]
        assert (last.value, last.labels["err_code"]) == (79, "79")
        assert found["DCGM_FI_DEV_XID_ERRORS", "0"].labels["err_msg"] == "No Error"

        _, text, _ = await client.text("/metrics/dcgm/n1?host_label=hostname")
        assert 'hostname="n1"' in text
        assert "Hostname" not in text
        assert (await client.json("/metrics/dcgm/n1?host_label=HOST"))[0] == 400
        assert (await client.json("/metrics/dcgm/n9"))[0] == 404
        _, targets = await client.json("/sd/dcgm?host_label=hostname")
        assert targets[0]["labels"]["__metrics_path__"] == "/metrics/dcgm/n1"
        assert targets[0]["labels"]["__param_host_label"] == "hostname"

        view.fleet.nodes["n1"].online = False
        assert (await client.text("/metrics/dcgm/n1"))[1] == ""


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
async def test_every_query_of_board_12239_answers_on_a_real_prometheus(tmp_path: Path) -> None:
    view = await small_cluster()
    async with (
        door(view) as client,
        prometheus(tmp_path, discovering(client, "/sd/dcgm")) as server,
    ):

        async def both() -> bool:
            found = await server.query("DCGM_FI_DEV_GPU_TEMP")
            return {labels["instance"] for labels, _ in found} == {"n1", "n2"}

        await until(view, both)
        for query in BOARD_12239:
            found = await server.query(query)
            assert len(found) == (1 if query.startswith(("avg(", "sum(")) else 4), query
        (total,) = await server.query(BOARD_12239[3])
        each = await server.query(BOARD_12239[2])
        assert total[1] == pytest.approx(sum(value for _, value in each))


async def test_readings_have_the_labels_of_the_only_job_on_their_gpu_where_asked_for(
    tmp_path: Path,
) -> None:
    view, site = shared()  # GPU 2 has two holders
    site.fleet.nodes["n0"].online = True
    pod = JobKey("kubernetes", "", "team/train-0")
    message = view.jobs.lists["n0"]
    held = [msgspec.structs.replace(each, job=pod, step="main") if each.gpu == site.uuid(1) else each
            for each in message.allocations]  # fmt: skip
    view.jobs.lists["n0"] = msgspec.structs.replace(message, allocations=tuple(held))
    config = HttpConfig(listen="0.0.0.0:0", tokens_file=tmp_path / "t.json", anonymous_read=True)
    async with door(view, config) as client:

        async def power(asked: str, **headers: str) -> list[str]:
            text = (await client.text(f"/metrics/dcgm/n0{asked}", headers=headers))[1]
            return [
                line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_POWER_USAGE{")
            ]

        slurm, pods, both = await power("?job_labels=yes", **client.bearer)
        assert 'hpc_job="1"' in slurm
        assert {'namespace="team"', 'pod="train-0"', 'container="main"'} <= set(
            pods.split("{")[1].split("}")[0].split(",")
        )
        assert not {"hpc_job", "pod"} & {
            pair.split("=")[0] for pair in both.split("{")[1].split(",")
        }
        plain = await power("", **client.bearer)
        assert plain == await power("?job_labels=yes"), "who sees no persons sees no jobs"
        assert "hpc_job" not in "".join(plain)
        assert (await client.text("/metrics/dcgm/n0?job_labels=x", headers=client.bearer))[0] == 400
