"""The page with dcgm-exporter's names: right numbers, and Grafana's board 12239 finds its series."""

from __future__ import annotations

import asyncio
import math
import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest
from prometheus_client.parser import text_string_to_metric_families

from aggregator.http.config import HttpConfig
from collector.page.metrics_page import dcgm_page
from collector.sampling.sampler import Newest
from collector.simulated import expected_rows, scenario
from collector.simulated.cluster import SimulatedCluster
from collector.simulated.inventory import inventory as simulated_inventory
from telemetry.devices import Event, MigInstance
from telemetry.errors import ConfigError
from telemetry.wire.dcgm import BESIDE, LISTED
from telemetry.wire.jobs import Allocation, Job, JobKey, NodeJobs
from telemetry.wire.schema import INSTANCE_SLOW, SCHEMA
from tests.aggregator.fake_view import START, FakeView
from tests.aggregator.http_client import door, small_cluster
from tests.aggregator.test_http_jobs import shared
from tests.aggregator.test_http_prometheus import Prometheus, discovering, prometheus, until
from tests.kit import waiting

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
        status, text, _ = await client.text("/metrics/dcgm/n1")
        assert status == 503
        assert "n1 is offline: none of its readings is of now" in text


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
async def test_every_query_of_board_12239_answers_on_a_real_prometheus(tmp_path: Path) -> None:
    view = await small_cluster()
    async with door(view) as client, prometheus(tmp_path, discovering(client, "/sd/dcgm")) as server:

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
        view.fleet.nodes["n1"].online = False

        async def down() -> bool:
            found = await server.query('up{job="kilowatch"}')
            return {labels["instance"]: value for labels, value in found} == {"n1": 0, "n2": 1}

        await until(view, down)


async def test_readings_have_the_labels_of_the_only_job_on_their_gpu(tmp_path: Path) -> None:
    view, site = shared()  # GPU 2 has two holders
    site.fleet.nodes["n0"].online = True
    pod = JobKey("kubernetes", "", "team/train-0")
    message = view.jobs.lists["n0"]
    held = [
        msgspec.structs.replace(each, job=pod, step="main") if each.gpu == site.uuid(1) else each
        for each in message.allocations
    ]
    view.jobs.lists["n0"] = msgspec.structs.replace(message, allocations=tuple(held))
    config = HttpConfig(listen="0.0.0.0:0", tokens_file=tmp_path / "t.json", anonymous_read=True)
    async with door(view, config) as client:

        async def power(asked: str, **headers: str) -> list[str]:
            text = (await client.text(f"/metrics/dcgm/n0{asked}", headers=headers))[1]
            return [line for line in text.splitlines() if line.startswith("DCGM_FI_DEV_POWER_USAGE{")]

        slurm, pods, both = await power("", **client.bearer)
        assert 'hpc_job="1"' in slurm
        assert {'namespace="team"', 'pod="train-0"', 'container="main"'} <= set(
            pods.split("{")[1].split("}")[0].split(",")
        )
        assert not {"hpc_job", "pod"} & {pair.split("=")[0] for pair in both.split("{")[1].split(",")}
        plain = await power("?job_labels=no", **client.bearer)
        assert "hpc_job" not in "".join(plain)
        assert plain == await power("?job_labels=yes") == await power(""), "who sees no persons sees no jobs"
        assert (await client.text("/metrics/dcgm/n0?job_labels=x", headers=client.bearer))[0] == 400


SCENE = scenario("two-dgx-h100", seed=3, faults="")
NODE = "dgx-01"
PODS = ("train-0", "train-1", "serve-a", "notebook")
"""Pods of one node: of two GPUs, of two, of one, and of a MIG instance."""
LABELS = {"team": "vision", "app.kubernetes.io/name": 'l"lm', "9": "nine", "gpu": "no", "err_code": "no", "pod": "no"}
"""Labels of the first pod."""
UNSUPPORTED = {
    "DCGM_FI_DEV_RETIRED_SBE", "DCGM_FI_DEV_RETIRED_DBE", "DCGM_FI_DEV_RETIRED_PENDING", "DCGM_FI_DEV_FAN_SPEED",
}  # fmt: skip
"""Names that an H100 has no reading for: it remaps rows, and has no fan of its own."""


