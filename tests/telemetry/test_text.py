"""Durations and times have one wording, which stands in `telemetry.text`."""

from __future__ import annotations

import ast
import math
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.text import (
    day_of_month,
    duration,
    estimated_duration,
    exact_duration,
    parse_duration,
    rfc3339,
    short_duration,
    time_of_day,
    timer,
    timestamp,
)
from tests.kit.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
NOON = 1_785_585_600 * 10**9
"""2026-08-01 12:00:00 UTC, in ns."""
OTHER_TIMES = {
    "kilowatch/pki/authority.py": "the dates of openssl's index, which are read, not written",
    "aggregator/store/tables.py": "names of sealed files, without colons",
    "aggregator/store/job_months.py": "names of files, and the months that they are of",
    "tui/frame/export.py": "names of exported files, without colons",
    "power/live/budgets.py": "a month",
    "power/report/bill.py": "a local time with its offset, of an interval of the bill",
    "aggregator/electrical/energy_sampler.py": "a local day",
}
"""Files that write a date of their own, and what for."""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"), (0.0423, "42.3 ms"), (0.9996, "1 s"), (-0.25, "-250 ms"), (4.5, "4.5 s"),
        (9.96, "10 s"), (45, "45 s"), (59.6, "60 s"), (90, "90 s"), (119.6, "2 min"), (310, "5 min 10 s"),
        (599.7, "10 min"), (1980, "33 min"), (3599, "60 min"), (4000, "67 min"),
        (7500, "2 h 5 min"), (86_400, "24 h"), (172_799, "2 d"), (356_400, "4 d 3 h"),
        (-5, "-5 s"), (-4000, "-67 min"), (float("inf"), "never"), (float("nan"), "unknown"),
    ],
)  # fmt: skip
def test_a_duration_has_its_two_largest_units(seconds: float, text: str) -> None:
    """Of these 4,000 s once had four wordings."""
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "—"), (-3, "0.0 s"), (0.42, "0.4 s"), (9.94, "9.9 s"), (9.96, "10 s"), (34, "34 s"),
        (99, "99 s"), (120, "2 m"), (4000, "67 m"), (5969, "99 m"), (7200, "2 h"), (172_801, "2 d"),
    ],
)  # fmt: skip
def test_a_duration_in_a_column_has_one_unit(seconds: float | None, text: str) -> None:
    """Narrow enough for a column of five."""
    assert short_duration(seconds) == text


@given(st.floats(0, 8e8))
def test_a_duration_in_a_column_fits(seconds: float) -> None:
    """Up to 25 years."""
    assert len(short_duration(seconds).replace(" ", "")) <= 5


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.5, "500ms"), (1, "1s"), (90, "90s"), (300, "5m"), (5400, "90m"), (129_600, "36h"), (604_800, "7d")],
)
def test_a_duration_for_a_program_is_exact(seconds: float, text: str) -> None:
    """In the largest unit that divides it, and read again as what it was."""
    assert exact_duration(seconds) == text
    assert parse_duration(text) == seconds


@given(st.integers(1, 10**9))
def test_a_duration_for_a_program_is_read_as_it_was_written(seconds: int) -> None:
    """Whatever the seconds."""
    assert parse_duration(exact_duration(seconds)) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("10", 10), ("0.5", 0.5), (" 5 min ", 300), ("5m", 300), ("1h30m", 5400), ("168h0m0s", 604_800),
     ("2w", 1_209_600), ("250ms", 0.25), ("9" * 400, 1e12), ("", None), ("5 years", None),
     ("1h 30x", None), ("-5s", None), ("nan", None)],
)  # fmt: skip
def test_a_duration_is_read_with_every_unit(text: str, seconds: float | None) -> None:
    """Settings, the command line and the HTTP API read the same."""
    assert parse_duration(text) == seconds


def test_times_are_worded_once() -> None:
    """For people, for programs, and for a narrow column."""
    assert timestamp(NOON) == "2026-08-01 12:00:00 UTC"
    assert rfc3339(NOON + 7_999_999) == "2026-08-01T12:00:00.007Z"
    assert time_of_day(NOON) == "12:00:00Z"
    assert time_of_day(0) == "—"
    assert day_of_month(NOON) == "08-01"
    assert timer(41) == "00:41"
    assert timer(3723) == "1:02:03"


def sources() -> list[tuple[str, str]]:
    """Return the path and the text of every production file but the one that is to word them."""
    paths = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    texts = ((str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in paths)
    return [(path, text) for path, text in texts if path != "telemetry/text/__init__.py"]


def _computed_durations(text: str) -> list[int]:
    """Return the lines that write a computed number of minutes, hours or days."""
    if not re.search(r"} ?(min|h|d)", text):
        return []
    return [
        node.lineno
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.JoinedStr)
        for value, after in zip(node.values, node.values[1:], strict=False)
        if isinstance(value, ast.FormattedValue)
        and isinstance(after, ast.Constant)
        and re.match(r" ?(min|minutes|h|hours|d|days)\b", str(after.value))
    ]


def test_no_other_file_words_a_duration() -> None:
    """A second wording of minutes, hours or days fails here."""
    found = [f"{path}:{line}" for path, text in sources() for line in _computed_durations(text)]
    assert not found, "\n".join(found)


def test_no_other_file_words_a_time() -> None:
    """A second format of a time of day or of a date fails here."""
    found = {path for path, text in sources() if re.search(r"%H:?%M|%Y-?%m|%m-%d|isoformat\(timespec", text)}
    assert found <= OTHER_TIMES.keys()


def test_no_other_file_reads_a_duration() -> None:
    """A second table of units fails here."""
    units = re.compile(r"""["']m["']: *60\b|["']h["']: *3_?600\b""")
    found = [path for path, text in sources() if units.search(text)]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (6.7, "7 s"), (200.4, "3 min 20 s"), (math.inf, "never"), (math.nan, "unknown")]
)
def test_an_estimate_has_whole_seconds(seconds: float, text: str) -> None:
    """A decimal would promise what no model of a breaker can hold."""
    assert estimated_duration(seconds) == text
