"""The output of `sacct` as the accounts of runs that have ended. Pure.

Its text form is that of all releases. A line a run: a job that was requeued has several, in the order in which
they were submitted, and no number of the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from aggregator.scheduler.listed import HOLDING, SECOND, WAITING, exit_code_of
from api.jobs import JobAccount
from telemetry.notations.slurm import SCHEDULER
from telemetry.wire.jobs import JobKey

FIELDS = ("JobIDRaw", "Cluster", "State", "Submit", "Start", "End", "ExitCode", "Account", "User", "JobName", "Eligible", "TimelimitRaw")  # fmt: skip
_SEPARATOR = "\x1f"
MOST_JOBS = 200
"""Jobs of one question."""
COMPLETE_SECONDS = 60.0
"""Seconds after its end from which on the account of a run is taken without a time limit. Slurm may note the end of a
short run before its begin: for some seconds it has ended without a limit, which nobody else may know."""


def command_of(jobs: Iterable[str]) -> tuple[str, ...]:
    """Return the question for some jobs, by their numbers. `SLURM_TIME_FORMAT` has to be `%s`."""
    return (
        "sacct", "--allocations", "--duplicates", "--noheader", "--parsable2", f"--delimiter={_SEPARATOR}",
        f"--format={','.join(FIELDS)}", f"--jobs={','.join(jobs)}",
    )  # fmt: skip


def accounts_of(output: str, now: int) -> dict[JobKey, JobAccount]:
    """Return the account of each run that has ended, and is complete at `now`, ns since 1970. Raises `ValueError` for what
    is no such answer."""
    runs: dict[tuple[str, str], list[Mapping[str, str]]] = {}
    for line in output.splitlines():
        values = line.split(_SEPARATOR)
        if len(values) != len(FIELDS):
            raise ValueError(f"sacct prints {len(values)} fields in place of {len(FIELDS)}")
        its = dict(zip(FIELDS, values, strict=True))
        if its["JobIDRaw"].isdecimal():
            runs.setdefault((its["Cluster"], its["JobIDRaw"]), []).append(its)
    return {
        JobKey(SCHEDULER, cluster, number, restart): account
        for (cluster, number), lines in runs.items()
        for restart, account in enumerate(_accounts(lines, now))
        if account is not None
    }


def _accounts(lines: Sequence[Mapping[str, str]], now: int) -> Iterable[JobAccount | None]:
    """Yield the account of each run of a job, None for one that has not ended or is not complete. The same run may be
    listed twice."""
    ordered = sorted(lines, key=lambda its: _time(its["Submit"]))
    for its in ordered:
        state = its["State"].partition(" ")[0]  # `CANCELLED by 1000`
        over = (state == "REQUEUED" or state not in WAITING) and state not in HOLDING
        over = over and bool(its["TimelimitRaw"] or _time(its["End"]) + COMPLETE_SECONDS * SECOND < now)
        code, _, signal = its["ExitCode"].partition(":")
        yield (
            JobAccount(
                state=state,
                begin=_time(its["Start"]) or None,
                end=_time(its["End"]) or None,
                exit_code=exit_code_of(int(code or 0), int(signal or 0)),
                submitted=_time(its["Submit"]) or None,
                eligible=_time(its["Eligible"]) or None,
                time_limit_seconds=_seconds(its["TimelimitRaw"]),
                unlimited=its["TimelimitRaw"] == "UNLIMITED",
            )
            if over
            else None
        )


def _seconds(minutes: str) -> int | None:
    """Return a time limit in seconds; None for `UNLIMITED`, and for `Partition_Limit` of a job that never began."""
    return int(minutes) * 60 or None if minutes.isdecimal() else None


def _time(word: str) -> int:
    """Return a time in ns since 1970; 0 for `Unknown` and `None`."""
    return int(word) * SECOND if word.isdecimal() else 0
