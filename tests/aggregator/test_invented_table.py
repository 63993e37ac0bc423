"""A kind of table is a row: drives, which no release has, are seen everywhere once seven files declare them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.brokers import Embedded

ROOT = Path(__file__).parents[2]
INSERTED = (
    ("telemetry/metric.py", "\n\nclass Lane(", '    DRIVE = "drive"\n'),
    (
        "telemetry/devices.py",
        "class MemoryPool(",
        "class Drive(msgspec.Struct, frozen=True, kw_only=True):\n    id: str\n    name: str\n\n\n",
    ),
    ("telemetry/wire/inventory.py", "from telemetry.errors", "from telemetry.devices import Drive\n"),
    ("telemetry/wire/inventory.py", "    pools: tuple[", "    drives: tuple[Drive, ...] = ()\n"),
    (
        "telemetry/wire/tables.py",
        '    )\n}\n"""By table.',
        """\
        TableKind(
            table=Table.DRIVE,
            noun="drive",
            help="One row for each drive, labelled `drive`.",
            devices=attrgetter("drives"),
            prefix="drive:",
            labels=lambda _, drive: {"drive": drive.name},
            columns={"key": attrgetter("id"), "name": attrgetter("name")},
        ),
""",
    ),
    ("api/alerts.py", "    CIRCUIT =", '    DRIVE = "drive"\n'),
    ("telemetry/catalogue/__init__.py", "from telemetry.metric", "from telemetry.catalogue import drive\n"),
    ("telemetry/catalogue/__init__.py", ")\n\nBY_NAME", "    *drive.METRICS,\n"),
    (
        "telemetry/catalogue/drive.py",
        "",
        """\
from telemetry.metric import Kind, Lane, Metric, Table, Unit

METRICS = (
    Metric(
        name="drive_temperature_celsius", unit=Unit.CELSIUS, table=Table.DRIVE, help="Temperature of the drive.",
    ),
    Metric(
        name="drive_written_bytes_total", unit=Unit.BYTES, table=Table.DRIVE, help="Bytes written to the drive.",
        kind=Kind.COUNTER, lane=Lane.SLOW,
    ),
)
""",
    ),
)
"""Declarations of the table: file, text before which each is inserted, and its own text."""


@pytest.fixture
def shown(tmp_path: Path, embedded_broker: Embedded) -> dict[str, Any]:
    """Output of each face of an aggregator in a process of its own whose `telemetry` has the table."""
    for package in {name.partition("/")[0] for name, _, _ in INSERTED}:
        shutil.copytree(ROOT / package, tmp_path / package)
    for name, before, new in INSERTED:
        path = tmp_path / name
        text = path.read_text() if before else ""
        assert text.count(before) == 1, (name, before)
        path.write_text(text.replace(before, new + before))
    broker = msgspec.json.encode(embedded_broker.config, enc_hook=str).decode()
    done = subprocess.run(
        [sys.executable, "-m", "tests.aggregator.invented_table", str(tmp_path / "data"), broker],
        cwd=tmp_path,  # before all others on the path
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert "Traceback" not in done.stderr, done.stderr[:4000]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_table_that_is_declared_in_seven_files_is_seen_everywhere(shown: dict[str, Any]) -> None:
    """In frame, store, history, API, pages of metrics, dashboard and page; and in OTLP and InfluxDB."""
    assert len({name for name, _, _ in INSERTED}) == 7
    assert shown["frame"] == {"drive_fast": [[41.5], [63.25]], "drive_slow": [[1e12], [2e12 + 1]]}
    assert shown["store"] == [63.25, 2e12 + 1]
    assert shown["history"]["mean"][:3] == [63.25] * 3
    for face in ("fleet", "past"):
        found = shown[face]
        assert found["rows"] == {"node": ["a", "a"], "key": ["drive:a:0", "drive:a:1"], "name": ["nvme0", "nvme1"]}
        assert found["columns"] == {
            "drive_temperature_celsius": [41.5, 63.25],
            "drive_written_bytes_total": [1e12, 2e12 + 1],
        }
    for face in ("node", "node then"):
        assert [each["readings"] for each in shown[face]["devices"]] == [
            {"drive_temperature_celsius": 41.5, "drive_written_bytes_total": 1e12},
            {"drive_temperature_celsius": 63.25, "drive_written_bytes_total": 2e12 + 1},
        ]
    series = 'kilowatch_drive_temperature_celsius{cluster="default",node="a",drive="nvme1"} 63.25\n'
    assert series in shown["metrics"]
    assert series in shown["collector's metrics"]
    assert "kilowatch.drive_written_bytes_total" in shown["otlp"]
    assert "drive:a:1" in shown["otlp"]
    assert shown["influx"] == ",cluster=lab,drive=nvme1,id=drive:a:1,node=a"
    (alert,) = [one for one in shown["alerts"]["alerts"] if one["rule"] == "drive_hot"]
    assert alert["key"] == "drive_hot/a/drive:a:1"
    assert alert["summary"] == "a drive nvme1 is hot"
    assert alert["labels"]["drive"] == "nvme1"
    assert "a drive nvme1 is hot" in shown["dashboard"]
    lines = [line.split() for line in shown["dashboard"].splitlines()]
    assert ["drive", "temperature", "written"] in lines
    assert ["nvme1", "63.25", "°C", "1,863", "GiB"] in lines
    _, _, section = shown["page"].partition('id="drives"')
    row = section.partition("nvme1")[2].partition("</tr>")[0]
    assert "63.25 °C" in row
    assert "1,863 GiB" in row
