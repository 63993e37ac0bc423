"""The ledger of jobs: lists of nodes in any order become allocations, none doubled, none open for ever."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from aggregator.jobs.ledger import MOST_ALLOCATIONS, JobLedger, JobRecord
from api.jobs import AllocationRow, JobPhase
from telemetry.errors import WireError
from telemetry.wire.jobs import ENDED_SECONDS, Allocation, Job, JobKey, NodeJobs, Precision

SECOND = 10**9
T0 = 1_790_000_000 * SECOND


def key(name: str) -> JobKey:
    """A job of Slurm."""
    return JobKey("slurm", "lab", name)


def held(name: str, gpu: str, begin: float, end: float = 0, **more: object) -> Allocation:
    """An allocation from and to seconds after `T0`."""
    facts = {"begin_from": Precision.HOOK, "end_from": Precision.HOOK, **more}
    return Allocation(
        job=key(name),
        gpu=gpu,
        begin=T0 + round(begin * SECOND),
        end=T0 + round(end * SECOND) if end else 0,
        **facts,  # type: ignore[arg-type]
    )


def listed(version: int, at: float, *allocations: Allocation, session: int = 1, jobs: tuple[Job, ...] = ()) -> NodeJobs:
    """A node's list, seconds after `T0`."""
    return NodeJobs(session=session, version=version, at=T0 + round(at * SECOND), allocations=allocations, jobs=jobs)


def rows(ledger: JobLedger, name: str) -> list[tuple[float, float | None, bool]]:
    """Begin, end and whether it was lost, of each allocation of a job, seconds after `T0`."""
    return [
        ((row.begin - T0) / SECOND, None if row.end is None else (row.end - T0) / SECOND, row.lost)
        for row in ledger.jobs[key(name)].allocations
    ]


def test_a_job_begins_and_ends_as_its_hooks_say() -> None:
    ledger = JobLedger()
    ledger.apply("n1", listed(1, 11, held("7", "a", 10)))
    ledger.apply("n1", listed(2, 99, held("7", "a", 10, 98)))
    assert rows(ledger, "7") == [(10, 98, False)]
    assert ledger.jobs[key("7")].phase is JobPhase.ENDED


def test_a_job_on_several_nodes_is_one_and_ends_with_its_last() -> None:
    ledger = JobLedger()
    ledger.apply("n1", listed(1, 11, held("7", "a", 10)))
    ledger.apply("n2", listed(1, 12, held("7", "b", 11)))
    ledger.apply("n1", listed(2, 30, held("7", "a", 10, 29)))
    job = ledger.jobs[key("7")]
    assert (job.nodes, job.end, job.phase) == (["n1", "n2"], None, JobPhase.RUNNING)
    ledger.apply("n2", listed(2, 40, held("7", "b", 11, 39)))
    assert job.end == T0 + 39 * SECOND


def test_what_ends_unseen_is_lost_at_the_time_at_which_it_was_listed_last() -> None:
    ledger = JobLedger()
    ledger.apply("n1", listed(1, 11, held("7", "a", 10)))
    ledger.confirm("n1", 1, T0 + 500 * SECOND)
    ledger.apply("n1", listed(1, 900, session=2))
    assert rows(ledger, "7") == [(10, 500, True)]
    assert ledger.jobs[key("7")].phase is JobPhase.LOST


def test_an_end_by_hook_beats_one_by_process_and_is_final() -> None:
    ledger = JobLedger()
    ledger.apply("n1", listed(1, 50, held("7", "a", 10, 45, end_from=Precision.PROCESS)))
    ledger.apply("n1", listed(2, 60, held("7", "a", 10, 42)))
    ledger.apply("n1", listed(3, 70, held("7", "a", 10, 66, end_from=Precision.PROCESS)))
    ledger.apply("n1", listed(4, 80, held("7", "a", 10)))
    assert rows(ledger, "7") == [(10, 42, False)]


def test_a_begin_learned_more_exactly_changes_the_row_that_is_there() -> None:
    ledger = JobLedger()
    ledger.apply("n1", listed(1, 20, held("7", "a", 15, begin_from=Precision.PROCESS)))
    ledger.apply("n1", listed(2, 21, held("7", "a", 10)))
    assert rows(ledger, "7") == [(10, None, False)]


def test_a_silent_node_ends_nothing_and_one_that_is_gone_ends_all() -> None:
    ledger = JobLedger()
    ledger.apply("n1", listed(1, 20, held("7", "a", 10)))
    ledger.apply("n2", listed(1, 90_000, held("8", "b", 10)))
    assert rows(ledger, "7") == [(10, None, False)]
    ledger.remove("n1")
    assert rows(ledger, "7") == [(10, 20, True)]
    assert rows(ledger, "8") == [(10, None, False)]


def test_a_session_whose_clock_was_set_back_is_heard() -> None:
    ledger = JobLedger()
    ledger.apply("n1", listed(9, 5000, held("7", "a", 10)))
    assert ledger.apply("n1", listed(1, 30, held("7", "a", 10, 20), session=2))
    assert rows(ledger, "7") == [(10, 20, False)]


