"""The headline of a job names what holds it up, and is never calm where its use is not known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from alerts.rules.rule import load
from api.alerts import Severity
from api.jobs import EnergyFrom, JobAlert, JobPhase, JobReply, JobRow, JobsReply, JobSummary
from present.device.figures import UNKNOWN
from present.fleet.headline import Urgency
from present.fleet.job_headline import HOLDS_UP, JobGpu, job_figures, job_headline, jobs_figures, jobs_headline
from present.row import Tone
from present.units import WALL_FROM
from telemetry.wire.jobs import JobSourceState
from tests.alerts.notices import MINUTE, NOON

HOUR = 60 * MINUTE
WHOLE = JobSummary(
    gpu_hours=9.0,
    coverage=0.99,
    partial=False,
    utilization_ratio=0.92,
    utilization_p10_ratio=0.78,
    energy_joules=3.6e6 * 5,
    wall_joules=3.6e6 * 8,
    energy_coverage=0.99,
    wall_coverage=0.99,
    cost=1.25,
    currency="USD",
)
GPUS = [JobGpu("dgx-01", index, {"gpu_utilization_ratio": 0.97 + index / 100}) for index in range(3)]
SLOW = replace(GPUS[2], readings={"gpu_utilization_ratio": 0.78, "gpu_clocks_event_sw_thermal_slowdown": 1.0})


def reply(alerts: list[JobAlert] | None = None, **more: Any) -> JobReply:
    """A job of three GPUs that has run for three hours."""
    facts = {"nodes": ["dgx-01"], "gpus": 3, "summary": WHOLE, **more}
    job = JobRow(scheduler="slurm", cluster="lab", id="4711", begin=NOON, **facts)
    return JobReply(at=NOON + 3 * HOUR, job=job, allocations=[], alerts=alerts or [])


def test_a_job_that_is_whole_runs_well() -> None:
    found = job_headline(reply(), GPUS)
    assert (found.urgency, found.text) == (Urgency.WELL, "It runs on 3 GPUs of 1 node")
    assert found.why == "Use 92% in the mean"


def test_the_straggler_is_named_beside_the_others() -> None:
    found = job_headline(reply(hints=["asked for 4 GPUs, 3 seen"]), [*GPUS[:2], SLOW])
    assert (found.urgency, found.text) == (Urgency.TICKET, "dgx-01 GPU 2 is slowed down: sw thermal")
    assert found.why == "Use 78% (2 others: 97% to 98%); where they work in step, its 2 other GPUs wait for it"
    alerts = [
        JobAlert(
            rule="gpu_lost", severity=Severity.PAGE, node="dgx-01", gpu="GPU-1", since=1, summary="dgx-01 GPU 1 is lost"
        )
    ]
    lost = job_headline(reply(alerts), [*GPUS[:2], SLOW])
    assert (lost.urgency, lost.text) == (Urgency.PAGE, "dgx-01 GPU 1 is lost")
    assert lost.why == "dgx-01 GPU 2 is slowed down: sw thermal, use 78% (2 others: 97% to 98%)"
    alone = job_headline(reply(alerts), GPUS)
    assert alone.why == "Where they work in step, its 2 other GPUs wait for it"
    stray = [msgspec.structs.replace(alerts[0], rule="process_outside")]
    assert job_headline(reply(stray), GPUS).why == "", "nobody waits for it"
    assert {rule.name for rule in load()} >= HOLDS_UP
    hidden = msgspec.structs.replace(alerts[0], summary="")
    assert job_headline(reply([hidden]), GPUS).text == "gpu lost on dgx-01"


@pytest.mark.parametrize(
    ("more", "urgency", "text"),
    [
        ({"phase": JobPhase.SILENT}, Urgency.UNKNOWN, "Whether it runs is not known"),
        ({"summary": None}, Urgency.UNKNOWN, "It runs on 3 GPUs of 1 node"),
        ({"summary": msgspec.structs.replace(WHOLE, partial=True), "hints": ["partial: 40% of its GPU time was read"]},
         Urgency.UNKNOWN, "It runs on 3 GPUs of 1 node"),
        ({"hints": ["1 of 3 GPUs without a process now"]}, Urgency.TICKET, "1 of 3 GPUs without a process now"),
        ({"end": NOON + HOUR, "phase": JobPhase.ENDED, "state": "COMPLETED"}, Urgency.WELL, "It ended after 60 min: completed"),
        ({"end": NOON + HOUR, "phase": JobPhase.ENDED, "state": "FAILED", "exit_code": 2}, Urgency.TICKET,
         "It ended after 60 min: failed, exit code 2"),
        ({"end": NOON + HOUR, "phase": JobPhase.LOST}, Urgency.UNKNOWN, "It ended unseen"),
    ],
)  # fmt: skip
def test_a_state_has_its_sentence(more: dict[str, Any], urgency: Urgency, text: str) -> None:
    found = job_headline(reply(**more), GPUS)
    assert (found.urgency, found.text) == (urgency, text)


@pytest.mark.parametrize(
    ("basis", "value", "note"),
    [
        (EnergyFrom.COUNTERS, "6.94 kWh", "by the GPUs' counters at begin and end"),
        (EnergyFrom.PROVISIONAL, "6.94 kWh", "provisional, added up from samples so far"),
    ],
)
def test_energy_by_counters_is_not_called_provisional(basis: EnergyFrom, value: str, note: str) -> None:
    whole = msgspec.structs.replace(WHOLE, energy_joules=25e6, energy_from=basis)
    bare = msgspec.structs.replace(whole, wall_joules=None)
    (found,) = (one.row for one in job_figures(reply(summary=bare), []) if "energy" in one.row.label)
    assert (found.value, found.note) == (value, f"{note}; not at the wall")
    (found,) = (one.row for one in job_figures(reply(summary=whole), []) if "energy" in one.row.label)
    assert found.note == f"{WALL_FROM[basis]}; 6.94 kWh at its GPUs"


def test_energy_and_cost_are_rough_and_never_a_number_where_they_are_not_known() -> None:
    shown = {one.row.label: one.row for one in job_figures(reply(), [300.0, None, 310.0])}
    assert shown["use, mean"].value == "92%"
    assert shown["GPU hours"].note == "3 GPUs for 3 h; 99% of it read"
    assert (shown["power now"].value, shown["power now"].note) == ("≥610 W", "at its GPUs; 1 GPU not read")
    assert shown["energy at the wall"].value == "8.00 kWh"
    assert shown["cost"].value == "$1.25"
    for label in ("energy at the wall", "cost"):
        assert WALL_FROM[EnergyFrom.SAMPLES] in shown[label].note
    bare = {one.row.label: one.row for one in job_figures(reply(summary=None), [None])}
    assert {row.value for row in bare.values()} == {UNKNOWN}
    assert {row.tone for row in bare.values()} == {Tone.STALE}


def listed(*jobs: JobRow, **more: Any) -> JobsReply:
    """Return a list of jobs."""
    return JobsReply(at=NOON + 3 * HOUR, jobs=list(jobs), **more)


def test_a_list_of_jobs_names_the_worst_of_those_that_need_a_look() -> None:
    well = reply().job
    idle = reply(hints=["1 of 3 GPUs without a process now"]).job
    hit = msgspec.structs.replace(well, id="4712", severity=Severity.PAGE)
    over = reply(end=NOON + HOUR, phase=JobPhase.ENDED, hints=["xid 79 once while it ran"]).job
    calm = jobs_headline(listed(well, over))
    assert (calm.urgency, calm.text) == (Urgency.WELL, "1 job runs, and nothing is odd about it")
    found = jobs_headline(listed(well, idle, hit, over))
    assert (found.urgency, found.text) == (Urgency.PAGE, "2 of 3 jobs that run need a look")
    assert found.why == "slurm 4712: an alert (page) fires on its GPUs or nodes"
    wasted = jobs_headline(listed(well, idle))
    assert (wasted.urgency, wasted.text) == (Urgency.TICKET, "1 of 2 jobs that run needs a look")
    assert wasted.why == "slurm 4711: 1 of 3 GPUs without a process now"


def test_a_list_says_what_is_not_known_and_what_can_not_be_read() -> None:
    blind = jobs_headline(listed(reply().job, reply(summary=None).job))
    assert (blind.urgency, blind.text) == (
        Urgency.UNKNOWN,
        "2 jobs run, and nothing is odd about them in what is known",
    )
    assert blind.why == "The use of 1 of 2 jobs is not wholly known"
    unread = jobs_headline(listed(sources=[JobSourceState(name="squeue", state="failing")]))
    assert (unread.urgency, unread.why) == (Urgency.UNKNOWN, "squeue can't be read")
    assert jobs_headline(listed()).urgency is Urgency.WELL


def test_sums_over_jobs_leave_out_what_is_not_known_and_say_so() -> None:
    shown = {one.row.label: one.row for one in jobs_figures(listed(reply().job, reply(summary=None).job))}
    assert (shown["running"].value, shown["running"].note) == ("2 jobs", "6 GPUs held")
    assert shown["use of held GPUs"].value == "92%"
    assert shown["energy at the wall"].value == "≥8.00 kWh"
    assert shown["cost"].note == "without 1 job of which it is not known"
    free = msgspec.structs.replace(WHOLE, cost=None, currency="")
    later = {one.row.label: one.row for one in jobs_figures(listed(reply(summary=free).job, reply().job))}
    assert later["cost"].value == "≥$1.25", "the newest has no cost, nor a currency"
    whole = {one.row.label: one.row for one in jobs_figures(listed(reply().job))}
    assert whole["cost"].value == "$1.25"
    none = {one.row.label: one.row.value for one in jobs_figures(listed(reply(summary=None).job))}
    assert [none[label] for label in ("use of held GPUs", "energy at the wall", "cost")] == [UNKNOWN] * 3