class Dgx:
    """A node of eight GPUs, the last of them split in two by MIG, with four pods and a job of Slurm."""

    def __init__(self) -> None:
        self.view = FakeView()
        cluster = SimulatedCluster(SCENE)
        whole = simulated_inventory(cluster, cluster.node(NODE))
        last = msgspec.structs.replace(whole.gpus[7], mig=True)
        parts = tuple(
            MigInstance(uuid=f"MIG-{number}", gpu=last.uuid, gpu_instance=number, profile=profile)
            for number, profile in ((1, "3g.40gb"), (9, "1g.10gb"))
        )
        self.what = msgspec.structs.replace(
            whole, gpus=(*whole.gpus[:7], last), instances=parts, cluster="lab", session=7
        )
        self.view.add(self.what)
        self.second = 0
        self.rows: dict[int, list[list[float]]] = {}
        """Of the newest frame, by block."""
        uuids = [gpu.uuid for gpu in self.what.gpus]
        held = [
            *((PODS[0], uuids[gpu], None) for gpu in (0, 1)),
            *((PODS[1], uuids[gpu], None) for gpu in (2, 3)),
            (PODS[2], uuids[4], None),
            (PODS[3], uuids[7], 9),
        ]
        slurm = JobKey("slurm", "lab", "4711")
        keys = {name: JobKey("kubernetes", "", f"{'web' if name == PODS[2] else 'team'}/{name}") for name in PODS}
        message = NodeJobs(
            session=7,
            version=1,
            at=self.view.wall(),
            jobs=tuple(
                Job(key=key, user="ada", labels=LABELS if key == keys[PODS[0]] else {})
                for key in (*keys.values(), slurm)
            ),
            allocations=(
                *(Allocation(job=keys[name], gpu=gpu, instance=part, step="main", begin=1) for name, gpu, part in held),
                Allocation(job=slurm, gpu=uuids[5], begin=1),
            ),
        )
        self.view.jobs.receive(NODE, msgspec.json.encode(message), set(uuids), self.view.wall())
        for _ in self.view.jobs.steps(self.view.fleet, self.view.now(), self.view.wall()):
            pass

    async def beat(self) -> None:
        """Send the frame of the next second."""
        self.second += 1
        tick = SCENE.start_tick + 700 + self.second
        blocks = {
            number: expected_rows(SCENE, NODE, number, tick)
            for number in range(len(SCHEMA.blocks))
            if number != INSTANCE_SLOW
        }
        blocks[INSTANCE_SLOW] = [
            [0.25 + row / 4 if name.endswith("_ratio") else float(2**30) for name in SCHEMA.blocks[INSTANCE_SLOW].names]
            for row in range(2)
        ]
        self.view.monotonic += 1
        self.rows = blocks
        self.view.put(NODE, blocks, self.second)
        await self.view.flush()