def test_a_node_may_have_only_so_many_allocations() -> None:
    ledger = JobLedger()
    many = tuple(held(str(n), "a", n + 1) for n in range(MOST_ALLOCATIONS))
    ledger.apply("n1", listed(1, 5000, *many))
    with pytest.raises(WireError, match="allocations"):
        ledger.apply("n1", listed(2, 5001, held("one more", "a", 4999)))
    assert ledger.apply("n1", listed(3, 5002, *many[:5]))


def test_facts_of_a_job_are_kept_and_an_end_is_not_undone_by_a_node_that_lags() -> None:
    ledger = JobLedger()
    told = Job(key=key("7"), name="train", user="ada", state="FAILED", exit_code=0, end=T0 + 30)
    ledger.apply("n1", listed(1, 20, held("7", "a", 10), jobs=(told,)))
    ledger.apply("n2", listed(1, 21, held("7", "b", 10), jobs=(Job(key=key("7"), state="RUNNING"),)))
    job = ledger.jobs[key("7")].job
    assert (job.name, job.user, job.state, job.exit_code) == ("train", "ada", "FAILED", 0)


@dataclass(frozen=True)
class Span:
    """A true allocation, seconds after `T0`."""

    name: str
    gpu: str
    begin: int
    end: int


spans = st.lists(
    st.builds(
        Span,
        st.sampled_from(["1", "2", "3", "4"]),
        st.sampled_from(["a", "b"]),
        st.integers(1, 3000),
        st.integers(1, 3000),
    ).map(lambda s: Span(s.name, s.gpu, s.begin, s.begin + s.end)),
    max_size=8,
)


def disjoint(found: list[Span]) -> list[Span]:
    """Leave out spans of the same job and GPU that overlap: a hook gives no such ones."""
    kept: list[Span] = []
    for span in sorted(found, key=lambda span: span.begin):
        same = [each for each in kept if (each.name, each.gpu) == (span.name, span.gpu)]
        if all(each.end + ENDED_SECONDS < span.begin for each in same):
            kept.append(span)
    return kept


@given(
    spans.map(disjoint),
    st.lists(st.tuples(st.integers(0, 7000), st.booleans()), max_size=12),
    st.lists(st.integers(0, 30), max_size=12),
    st.sets(st.integers(0, 12)),
)
@example([Span("1", "a", 1, 2), Span("1", "a", 603, 604)], [(1, False), (604, False)], [0, 1], set())
def test_any_order_of_lists_losses_and_restarts_gives_each_allocation_once(
    truth: list[Span], times: list[tuple[int, bool]], order: list[int], restarts: set[int]
) -> None:
    """Lists at some times, in two sessions, repeated, lost and out of order, and the aggregator starting
    anew in between; in the end the newest list comes."""

    def at(version: int, now: int, session: int) -> NodeJobs:
        shown = [
            held(span.name, span.gpu, span.begin, span.end if span.end <= now else 0)
            for span in truth
            if span.begin <= now and now - span.end <= ENDED_SECONDS
        ]
        return listed(version, now, *shown, session=session)

    last = 7001
    messages = [at(number, now, 1 + (now > 3500)) for number, now in enumerate(sorted(now for now, _ in times), 1)]
    ledger, stored = JobLedger(), dict[JobKey, JobRecord]()

    def keep() -> None:
        stored.update({name: tracked.record() for name, tracked in ledger.jobs.items()})

    for number, choice in enumerate(order if messages else []):
        if number in restarts:
            keep()
            ledger = JobLedger()
            ledger.restore(each for each in stored.values() if any(row.end is None for row in each.allocations))
        ledger.apply("n1", messages[choice % len(messages)])
        for fresh in ledger.fresh & stored.keys():
            ledger.absorb(stored[fresh])
        ledger.fresh.clear()
    ledger.apply("n1", at(100, last, 2))
    for fresh in ledger.fresh & stored.keys():
        ledger.absorb(stored[fresh])
    keep()
    found: list[tuple[str, AllocationRow]] = [
        (name.id, row) for name, record in stored.items() for row in record.allocations
    ]
    doubled = Counter((name, row.gpu, row.begin) for name, row in found)
    assert set(doubled.values()) <= {1}
    true = {(span.name, span.gpu, T0 + span.begin * SECOND): span for span in truth}
    for name, row in found:
        span = true[name, row.gpu, row.begin]
        if row.end is None:
            assert span.end > last
        elif not row.lost:
            assert row.end == T0 + span.end * SECOND
    open_now = {(name, row.gpu, row.begin) for name, row in found if row.end is None}
    assert open_now == {where for where, span in true.items() if span.begin <= last < span.end}
    by_place = Counter((name, row.gpu) for name, row in found if row.end is None)
    assert set(by_place.values()) <= {1}
