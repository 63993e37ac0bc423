"""What the servers really answer, and what we make of it: each test is one row of the quirks that
were found on influxd 1.6.7 and victoria-metrics 1.79.5."""

from __future__ import annotations

import gzip
import json
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from aggregator.influx.client import InfluxClient
from aggregator.influx.lines import LineColumn, LineEncoder
from aggregator.influx.response import ServerReply, WriteAction, WriteVerdict, evaluate
from aggregator.influx.setup import prepare
from aggregator.settings.influx import InfluxApi, InfluxConfig
from telemetry.errors import StoreError
from tests.aggregator.influx_feed import influx_config, prepared
from tests.influxes import Influxd, VictoriaMetrics
from tests.kit.waiting import end_of_patience

NOW = 1_795_000_000
NOW_MS = NOW * 1000


def write(config: InfluxConfig, text: str, policy: str = "raw") -> tuple[ServerReply, WriteVerdict]:
    with InfluxClient(config) as client:
        answer = client.write(policy, gzip.compress(text.encode()))
    return answer, evaluate(answer, text.count("\n"), float(NOW))


def make(config: InfluxConfig) -> list[str]:
    said: list[str] = []
    with InfluxClient(config) as client:
        prepare(client, said.append)
    return said


def test_a_missing_database_is_404_and_can_be_made(influxd: Influxd) -> None:
    config = influx_config(influxd.url)
    answer, verdict = write(config, f"gpu,node=a v=1 {NOW_MS}\n")
    assert answer.status == 404
    assert f'database not found: \\"{config.database}\\"' in answer.text
    assert verdict.action is WriteAction.FIX
    assert verdict.missing
    make(config)
    assert write(config, f"gpu,node=a v=1 {NOW_MS}\n")[1].action is WriteAction.ON


def test_an_integer_in_a_float_field_is_refused_counted_and_not_sent_again(influxd: Influxd) -> None:
    config = prepared(influxd.url)
    write(config, f"gpu,node=a v=1 {NOW_MS}\n")
    answer, verdict = write(config, f"gpu,node=a v=2i {NOW_MS + 1}\n")
    assert answer.status == 400
    assert "field type conflict" in answer.text
    assert verdict == WriteVerdict(WriteAction.ON, Counter(field_type=1), problem=verdict.problem)


def test_of_three_lines_one_is_bad_and_the_others_are_stored(influxd: Influxd) -> None:
    config = prepared(influxd.url)
    lines = f"gpu,node=a v=1 {NOW_MS}\ngpu,node=a v= {NOW_MS}\ngpu,node=b v=2 {NOW_MS}\n"
    answer, verdict = write(config, lines)
    assert answer.status == 400
    assert "unable to parse" in answer.text
    assert "dropped=0" in answer.text
    assert verdict.action is WriteAction.ON
    assert verdict.refused == {"unparsable": 1}
    assert len(influxd.rows("select v from gpu", config.database)) == 2


def test_victoria_metrics_says_204_to_a_bad_line_so_every_line_must_be_right(victoria: VictoriaMetrics) -> None:
    config = influx_config(victoria.url)
    answer, verdict = write(config, f"bad,node=a v=1 {NOW_MS}\nbad,node=b v= {NOW_MS}\n")
    assert answer.status == 204
    assert verdict.action is WriteAction.ON
    assert len(seen(victoria, "bad_v", 1)) == 1


@pytest.mark.parametrize("value", ["NaN", "5u", "+Inf"])
def test_what_influxdb_takes_for_no_number_is_never_written(influxd: Influxd, value: str) -> None:
    config = prepared(influxd.url)
    answer, _ = write(config, f"gpu,node=a v={value} {NOW_MS}\n")
    assert answer.status == 400
    encoder = LineEncoder(100)
    strange = np.array([np.nan, np.inf, -np.inf, 1e20, 1e-30, -0.0, 3.4e38], np.float32)
    counts = np.array([np.nan, np.inf, 1e300, 2.0**53, 0.0, -1.0, 7.0])
    heads = np.array([f",row={row}" for row in range(7)], object)
    at = np.full(7, NOW * 10**9)
    (chunk,) = encoder.encode("odd", heads, at, [LineColumn("v", strange), LineColumn("n", counts, whole=True)])
    assert write(config, chunk.text.decode())[0].status == 204
    stored = {
        series["tags"]["row"]: series["values"][0][1:]
        for series in influxd.query("select v, n from odd group by row", config.database)
    }
    assert stored == {"3": [1e20, 2**53], "4": [1e-30, 0], "5": [0.0, -1], "6": [3.4e38, 7]}


def test_points_older_than_the_server_keeps_them_are_dropped_from_the_spool(influxd: Influxd) -> None:
    config = prepared(influxd.url, raw_age_seconds=3600.0)
    now = time.time_ns() // 10**6
    answer, verdict = write(config, f"gpu,node=a v=1 {now - 7200_000}\ngpu,node=a v=2 {now}\n")
    assert answer.status == 400
    assert "points beyond retention policy dropped=1" in answer.text
    assert verdict.action is WriteAction.ON
    assert verdict.refused == {"beyond_retention": 1}
    assert influxd.rows("select v from gpu", config.database) == [[now, 2]]


