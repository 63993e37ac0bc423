"""`kilowatch report --by` as people type it: table, CSV, JSON, and a page that needs nothing else."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest

from api.use import UseReply, UseRow
from kilowatch.exit_codes import ExitCode
from kilowatch.text.use import CSV_COLUMNS, use_csv, use_html, use_lines
from tests.aggregator.test_http_jobs import filled
from tests.kilowatch.test_bill_command import EVIL, Page
from tests.kilowatch.test_power_commands import kilowatch, served

KNOWN = UseRow(
    user="ada",
    jobs=2,
    gpu_hours=4.0,
    hours_coverage=1.0,
    utilization_ratio=0.5,
    utilization_coverage=1.0,
    energy_joules=3.6e6,
    energy_coverage=1.0,
    wall_joules=7.2e6,
    wall_coverage=1.0,
    cost=0.5,
    cost_coverage=1.0,
    co2_kg=0.95,
    asked_gpu_hours=16.0,
    asked_used_ratio=0.25,
    asked_coverage=1.0,
    gpus_held=8,
    gpus_idle=3,
    gpus_coverage=1.0,
    memory_peak_ratio=0.71,
    memory_coverage=0.5,
)
UNKNOWN = UseRow(user="=cmd|x", jobs=1, hours_coverage=0.0)
REPLY = UseReply(
    at=0,
    by="user",
    month="2026-10",
    timezone="UTC",
    currency="EUR",
    g_per_kwh=475.0,
    rows=[KNOWN, UNKNOWN],
    unheld=UseRow(jobs=0, gpu_hours=1.0, hours_coverage=1.0),
)


def test_csv_leaves_empty_what_is_not_known_and_has_no_formulas() -> None:
    ada, other, nobody = csv.DictReader(io.StringIO(use_csv(REPLY)))
    assert tuple(ada) == CSV_COLUMNS
    assert (ada["row"], ada["name"], ada["month"], ada["currency"]) == ("user", "ada", "2026-10", "EUR")
    assert (float(ada["wall_joules"]), float(ada["co2_kg"])) == (7.2e6, 0.95)
    assert other["name"] == "'=cmd|x"
    assert (ada["asked_gpu_hours"], ada["asked_used_ratio"], ada["gpus_idle"]) == ("16.0", "0.25", "3")
    unknown = ("asked_gpu_hours", "asked_used_ratio", "gpus_held", "gpus_idle", "memory_peak_ratio", "gpu_hours", "utilization_ratio", "energy_joules", "wall_joules", "cost", "currency", "co2_kg")  # fmt: skip
    assert [other[name] for name in unknown] == [""] * len(unknown)
    assert (nobody["row"], nobody["name"], nobody["gpu_hours"]) == ("nobody", "", "1.0")


def test_the_page_has_no_scripts_and_names_are_escaped() -> None:
    text = use_html(
        UseReply(
            at=0,
            by="user",
            month="2026-10",
            timezone="UTC",
            g_per_kwh=475.0,
            rows=[KNOWN, UseRow(user=EVIL, jobs=1, hours_coverage=0.0)],
        )
    )
    page = Page(text)
    assert page.tags <= {"html", "head", "meta", "title", "style", "body", "h1", "p", "table", "tr", "td", "th"}
    assert set(page.attributes) <= {"lang", "charset", "http-equiv", "content", "class"}
    assert page.depth == 0
    assert "&lt;script" in text
    assert "\x1b" not in text
    for shown in (
        "<td>16.00</td><td>25%</td><td>not known</td><td>not known</td><td>8</td><td>3</td><td>~71%</td>",
        "<td>0.950</td>",
        "<td>not known</td>",
        "at 475 g a kWh",
        "GPUs that no job held were not",
    ):
        assert shown in text


def test_the_table_names_co2_and_where_there_is_none() -> None:
    lines = use_lines(REPLY)
    blank = lines.index("")
    assert lines[1].split()[-2:] == ["KG", "CO2"]
    assert lines[2].split()[-1] == "0.950"
    assert lines[3].split()[-2:] == ["not", "known"]
    assert lines[blank + 2].split() == ["ada", "16.00", "25%", *["not", "known"] * 2, "8", "3", "~71%"]
    assert lines[blank + 3].split() == ["=cmd|x", *["not", "known"] * 7]
    assert max(map(len, lines)) <= 100
    older = UseReply(at=0, by="user", month="2026-10", timezone="UTC", rows=[UNKNOWN])
    assert "ASKED" not in "\n".join(use_lines(older)), "an older aggregator counts none of it"
    assert not any(line.startswith("CO2") for line in use_lines(older))


def test_a_month_of_an_aggregator_in_all_four_forms(tmp_path: Path) -> None:
    path = tmp_path / "use.html"
    view, _ = filled()
    with served(view) as url:
        asked = ("report", url, "--month", "now", "--by", "user")
        table, as_csv, as_json = (kilowatch(*asked, *form) for form in ((), ("--csv",), ("--json",)))
        page = kilowatch(*asked, "--html", str(path))
        closed = kilowatch(*asked, "--html", str(tmp_path / "none" / "use.html"))
    assert {table.exit_code, as_csv.exit_code, as_json.exit_code, page.exit_code} == {ExitCode.CLEAN}
    reply = json.loads(as_json.output)
    users = [row["user"] for row in reply["rows"]]
    assert users
    written = path.read_text()
    assert page.output == ""
    for row, parsed in zip(reply["rows"], csv.DictReader(io.StringIO(as_csv.output)), strict=False):
        assert parsed["name"] == row["user"]
        assert float(parsed["gpu_hours"]) == row["gpu_hours"]
        assert (parsed["co2_kg"] == "") == (row["wall_joules"] is None)
        assert row["user"] in table.output
        assert row["user"] in written
    assert closed.exit_code != ExitCode.CLEAN
    assert "No such file" in closed.output


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--by", "user"), "--month 2026-10"),
        (("--by", "node", "--month", "now"), "'user', 'account', 'job'"),
        (("--csv",), "--csv is of a month"),
        (("--csv", "--month", "now"), "give --by user"),
        (("--csv", "--json", "--by", "user", "--month", "now"), "Give --csv or --json"),
    ],
)
def test_what_does_not_go_together_is_said(arguments: tuple[str, ...], words: str) -> None:
    result = kilowatch("report", *arguments)
    assert result.exit_code == ExitCode.USAGE
    assert words in " ".join(result.output.split())


def test_a_month_without_jobs_says_so_and_not_zero() -> None:
    with served() as url:
        table = kilowatch("report", url, "--month", "2020-01", "--by", "account")
        as_json = kilowatch("report", url, "--month", "now", "--by", "job", "--json")
        wrong = kilowatch("report", url, "--month", "october", "--by", "job")
    assert (table.exit_code, "no job is known" in table.output) == (ExitCode.CLEAN, True), table.output
    assert (json.loads(as_json.output)["by"], json.loads(as_json.output)["rows"]) == ("job", [])
    assert wrong.exit_code != ExitCode.CLEAN
    assert "Write 2026-10" in wrong.output
