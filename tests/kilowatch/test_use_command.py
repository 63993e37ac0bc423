"""`kilowatch report --by` as people type it."""

from __future__ import annotations

import json

from kilowatch.exit_codes import ExitCode
from tests.kilowatch.test_power_commands import kilowatch, served


def test_by_needs_a_month_and_has_no_page() -> None:
    alone = kilowatch("report", "--by", "user")
    assert (alone.exit_code, "--month 2026-10" in alone.output) == (ExitCode.USAGE, True)
    page = kilowatch("report", "--by", "user", "--month", "now", "--html", "x.html")
    assert (page.exit_code, "leave out --by" in page.output) == (ExitCode.USAGE, True)
    odd = kilowatch("report", "--by", "node", "--month", "now")
    assert odd.exit_code == ExitCode.USAGE


def test_a_month_without_jobs_says_so_and_not_zero() -> None:
    with served() as url:
        table = kilowatch("report", url, "--month", "2020-01", "--by", "account")
        as_json = kilowatch("report", url, "--month", "now", "--by", "job", "--json")
        wrong = kilowatch("report", url, "--month", "october", "--by", "job")
    assert (table.exit_code, "no job is known" in table.output) == (ExitCode.CLEAN, True), (
        table.output
    )
    assert (json.loads(as_json.output)["by"], json.loads(as_json.output)["rows"]) == ("job", [])
    assert wrong.exit_code != ExitCode.CLEAN
    assert "Write 2026-10" in wrong.output
