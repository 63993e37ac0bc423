"""Each measurement at a scale of nothing: it runs, and its counts are right."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from bench import (
    asker,
    backfill,
    collector,
    common_way,
    exposition,
    ingest,
    job_turnover,
    job_year,
    jobs,
    overload,
    paging,
    processes,
    restart,
    store,
    stragglers,
    web,
)
from bench.exposition import make_fleet
from bench.load import make_load
from bench.processes import CAP_BURST, CpuCap, cpu_seconds, own_cores
from telemetry.wire.schema import GPU_FAST, SCHEMA
from tests.web.browser import needed

METRICS = len(SCHEMA.blocks[GPU_FAST].names)
needs_broker = pytest.mark.skipif(
    shutil.which("mosquitto") is None and not Path("/usr/sbin/mosquitto").exists(),
    reason="mosquitto is not installed: apt-get install mosquitto",
)


@needs_broker
def test_ingest_counts_what_was_sent_and_stored() -> None:
    """Three nodes for two seconds."""
    found = ingest.measure(24, 2, "mosquitto")
    assert (found["frames_sent"], found["frames_stored"]) == (6, 6)
    assert found["frames_lost"] == found["frames_duplicated"] == found["rows_wrong"] == 0
    assert found["values_per_second"] == 24 * METRICS
    assert set(found["processes"]) == {"broker", "aggregator", "generator"}
    assert found["processes"]["aggregator"]["rss_mib"] > 20
    for lags in found["lags"].values():
        assert lags["max"] > 0


@needs_broker
def test_overload_reports_what_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four nodes for three seconds, which a core carries: nothing is shed, and nothing lost."""
    monkeypatch.setattr(overload, "STILL_SECONDS", 1.0)
    found = overload.overload(2, 1.0, "", 3, 1024)
    assert (found["gpus"], found["frames_shed"], found["broker_dropped"]) == (32, 0, 0)
    assert found["frames_sent"] >= 4 * 3
    assert found["frames_lost"] == found["frames_duplicated"] == found["provisional_rows_left"] == 0
    assert found["holds"]["nothing_lost"]
    assert found["holds"]["recovered"]
    assert found["healthz"]["requests"] > 0
    assert found["steps"].endswith("nothing")


@pytest.mark.parametrize("groups", [True, False])
def test_a_capped_process_uses_no_more_than_its_share(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, groups: bool
) -> None:
    """On any machine that leaves it a twentieth of a core. What it uses before it is stopped, late on a busy
    machine, it makes up for."""
    if not groups:
        monkeypatch.setattr(processes, "CGROUPS", tmp_path)
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        with CpuCap(busy.pid, 0.05) as cap:
            began, before = time.monotonic(), cpu_seconds(busy.pid)
            used = 0.0
            while (
                used < 0.1
                or used > 0.05 * (time.monotonic() - began) + CAP_BURST
                or (cap._group is None and not cap.stopped_seconds)  # the kernel's is read at the end
            ):
                time.sleep(0.01)
                used = cpu_seconds(busy.pid) - before
        assert cap.stopped_seconds > 0
        before = cpu_seconds(busy.pid)
        while cpu_seconds(busy.pid) < before + 0.05:  # it goes on
            time.sleep(0.01)
    finally:
        busy.kill()
        busy.wait()


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="a machine of one core has none to give")
def test_a_process_has_cores_of_its_own_while_the_others_have_the_rest() -> None:
    allowed = os.sched_getaffinity(0)
    command = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(command, stdin=subprocess.PIPE) as one,
        subprocess.Popen(command, stdin=subprocess.PIPE) as other,
    ):
        with own_cores(one.pid, 1, [other.pid]):
            own, rest = os.sched_getaffinity(one.pid), os.sched_getaffinity(other.pid)
            assert len(own) == 1
            assert own | rest == allowed
            assert not own & rest
        assert os.sched_getaffinity(one.pid) == os.sched_getaffinity(other.pid) == allowed
        one.communicate(b"\n")
        other.communicate(b"\n")
    with pytest.raises(FileNotFoundError), own_cores(one.pid, 1, []):
        pytest.fail("it has ended")


@needs_broker
def test_a_restart_serves_all_nodes_that_were_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restart, "SETTLE_SECONDS", 0.0)
    found = restart.measure(16, 1)
    assert (found["nodes"], found["gpus"]) == (2, 16)
    assert 0 < found["answers_seconds"] <= found["serves_seconds"] <= found["worst_seconds"]
    assert found["heard_seconds"] > 0
    assert found["cpu_seconds"] > 0


@needs_broker
def test_backfill_drains_all_of_it() -> None:
    """Two nodes with five missing frames each."""
    found = backfill.measure(2, 5, 2, "mosquitto", "")
    assert found["backlog_frames"] == 10
    assert found["frames_lost"] == found["frames_duplicated"] == 0
    assert found["frames_sent_twice"] >= 0
    assert found["drain_seconds"] > 0


@needs_broker
def test_the_common_way_carries_two_nodes() -> None:
    """Or says that it did not."""
    pytest.importorskip("influxdb_client")
    found = common_way.step(2, 1)
    late = found["received"] < 2 or found["lag_p99"] > common_way.LATEST_LAG
    assert (found["sent"], found["broken"]) == (2, late)  # a busy machine may well break it
    assert set(found["processes"]) == {"broker", "store", "generator", "subscriber"}


