"""The long form's report: from what the tests observed to docs/faults.md."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path

import pytest

PAGE = Path(__file__).resolve().parents[2] / "docs" / "faults.md"

ELSEWHERE = {
    "16": (
        "tests/aggregator/test_service.py::test_a_full_disk_does_not_stop_the_live_view_and_passes",
        "tests/aggregator/test_store.py::test_a_full_disk_is_an_error_with_a_cure_and_passes",
        "tests/collector/test_service.py::test_a_full_disk_does_not_stop_live_frames",
    ),
    "18": (
        "tests/collector/test_ring.py::test_a_tail_torn_at_any_byte_costs_only_the_last_frame",
        "tests/collector/test_ring.py::test_any_flipped_byte_costs_only_the_record_it_stands_in",
        "tests/aggregator/test_store.py::test_a_torn_log_costs_only_what_follows_the_tear",
        "tests/aggregator/test_store.py::test_a_flipped_byte_in_the_log_costs_only_what_follows_it",
    ),
    "18c": (
        "tests/faults/test_damaged_files.py::test_it_starts_pages_and_says_so",
        "tests/faults/test_damaged_files.py::test_a_process_starts_over_a_folder_in_which_every_file_is_damaged",
    ),
    "22": (
        "tests/collector/test_nvml_faults.py::test_a_hung_gpu_costs_the_others_not_one_tick",
        "tests/collector/test_nvml_faults.py::test_only_so_many_processes_wait_in_a_driver_that_hangs",
    ),
    "23": (
        "tests/collector/test_nvml_faults.py::test_a_lost_gpu_is_one_event_and_all_gaps_until_it_is_back",
        "tests/collector/test_nvml_faults.py::test_more_gpus_are_noticed_without_a_restart",
        "tests/collector/test_nvml_faults.py::test_switching_mig_is_an_event_and_probes_capabilities_again",
    ),
    "24": ("tests/collector/test_nvml_faults.py::test_counters_that_begin_anew_are_a_reload",),
    "27": (
        "tests/alerts/test_outbox.py::test_twenty_minutes_of_500_then_slow_then_429_give_one_page_for_each_open_incident",
        "tests/endtoend/test_paging_ill.py::test_an_ill_pager_and_kills_between_send_and_journal_lose_nothing_and_call_nobody_twice",
    ),
    "28": (
        "tests/endtoend/test_paging_kill.py::test_killed_at_any_point_of_their_lives_alerts_are_paged_once_each",
        "tests/alerts/test_outbox_kill.py::test_killed_anywhere_every_incident_arrives_once_under_one_key",
    ),
    "29": (
        "tests/alerts/test_incidents_floods.py::test_a_signal_that_flaps_for_an_hour_is_told_at_most_twice_in_five_minutes",
    ),
}
"""Scenarios, or parts of them, that the tests of one part play; `make faults` runs them too."""

LAST_OF_A_FAILURE = 2000
"""Characters of a traceback that are printed when it happens."""
_NUMBERS = {test: number for number, tests in ELSEWHERE.items() for test in tests}


@dataclass(slots=True)
class Row:
    """One scenario over all its runs."""

    number: str
    scenario: str
    expected: str
    seeds: list[int] = field(default_factory=list)
    observed: list[str] = field(default_factory=list)
    runs: int = 0
    failed: int = 0


class Report:
    """A plugin of pytest: gathers, says, and writes the page."""

    def __init__(self, head: str, *, page: bool, again: str = "") -> None:
        """`page`: whether docs/faults.md is written, after each result. `again`: the command of a run of
        a few scenarios, whose rows replace those of the page that is there; the others stay."""
        self._head = head
        self._page = page
        self._again = again
        self._kept: dict[tuple[str, str], str] = {}
        self._rows: dict[str, Row] = {}
        if again:
            self._head, self._kept = kept_of(PAGE.read_text())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take the outcome of one run, wherever it ran."""
        if report.when != "call" and not (report.when == "setup" and not report.passed):
            return
        name = report.nodeid.partition("[")[0]
        told = dict(report.user_properties)
        number = _NUMBERS.get(name)
        if "number" not in told and number is None:
            return
        row = self._rows.setdefault(
            name,
            Row(
                str(told.get("number", number)),
                str(told.get("scenario", _words(name))),
                str(told.get("expected", "as the name of the test says")),
            ),
        )
        row.runs += 1
        row.failed += report.failed
        if "seed" in told and told["seed"] not in row.seeds:
            row.seeds.append(int(str(told["seed"])))
        if "observed" in told:
            row.observed.append(str(told["observed"]))
        elif report.skipped:
            row.observed.append("SKIPPED")
        word = f"{row.number}: {row.scenario} {report.outcome}, {report.duration:.0f} s"
        print(f"{time.strftime('%H:%M:%S')} {word}", file=sys.stderr, flush=True)
        if report.failed:  # pytest itself says why at the end of all
            print(report.longreprtext[-LAST_OF_A_FAILURE:], file=sys.stderr, flush=True)
        self._write("\n\n**Not finished**: the run goes on, or was cut off.")

    def done(self) -> None:
        """Write the page as it stays."""
        self._write("")

    def _write(self, more: str) -> None:
        if not self._page:
            return
        fresh = {(row.number, row.scenario): _line(row) for row in self._rows.values()}
        head = self._head + more
        if self._again and fresh:
            numbers = "; ".join(dict.fromkeys(number for number, _ in sorted(fresh, key=_place)))
            day = time.strftime("%Y-%m-%d")
            head += f"\n\nRun again on {day} by `{self._again}`: {numbers}."
        found = self._kept | fresh
        lines = [head, "", *TABLE, *(found[key] for key in sorted(found, key=_place))]
        PAGE.write_text("\n".join([*lines, ""]))


TABLE = (
    "| # | scenario | expected | observed | runs | failed | seeds |",
    "| --- | --- | --- | --- | --- | --- | --- |",
)


def kept_of(page: str) -> tuple[str, dict[tuple[str, str], str]]:
    """Return what stands above the table of a page, and its rows by number and scenario."""
    head, _, table = page.partition("\n".join(TABLE))
    rows = {}
    for line in table.splitlines():
        if line.startswith("| "):
            number, scenario = line.removeprefix("| ").split(" | ")[:2]
            rows[number, scenario] = line
    return head.rstrip(), rows


def _line(row: Row) -> str:
    seeds = ", ".join(str(seed) for seed in sorted(row.seeds)) or "own"
    observed = "<br>".join(_sample(row.observed)) or ("as expected" if not row.failed else "")
    verdict = f"**FAILED** {observed}" if row.failed else observed
    return f"| {row.number} | {row.scenario} | {row.expected} | {verdict} | {row.runs} | {row.failed} | {seeds} |"


def _place(key: tuple[str, str]) -> tuple[tuple[int, str], str]:
    return _order(key[0]), key[1]


def _sample(observed: list[str], most: int = 3) -> list[str]:
    """Return the first few; the rest is counted."""
    more = len(observed) - most
    return observed[:most] + ([f"... and {more} more runs"] if more > 0 else [])


def _words(name: str) -> str:
    return name.rpartition("/")[2].partition("::")[2].removeprefix("test_").replace("_", " ")


def _order(number: str) -> tuple[int, str]:
    return int("".join(takewhile(str.isdigit, number)) or 0), number