async def test_a_node_of_eight_gpus_has_every_name_of_the_lists() -> None:
    """Each with a series a GPU, where the GPU has the reading; a split GPU has those of its instances."""
    dgx = Dgx()
    await dgx.beat()
    async with door(dgx.view) as client:
        _, text, _ = await client.text(f"/metrics/dcgm/{NODE}")
    found = {family.name: family for family in text_string_to_metric_families(text)}
    names = {line.split()[2]: line.split()[3] for line in text.splitlines() if line.startswith("# TYPE")}
    assert names == {each.name: each.kind for each in (*LISTED, *BESIDE) if each.name not in UNSUPPORTED}
    assert not [name for name, family in found.items() if len(family.samples) not in {8, 9}]
    pods = {
        (sample.labels["gpu"], sample.labels.get("GPU_I_ID"), sample.labels.get("namespace"), sample.labels.get("pod"),
         sample.labels.get("container"), sample.labels.get("hpc_job"))
        for sample in found["DCGM_FI_PROF_GR_ENGINE_ACTIVE"].samples
    }  # fmt: skip
    assert pods == {
        ("0", None, "team", "train-0", "main", None), ("1", None, "team", "train-0", "main", None),
        ("2", None, "team", "train-1", "main", None), ("3", None, "team", "train-1", "main", None),
        ("4", None, "web", "serve-a", "main", None), ("5", None, None, None, None, "4711"),
        ("6", None, None, None, None, None),
        ("7", "1", None, None, None, None), ("7", "9", "team", "notebook", "main", None),
    }  # fmt: skip


async def test_a_pods_own_labels_are_those_of_its_readings() -> None:
    """But for names that the device, the job or an XID has."""
    dgx = Dgx()
    await dgx.beat()
    async with door(dgx.view) as client:
        _, text, _ = await client.text(f"/metrics/dcgm/{NODE}")
        _, plain, _ = await client.text(f"/metrics/dcgm/{NODE}?job_labels=no")
    assert "vision" not in plain
    samples = [each for family in text_string_to_metric_families(text) for each in family.samples]
    labelled = [each.labels for each in samples if "team" in each.labels]
    assert {each["gpu"] for each in labelled} == {"0", "1"}
    assert {(each["pod"], each["team"], each["app_kubernetes_io_name"], each["_"]) for each in labelled} == {
        ("train-0", "vision", 'l"lm', "nine")
    }
    assert "no" not in {value for each in labelled for value in each.values()}
    assert len([each for each in samples if each.labels.get("err_code") == "0"]) == 8