@needs_broker
def test_all_collectors_read_the_fake_driver() -> None:
    """Ours and the peers, two GPUs, each on a driver of its own."""
    for module in ("gpustat", "nvitop"):
        pytest.importorskip(module)
    try:
        found = collector.measure(2, 2, 0, settle=0)
    except FileNotFoundError as error:
        pytest.skip(str(error))  # no C compiler, or no header to compile against
    assert set(found) == {"kilowatch", "gpustat", "nvitop", "pynvml"}
    assert len(found["kilowatch"]["processes"]) == 2
    for figures in found.values():
        assert figures["calls_per_tick"] > 0
        assert figures["readings_per_tick"] > 10
        assert figures["first_reading_seconds"] > 0


@needs_broker
def test_two_collectors_run_at_once_and_one_of_them_knows_the_processes() -> None:
    """Four processes on two GPUs."""
    try:
        found = jobs.measure(2, 2, 2, settle=0)
    except FileNotFoundError as error:
        pytest.skip(str(error))
    assert found["processes"] == 4
    for name in ("with", "without"):
        assert found[name]["cpu_percent"] > 0
        assert found[name]["calls_a_second"] > 0


def test_jobs_that_come_and_go_are_all_written() -> None:
    """All but those of the last step: the bench counts the cost of work that is done."""
    found = job_turnover.measure(80, 60, 50, 0.5)
    parts = ("lists", "steps", "edges", "writes")
    assert found["cpu_percent"] == pytest.approx(sum(found[f"{part}_percent"] for part in parts))
    assert min(found[f"{part}_percent"] for part in parts) > 0
    assert 0 <= found["jobs_begun"] - found["jobs_written"] <= 12
    assert found["jobs_begun"] == 40 + 330


@pytest.mark.parametrize(
    ("scheduler", "sources", "changed", "accounts"),
    [
        ("slurm", ["squeue", "sacct"], 5, 5),
        ("pbs", ["qstat", "qstat -x"], 10, 10),
        ("lsf", ["bjobs"], 10, 0),
        ("htcondor", ["condor_status", "condor_q", "condor_history"], 5, 5),
    ],
)
def test_a_scheduler_is_asked_about_all_jobs_and_those_that_ended(
    scheduler: str, sources: list[str], changed: int, accounts: int
) -> None:
    found = asker.measure(40, 20, 3, scheduler)
    assert (found["jobs"], found["gpus"], found["changed"]) == (40, 80, changed)
    assert found["states"] == dict.fromkeys(sources, "reading"), "nothing that does not fit"
    assert found["accounts_a_question"] == accounts
    assert found["cpu_seconds_a_question"] > 0


def test_a_year_of_jobs_is_in_the_store_and_in_a_file_of_each_month() -> None:
    found = job_year.measure(480, 4)
    assert 0 < found["parquet_megabytes"] < found["megabytes"]
    assert found["jobs_of_the_month"] == pytest.approx(480 / 4 / 12, abs=2)


def test_both_ways_write_the_same_series() -> None:
    """prometheus_client leaves out what says whether a node is up, and no reading."""
    found = exposition.measure(1000, 1)
    fleet = make_fleet(make_load(found["gpus"] // 8, 8))
    block = fleet.matrices[GPU_FAST]
    rows = found["gpus"]
    present = int(np.isfinite(block.gauges[:rows]).sum() + np.isfinite(block.counters[:rows]).sum())
    assert found["prometheus_client_series"] == present
    assert found["series"] >= present


def test_the_store_gives_back_what_it_was_given() -> None:
    """Half a minute of eight GPUs, and a fleet of eighty."""
    found = store.measure(80, 2, 8, 30, peers=False)
    history = found["history"]
    assert history["values"] == 8 * 30 * METRICS
    assert history["one_gpu_one_metric_rows"] == 30
    assert history["sealed_bytes_per_value"] > 0
    assert found["insert"]["ns_per_value"] > 0


def test_the_highest_are_the_highest() -> None:
    """In order, with their names."""
    fleet = make_fleet(make_load(16, 8))
    found = store.fleet_top(fleet, "gpu_power_watts", 5, 0.0)
    everyone = np.sort(fleet.column("gpu_power_watts", 0.0))[::-1]
    assert [value for _, _, value in found] == everyone[:5].tolist()
    assert len({uuid for _, uuid, _ in found}) == 5


@needs_broker
def test_every_fault_is_paged() -> None:
    """The aggregator takes the settings of a channel, and its pages are counted."""
    found = paging.measure(16, 4)
    assert found["paged"] == found["faults"] == 2
    assert found["page_seconds"]["p50"] > 0


def test_a_planted_slow_node_is_found_without_a_false_alarm() -> None:
    planted = stragglers.Cluster(0, 8 * 3600).planted
    heat = max((one for one in planted if one.kind == "heat"), key=lambda one: one.slow)
    found = stragglers.measure(hours=8, seed=0, span=(heat.begin - 900, heat.begin + 330))
    assert found["slow_nodes"]["found_within_five_minutes"] >= 1
    assert found["false_alarms"]["all"] == 0


@needed
async def test_the_pages_are_measured_in_a_browser() -> None:
    """Two nodes, each page once, three viewers: one process serves them."""
    found = await web.measure(2, 3, 3.0, times=1)
    assert set(found["pages"]) == set(web.PAGES)
    assert min(one["first_paint_ms"] for one in found["pages"].values()) > 0
    assert found["pages"]["overview"]["kilobytes"] > 20, "page, style sheets and scripts"
    assert found["interaction"]["sort_median_ms"] > 0
    assert found["renderer_pss_mib"] > 10
    assert found["crowd"]["processes"] == 1
    assert found["crowd"]["updates"] >= 3, "an event for each"
