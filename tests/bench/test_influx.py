"""The measurement of InfluxDB runs, and what it compares holds the same points."""

from __future__ import annotations

import time
from pathlib import Path

from bench import influx
from bench.store_ticks import fleet_ticks
from tests.influxes import Influxd


def test_every_way_of_making_lines_is_measured() -> None:
    (tick,) = fleet_ticks(80, 1, time.time_ns() // 10**9 * 10**9)
    found = influx.lines(tick)
    for name in ("encoder", "python", "influxdb_client", "gzip"):
        assert found[f"{name}_ns_per_value"] > 0
    assert found["gzip_bytes_per_value"] < found["bytes_per_value"]


def test_both_stores_get_the_same_seconds(tmp_path: Path) -> None:
    server = Influxd(tmp_path / "probe")
    server.start()  # skips where there is none
    server.kill()
    found = influx.stores(tmp_path / "stores", 16, 6)
    assert found["embedded"]["commit_milliseconds_p50"] > 0
    assert found["readings"]["points"] == 16 * 6
    assert found["readings"]["behind_points"] == found["means"]["behind_points"] == 0
    assert found["means"]["points"] >= 16  # at least the states at the start