def test_an_unknown_retention_policy_is_500_and_still_a_fault_of_the_set_up(influxd: Influxd) -> None:
    config = prepared(influxd.url)
    answer, verdict = write(config, f"gpu,node=a v=1 {NOW_MS}\n", policy="weeks")
    assert answer.status == 500
    assert "retention policy not found" in answer.text
    assert verdict.action is WriteAction.FIX
    assert verdict.missing


def test_microseconds_are_taken_for_nanoseconds_so_we_write_milliseconds(influxd: Influxd) -> None:
    config = prepared(influxd.url)
    influxd.post("/write", f"us,node=a v=1 {NOW}000000\n", db=config.database, precision="us")
    assert influxd.rows("select v from us", config.database)[0][0] < 1000 * 86_400 * 365 * 50
    write(config, f"ms,node=a v=1 {NOW_MS}\n")
    assert influxd.rows("select v from ms", config.database) == [[NOW_MS, 1]]


def test_influxdb_1_6_has_neither_health_nor_v2_so_ping_tells_who_it_is(influxd: Influxd) -> None:
    assert influxd.get("/health")[0] == 404
    assert influxd.post("/api/v2/write", "", bucket="b", org="o")[0] == 404
    with InfluxClient(influx_config(influxd.url)) as client:
        server = client.server()
    assert server.product == "InfluxDB"
    assert server.version.startswith("1.6.7")
    assert server.major == 1
    config = influx_config(influxd.url, api=InfluxApi.V2, org="o")
    with pytest.raises(StoreError, match=r'no /api/v2/write .*Write api = "v1"'):
        make(config)
    assert write(config, f"gpu,node=a v=1 {NOW_MS}\n")[1].action is WriteAction.FIX


def test_a_get_is_no_protection_so_only_select_is_ever_asked(influxd: Influxd) -> None:
    config = prepared(influxd.url)
    write(config, f"gpu,node=a v=1 {NOW_MS}\n")
    text = "select v from gpu; drop measurement gpu"
    status, answer = influxd.get("/query", db=config.database, q=text)
    assert status == 200
    assert "deprecated" in answer


def test_the_password_is_sent_and_a_wrong_one_keeps_everything(
    locked: Influxd, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("secrets")
    (folder / "right").write_text("secret\n")
    (folder / "wrong").write_text("guess\n")
    right = prepared(locked.url, username="admin", password_file=folder / "right")
    assert write(right, f"gpu,node=a v=1 {NOW_MS}\n")[1].action is WriteAction.ON
    wrong = influx_config(locked.url, username="admin", password_file=folder / "wrong")
    answer, verdict = write(wrong, f"gpu,node=a v=1 {NOW_MS}\n")
    assert answer.status == 401
    assert verdict.action is WriteAction.FIX
    assert not verdict.missing
    with pytest.raises(StoreError, match=r"\(401\).*password_file"):
        make(wrong)


def test_a_body_that_is_too_large_is_split(small: Influxd) -> None:
    config = prepared(small.url)
    lines = "".join(f"gpu,node=a{n:06d} v={n**7 % 99991} {NOW_MS}\n" for n in range(2000))
    answer, verdict = write(config, lines)
    assert answer.status == 413
    assert verdict.action is WriteAction.SPLIT


@pytest.mark.parametrize("api", list(InfluxApi))
def test_victoria_metrics_takes_both_doors_and_says_who_it_is(victoria: VictoriaMetrics, api: InfluxApi) -> None:
    config = influx_config(victoria.url, api=api, org="any")
    with InfluxClient(config) as client:
        assert client.server().product == "VictoriaMetrics"
    assert "retentionPeriod" in make(config)[0]
    name = f"door{api.value}"
    assert write(config, f"{name},node=a v=1.5,n=7i {NOW_MS}\n")[0].status == 204
    (series,) = seen(victoria, f"{name}_v", 1)
    assert series["values"] == [1.5]
    assert series["timestamps"] == [NOW_MS]
    assert ("db" in series["metric"]) is (api is InfluxApi.V1)
    _, text = victoria.get("/api/v1/query", query=f"{name}_n", time=str(NOW + 1))
    assert json.loads(text)["data"]["result"][0]["value"][1] == "7"


def seen(server: VictoriaMetrics, name: str, series: int) -> list[dict[str, Any]]:
    """What it has of a name, once it shows it."""
    deadline = end_of_patience()
    while time.monotonic() < deadline:
        found = server.series(f'{{__name__="{name}"}}')
        if len(found) >= series:
            return found
        time.sleep(0.05)
    raise TimeoutError(name)


@pytest.fixture(scope="module")
def locked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influxd]:
    """An influxd that asks for a password."""
    server = Influxd(tmp_path_factory.mktemp("locked"), http="auth-enabled = true")
    server.start()
    server.post("/query", q="create user admin with password 'secret' with all privileges")
    yield server
    server.kill()


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Influxd]:
    """An influxd that takes small bodies only."""
    server = Influxd(tmp_path_factory.mktemp("small"), http="max-body-size = 1000")
    server.start()
    yield server
    server.kill()
