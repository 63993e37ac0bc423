"""Every part that tries again pauses by `telemetry.runtime.backoff`, and reads HTTP by `http_outcome`."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from telemetry.runtime.backoff import STABLE_AFTER, STEADY, Backoff
from telemetry.runtime.http_outcome import HttpOutcome, outcome_of, retry_after
from tests.fakes import Middling
from tests.kit.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[2]
DOUBLING = r"2(\.0)? \*\* min\(|min\([^()\n]*\b2 \* [\w.]+\)|\* 2, [A-Za-z_.]+\)|\.uniform\("
"""How a second back-off was written in nine files."""
CLASSIFYING = r"\{[^}()]*\b425\b|parsedate_to_datetime|status >= 500 or"


def test_pauses_double_up_to_their_limit() -> None:
    """And begin anew after a success."""
    backoff = Backoff(0.5, 30.0, STEADY)
    assert [backoff.next() for _ in range(8)] == [0.5, 1, 2, 4, 8, 16, 30, 30]
    backoff.reset()
    assert backoff.next() == 0.5
    assert backoff.after(0) == 0.0
    assert backoff.after(10**6) == 30.0


@given(st.integers(1, 200), st.integers())
def test_a_pause_stays_within_its_spread(failures: int, seed: int) -> None:
    """Full jitter by default."""
    whole = Backoff(1.0, 60.0, STEADY).after(failures)
    dice = random.Random(seed)
    assert 0 <= Backoff(1.0, 60.0, dice=dice).after(failures) <= whole
    assert 0.75 * whole <= Backoff(1.0, 60.0, (0.75, 1.25), dice).after(failures) <= 1.25 * whole


def test_the_middle_of_a_spread_is_the_pause() -> None:
    """What the other tests rely on."""
    assert Backoff(1.0, 60.0, (0.75, 1.25), Middling()).after(3) == 4.0


def test_only_a_stable_connection_resets_the_pause() -> None:
    """A broker that closes each connection at once is not tried in a tight loop."""
    backoff = Backoff(0.5, 15.0, STEADY)
    backoff.next()
    backoff.lasted(STABLE_AFTER - 0.1)
    assert backoff.next() == 1.0
    backoff.lasted(STABLE_AFTER)
    assert backoff.next() == 0.5


def test_a_pause_that_was_started_ends_at_its_time() -> None:
    """By the caller's clock."""
    backoff = Backoff(2.0, 30.0, STEADY)
    assert backoff.over(0.0)
    backoff.start(100.0)
    assert not backoff.over(101.9)
    assert backoff.over(102.0)
    backoff.start(102.0)
    backoff.reset()
    assert backoff.over(0.0)


@pytest.mark.parametrize(
    ("statuses", "outcome"),
    [
        ((200, 202, 204), HttpOutcome.DELIVERED),
        ((408, 425, 429, 500, 502, 503, 504, 599), HttpOutcome.RETRY),
        ((301, 302, 400, 401, 403, 404, 413, 418, 422), HttpOutcome.REFUSED),
    ],
)
def test_a_status_means_the_same_to_all_senders(statuses: tuple[int, ...], outcome: HttpOutcome) -> None:
    """Notifications, InfluxDB and remote write."""
    assert {outcome_of(status) for status in statuses} == {outcome}


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("7", 7.0), ("0", 0.0), (" 2.5 ", 2.5), ("99999999", 600.0), ("-5", None), ("inf", None),
     ("Sat, 01 Aug 2026 12:00:30 GMT", 30.0), ("Sat, 01 Aug 2026 11:00:30 GMT", None), ("", None)],
)  # fmt: skip
def test_retry_after_is_seconds_or_a_date(text: str, seconds: float | None) -> None:
    """With a limit; a date that is past asks for nothing."""
    assert retry_after(text, 1_785_585_600.0, 600.0) == seconds


@pytest.mark.parametrize(
    ("pattern", "home"),
    [(DOUBLING, "telemetry/runtime/backoff.py"), (CLASSIFYING, "telemetry/runtime/http_outcome.py")],
)
def test_nothing_else_backs_off_or_classifies_answers(pattern: str, home: str) -> None:
    """A second implementation fails here."""
    found = {
        str(path.relative_to(ROOT))
        for package in PACKAGES
        for path in (ROOT / package).rglob("*.py")
        if re.search(pattern, path.read_text(encoding="utf-8"))
    }
    assert found == {home}