POD_QUERIES = {
    'avg by (team, app_kubernetes_io_name) (DCGM_FI_DEV_GPU_UTIL{team="vision"})': 1,
    'sum by (namespace, pod) (DCGM_FI_DEV_POWER_USAGE{pod!=""})': 3,
    'avg by (namespace, pod, container) (DCGM_FI_DEV_GPU_UTIL{pod!=""})': 3,
    'sum by (pod) (DCGM_FI_DEV_FB_USED{pod!=""})': 4,
    'DCGM_FI_DEV_FB_USED{pod="notebook", GPU_I_PROFILE="1g.10gb"}': 1,
    'avg by (pod) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{pod!=""})': 4,
    'avg by (pod) (DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{pod!=""}) * 100': 4,
    'avg by (pod) (DCGM_FI_PROF_SM_OCCUPANCY{pod!=""})': 4,
    'avg by (pod) (DCGM_FI_PROF_DRAM_ACTIVE{pod!=""})': 4,
    'sum by (pod) (rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{pod!=""}[1m])) / 1000': 3,
    'sum by (pod) (DCGM_FI_PROF_PCIE_RX_BYTES{pod!=""})': 3,
    'sum by (pod) (rate(DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL{pod!=""}[1m]))': 3,
    'count by (namespace) (DCGM_FI_DEV_SM_CLOCK{namespace!=""})': 2,
    'sum by (pod) (DCGM_FI_DEV_FB_USED{pod!=""}) / on (pod) sum by (pod) (DCGM_FI_DEV_FB_USED{pod!=""} + DCGM_FI_DEV_FB_FREE{pod!=""})': 3,
    'topk(2, sum by (pod) (DCGM_FI_DEV_POWER_USAGE{pod!=""}))': 2,
    'avg_over_time(DCGM_FI_DEV_GPU_UTIL{pod="serve-a"}[1m])': 1,
    'group by (pod, UUID, modelName) (DCGM_FI_DEV_GPU_TEMP{pod!=""})': 5,
    'sum by (hpc_job) (DCGM_FI_DEV_POWER_USAGE{hpc_job!=""})': 1,
    'avg by (hpc_job) (DCGM_FI_PROF_SM_ACTIVE{hpc_job="4711"})': 1,
    'increase(DCGM_FI_DEV_POWER_VIOLATION{hpc_job!=""}[1m]) / 1e9': 1,
}
"""Queries of boards and rules by pod or job, with the number of series: written here, from names and labels alone."""
DEVICE_QUERIES = {
    'avg(DCGM_FI_DEV_GPU_TEMP{instance=~"dgx-.*", gpu=~"[0-9]+"})': 1,
    'sum(DCGM_FI_DEV_POWER_USAGE{Hostname="dgx-01"})': 1,
    'DCGM_FI_DEV_SM_CLOCK{gpu=~"0|1"} * 1000000': 2,
    "DCGM_FI_DEV_MEM_CLOCK * 1000000": 8,
    "DCGM_FI_DEV_MEMORY_TEMP > 20": 8,
    "DCGM_FI_DEV_MEM_COPY_UTIL": 8,
    "DCGM_FI_DEV_ENC_UTIL + DCGM_FI_DEV_DEC_UTIL": 8,
    'DCGM_FI_DEV_FB_USED{GPU_I_ID=""} / ignoring (err_code) (DCGM_FI_DEV_FB_USED{GPU_I_ID=""} + DCGM_FI_DEV_FB_FREE + DCGM_FI_DEV_FB_RESERVED)': 7,
    'max by (GPU_I_ID, GPU_I_PROFILE) (DCGM_FI_PROF_GR_ENGINE_ACTIVE{GPU_I_ID!=""})': 2,
    "rate(DCGM_FI_DEV_PCIE_TX_THROUGHPUT[1m]) * 1000": 8,
    "sum by (Hostname) (DCGM_FI_PROF_PCIE_TX_BYTES + DCGM_FI_PROF_PCIE_RX_BYTES)": 1,
    "increase(DCGM_FI_DEV_PCIE_REPLAY_COUNTER[1m]) >= 0": 8,
    'DCGM_FI_DEV_XID_ERRORS{err_code="79"} > 0': 1,
    "changes(DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS[1m]) == 0": 8,
    "DCGM_FI_DEV_ROW_REMAP_FAILURE == 0": 8,
    "increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[1m]) == 0": 8,
    "sum(rate(DCGM_FI_DEV_THERMAL_VIOLATION[1m])) by (gpu)": 8,
    "sum(DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL + DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL) by (gpu)": 8,
    "count by (modelName, DCGM_FI_DRIVER_VERSION) (DCGM_FI_DEV_GPU_TEMP)": 1,
    "DCGM_FI_DEV_POWER_USAGE / DCGM_FI_DEV_ENFORCED_POWER_LIMIT > 0": 8,
}
"""Queries of boards and rules by GPU and node."""


@pytest.mark.skipif(shutil.which("prometheus") is None, reason="apt-get install prometheus")
async def test_forty_queries_of_boards_and_rules_answer_on_a_prometheus_that_scraped_sixty_times(
    tmp_path: Path,
) -> None:
    dgx = Dgx()
    dgx.view.happened = [Event(id="7-1", node=NODE, at=START, kind="xid", gpu=dgx.what.gpus[6].uuid, data={"xid": 79})]
    await dgx.beat()
    async with door(dgx.view) as client:
        settings = (
            "global: {scrape_interval: 250ms, scrape_timeout: 250ms}\n"
            f"scrape_configs: [{{job_name: dcgm, metrics_path: /metrics/dcgm/{NODE}, static_configs: "
            f"[{{targets: ['127.0.0.1:{client.port}'], labels: {{instance: {NODE}}}}}]}}]\n"
        )
        async with prometheus(tmp_path, settings) as server:
            await _scraped(server, dgx, 60)
            queries = {**POD_QUERIES, **DEVICE_QUERIES}
            assert (len(POD_QUERIES), len(queries)) == (20, 40)
            found = {query: await server.query(query) for query in queries}
    assert {query: len(series) for query, series in found.items()} == queries
    assert not [query for query, series in found.items() if any(math.isnan(value) for _, value in series)]
    watts = {
        labels["pod"]: value for labels, value in found['topk(2, sum by (pod) (DCGM_FI_DEV_POWER_USAGE{pod!=""}))']
    }
    assert set(watts) == {"train-0", "train-1"}
    assert all(140 < value <= 1400 for value in watts.values()), "the watts of two GPUs"


