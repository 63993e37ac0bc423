"""A job is worded once: golden texts, and the three faces that lay them out."""

from __future__ import annotations

import html
import re
from typing import Any

import pytest
from msgspec.structs import replace

from aggregator.web.job_page import JobParts, job_body
from api.jobs import GpuUse, JobReply, JobRow, JobSummary
from kilowatch.text.jobs import summary_lines
from present.fleet.job_headline import job_headline
from present.job import asked_row, faults_row, figure_rows, gpu_use_row
from tests.present import golden
from tests.tui.test_lines import line_text
from tui.screens.job_text import job_lines

WHOLE = JobSummary(
    gpu_hours=96.0,
    coverage=0.98,
    partial=False,
    utilization_ratio=0.62,
    utilization_p10_ratio=0.12,
    utilization_p90_ratio=0.97,
    energy_joules=1.8e8,
    energy_coverage=0.98,
    wall_joules=2.6e8,
    wall_coverage=0.97,
    cost=9.4,
    currency="EUR",
    co2_kg=27.44,
    idle_gpu_hours=3.5,
    idle_coverage=0.98,
    idle_cost=0.34,
    memory_peak_bytes=71.2 * 2**30,
    sm_active_ratio=0.81,
    sm_occupancy_ratio=0.43,
    tensor_active_ratio=0.37,
    dram_active_ratio=0.55,
    activity_coverage=0.95,
    pcie_bytes_per_second=3.1e9,
    pcie_coverage=0.95,
    nvlink_bytes_per_second=1.82e11,
    nvlink_coverage=0.5,
    gpus_idle=1,
    clock_limit_seconds={"sw_thermal": 90.0, "power_cap": 7200.0},
    faults={"xid 79": 1, "xid 63": 3},
)
SUMMARIES = {
    "read as a whole": WHOLE,
    "partly read": replace(WHOLE, coverage=0.4, partial=True, energy_coverage=0.4, wall_coverage=None, idle_coverage=0.4),
    "without a tariff, every GPU at work": replace(WHOLE, cost=None, idle_cost=None, gpus_idle=0, clock_limit_seconds={}, faults={}),
    "nothing read": JobSummary(gpu_hours=0.25),
}  # fmt: skip


def test_every_figure_of_a_job_reads_as_kept() -> None:
    """Rows of its page, and its faults."""
    golden.check("job", {name: golden.told([*figure_rows(each), faults_row(each)]) for name, each in SUMMARIES.items()})


ASKED = {
    "limited": ({"gpus_asked": 8, "time_limit_seconds": 7200, "submitted": 1, "wait_seconds": 840.0},
                "asked for 8 GPUs for at most 2 h; waited 14 min; ran for 31 min"),
    "unlimited": ({"gpus_asked": 1, "unlimited": True, "submitted": 1, "wait_seconds": 0.0},
                  "asked for 1 GPU without a time limit; waited 0 s; ran for 31 min"),
    "limit not known": ({"gpus_asked": 8, "submitted": 1}, "asked for 8 GPUs, time limit not known; waited an unknown time; ran for 31 min"),
    "without a number of GPUs": ({"time_limit_seconds": 7200}, "asked for at most 2 h; ran for 31 min"),
    "a whole node, unlimited": ({"unlimited": True}, "asked for no time limit; ran for 31 min"),
    "not of a scheduler": ({}, "ran for 31 min"),
    "it runs": ({"end": None, "submitted": 1, "wait_seconds": 90.0}, "waited 90 s; runs for 60 min"),
}  # fmt: skip
MINUTE = 60 * 10**9


@pytest.mark.parametrize(("its", "words"), ASKED.values(), ids=ASKED)
def test_what_a_job_asked_for_is_a_line_of_words(its: dict[str, Any], words: str) -> None:
    row = JobRow(**{"scheduler": "slurm", "cluster": "", "id": "1", "begin": 0, "end": 31 * MINUTE, **its})
    found = asked_row(row, 60 * MINUTE)
    assert f"{found.label} {found.value}" == words
    reply = JobReply(60 * MINUTE, row, [])
    body = job_body(reply, job_headline(reply, []), JobParts("", "", {}, {}), str, {})
    assert f"<dt>{found.label}</dt><dd>{found.value}</dd>" in body
    assert words in summary_lines(reply)


@pytest.mark.parametrize("name", SUMMARIES)
def test_the_three_faces_say_the_same_of_a_job(name: str) -> None:
    """Label and value of each figure; notes stand where the face has them."""
    row = JobRow(
        scheduler="slurm",
        cluster="hall",
        id="4711",
        begin=10**18,
        end=2 * 10**18,
        nodes=["n1"],
        gpus=8,
        summary=SUMMARIES[name],
    )
    reply = JobReply(2 * 10**18, row, [])
    body = job_body(reply, job_headline(reply, []), JobParts("", "", {}, {}), str, {})
    web = html.unescape(re.sub(r"<[^>]*>", " ", body))
    faces = {
        "web": web,
        "terminal": " ".join(line_text(line) for line in job_lines(reply, 4000)),
        "command": " ".join(summary_lines(reply)),
    }
    for face, text in faces.items():
        said = " ".join(text.split())
        for fact in figure_rows(SUMMARIES[name]):
            assert f"{fact.label} {fact.value}" in said, face


def test_the_use_of_a_gpu_is_marked_where_it_is_partly_read() -> None:
    one = GpuUse(node="n1", gpu="GPU-1", held_seconds=100.0, known_seconds=95.0, utilization_ratio=0.5)
    assert gpu_use_row(one).value == "50%"
    assert gpu_use_row(replace(one, known_seconds=50.0)).value == "~50%"
    assert gpu_use_row(replace(one, utilization_ratio=None)).value == "not known"