async def _scraped(server: Prometheus, dgx: Dgx, times: int) -> None:
    """Send frames until Prometheus has scraped so often."""

    async def scraped() -> bool:
        await dgx.beat()
        found = await server.query('count_over_time(DCGM_FI_DEV_GPU_TEMP{gpu="0"}[5m])')
        return bool(found) and found[0][1] >= times

    await waiting.until(scraped, seconds=90, every=0.05)  # what scrapes needs the processor too


async def test_a_collector_shows_the_same_of_its_own_node() -> None:
    """But for the words of an XID, which are of the aggregator."""
    dgx = Dgx()
    await dgx.beat()
    async with door(dgx.view) as client:
        _, text, _ = await client.text(f"/metrics/dcgm/{NODE}")
    jobs = dgx.view.jobs.lists[NODE]
    own = dcgm_page(Newest(dgx.what), dgx.rows, jobs, None, "Hostname").decode()

    def samples(page: str) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(page)
            for sample in family.samples
        }

    assert samples(own) == pytest.approx(samples(text), rel=1e-6)
    assert [line for line in own.splitlines() if line.startswith("#")] == [
        line for line in text.splitlines() if line.startswith("#")
    ]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
async def test_promtool_finds_nothing_but_what_nvidias_names_are() -> None:
    dgx = Dgx()
    await dgx.beat()
    async with door(dgx.view) as client:
        _, text, _ = await client.text(f"/metrics/dcgm/{NODE}")
    command = ["promtool", "check", "metrics"]
    done = await asyncio.to_thread(subprocess.run, command, input=text.encode(), capture_output=True, check=False)
    said = (done.stdout + done.stderr).decode().splitlines()
    assert done.returncode in {0, 3}
    names = ("'snake_case' not 'camelCase'", 'should have "_total" suffix', "not include type 'counter'")
    assert [line for line in said if not line.endswith(names)] == []


async def test_the_exporters_own_file_chooses_what_the_page_shows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "counters.csv"
    path.write_text(
        "# mine\nDCGM_FI_DEV_GPU_TEMP, gauge, heat\nDCGM_FI_DEV_PCIE_LINK_GEN, gauge, generation\n"
        "DCGM_FI_DEV_BRAND, label, brand\nDCGM_EXP_P2P_STATUS, gauge, pairs\n"
    )
    dgx = Dgx()
    await dgx.beat()
    async with door(dgx.view, HttpConfig(listen="127.0.0.1:0", dcgm_counters=path)) as client:
        _, text, _ = await client.text(f"/metrics/dcgm/{NODE}")
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# HELP DCGM_FI_DEV_GPU_TEMP heat",
        "# TYPE DCGM_FI_DEV_GPU_TEMP gauge",
        "# HELP DCGM_FI_DEV_PCIE_LINK_GEN generation",
        "# TYPE DCGM_FI_DEV_PCIE_LINK_GEN gauge",
    ]
    assert text.count('DCGM_FI_DEV_BRAND="NVIDIA"') == 16
    assert "DCGM_FI_DRIVER_VERSION" not in text
    assert f"{path}:5: DCGM_EXP_P2P_STATUS is not served: a matrix of pairs" in caplog.text
    path.write_text("DCGM_FI_DEV_GPU_TEMP gauge\n")
    with pytest.raises(ConfigError, match=f"{path}:1"):
        HttpConfig(dcgm_counters=path).counters()
