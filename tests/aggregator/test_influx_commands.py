"""InfluxDB from where an operator stands: settings, `influx setup`, `doctor`, `/metrics`."""

from __future__ import annotations

import itertools
from collections import Counter
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families

from aggregator.influx.metrics import families
from aggregator.influx.segments import SpoolRecord
from aggregator.influx.sender import SenderMetrics
from aggregator.influx.spool import Spool
from aggregator.settings.influx import InfluxConfig
from kilowatch.__main__ import main
from kilowatch.cli.config import verify
from kilowatch.settings import load
from telemetry.errors import ConfigError
from telemetry.wire.exposition import render
from tests.brokers import free_port
from tests.influxes import Influxd, VictoriaMetrics

_numbers = itertools.count()


def kilowatch(*arguments: str) -> Result:
    return CliRunner().invoke(main, list(arguments))


def written(folder: Path, url: str, *more: str, kind: str = "influxdb") -> Path:
    """A settings file with a database of its own."""
    path = folder / "k.toml"
    lines = [f'[aggregator.store]\nkind = "{kind}"\n[aggregator.store.influxdb]', f'url = "{url}"',
             f'database = "command-{next(_numbers)}"', *more]  # fmt: skip
    path.write_text("\n".join(lines) + "\n")
    return path


def test_one_command_sets_it_up_and_may_be_run_again(tmp_path: Path, influxd: Influxd) -> None:
    file = written(tmp_path, influxd.url)
    database = load(file, {}).aggregator.store.influxdb.database
    for _ in range(2):
        result = kilowatch("influx", "setup", "--config", str(file))
        assert result.exit_code == 0, result.output
        assert f"{database}.raw: kept 7d" in result.output
        assert "InfluxDB 1.6.7" in result.output
    policies = influxd.rows(f'show retention policies on "{database}"')
    assert {row[0]: (row[1], row[4]) for row in policies} == {
        "raw": ("168h0m0s", True),
        "rollup_1m": ("8760h0m0s", False),
        "rollup_1h": ("43800h0m0s", False),
        "events": ("43800h0m0s", False),
    }
    changed = written(tmp_path, influxd.url, "raw_age_seconds = 86400")
    text = changed.read_text().replace(load(changed, {}).aggregator.store.influxdb.database, database)
    changed.write_text(text)
    looked = kilowatch("influx", "check", "--config", str(changed))
    assert "raw is 168h0m0s, not 1d" in looked.output
    assert kilowatch("influx", "setup", "--config", str(changed)).exit_code == 0
    assert "raw is" not in kilowatch("influx", "check", "--config", str(changed)).output


def test_set_up_again_shortens_what_the_server_keeps_in_long_shards(tmp_path: Path, influxd: Influxd) -> None:
    """1.x refuses an age shorter than the shards that it made for the age before."""
    file = written(tmp_path, influxd.url)
    assert kilowatch("influx", "setup", "--config", str(file)).exit_code == 0
    with file.open("a") as settings:
        settings.write("raw_age_seconds = 7200\nrollup_age_seconds = [259200, 864000]\n")
    result = kilowatch("influx", "setup", "--config", str(file))
    assert result.exit_code == 0, result.output
    database = load(file, {}).aggregator.store.influxdb.database
    policies = influxd.rows(f'show retention policies on "{database}"')
    assert {row[0]: (row[1], row[2]) for row in policies} == {
        "raw": ("2h0m0s", "1h0m0s"),
        "rollup_1m": ("72h0m0s", "24h0m0s"),
        "rollup_1h": ("240h0m0s", "168h0m0s"),
        "events": ("43800h0m0s", "168h0m0s"),
    }


@pytest.mark.parametrize("address", ["influx:8086", "http://influx:99999", "http://influx:port"])
@pytest.mark.parametrize("command", ["setup", "check"])
def test_an_address_on_the_command_line_is_looked_at_too(tmp_path: Path, command: str, address: str) -> None:
    file = written(tmp_path, "http://127.0.0.1:8086", kind="embedded")
    result = kilowatch("influx", command, "--config", str(file), "--url", address)
    assert result.exit_code == 64, result.output
    assert "aggregator.store.influxdb.url" in result.output
    assert "http://HOST:8086" in result.output


def test_set_up_says_what_is_still_to_be_written(tmp_path: Path, influxd: Influxd) -> None:
    file = written(tmp_path, influxd.url, kind="embedded")
    result = kilowatch("influx", "setup", "--config", str(file))
    assert 'write kind = "influxdb" under [aggregator.store]' in result.output


@pytest.mark.parametrize("command", [("influx", "check"), ("doctor",)])
def test_a_server_that_is_not_set_up_is_a_fault_with_its_cure(
    tmp_path: Path, influxd: Influxd, command: tuple[str, ...]
) -> None:
    file = written(tmp_path, influxd.url)
    result = kilowatch(*command, "--config", str(file))
    assert result.exit_code == 1
    assert "database not found" in result.output
    assert "→ kilowatch influx setup" in result.output
    kilowatch("influx", "setup", "--config", str(file))
    after = kilowatch(*command, "--config", str(file)).output
    assert "it accepts data" in after
    assert "raw, rollup_1m, rollup_1h, events" in after


def test_nobody_there_and_the_wrong_one_there_are_told_apart(
    tmp_path: Path, influxd: Influxd, victoria: VictoriaMetrics
) -> None:
    nobody = kilowatch("influx", "check", "--config", str(written(tmp_path, f"http://127.0.0.1:{free_port()}")))
    assert nobody.exit_code == 1
    assert "nothing listens there" in nobody.output
    assert "start the server" in nobody.output
    wrong = kilowatch("influx", "check", "--config", str(written(tmp_path, f"{influxd.url}/none")))
    assert wrong.exit_code == 1
    assert "no InfluxDB answers there" in wrong.output
    secure = influxd.url.replace("http:", "https:")
    plain = kilowatch("influx", "check", "--config", str(written(tmp_path, secure)))
    assert f"{secure}: it does not speak TLS on this port" in plain.output
    other = kilowatch("influx", "check", "--config", str(written(tmp_path, victoria.url)))
    assert other.exit_code == 0
    assert "answers no InfluxQL" in other.output


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('url = "influx:8086"', r"influxdb\.url: 'influx:8086' is no address.*http://HOST:8086"),
        ('url = "http://me:secret@host:8086"', r"influxdb\.url: a password does not belong"),
        ('api = "v3"', r"influxdb\.api: invalid enum value 'v3'"),
        ('api = "v2"', r"influxdb\.org: api v2 needs the name"),
        ('database = "a/b"', r"influxdb\.database: 'a/b' is no name"),
        ("every_seconds = 300", r"influxdb\.every_seconds: it must be 0 to 60"),
        ("rollup_seconds = [15, 3600]", r"influxdb\.rollup_seconds: \[15, 3600\] are no steps"),
        ("rollup_age_seconds = [1]", r"influxdb\.rollup_age_seconds: it has 1 ages for 2"),
        ("spool_bytes = 1000", r"influxdb\.spool_bytes: it must be at least 1 MiB"),
        ('password_file = "/x"', r"influxdb\.password_file: there is no username"),
        ("spol_bytes = 1", r"influxdb\.spol_bytes: there is no such key.*'spool_bytes'"),
    ],
)
def test_a_mistake_in_the_settings_has_its_place_and_its_cure(tmp_path: Path, text: str, expected: str) -> None:
    path = tmp_path / "k.toml"
    path.write_text(f'[aggregator.store]\nkind = "influxdb"\n[aggregator.store.influxdb]\n{text}\n')
    with pytest.raises(ConfigError, match=expected):
        load(path, {})


def test_secrets_are_opened_by_config_check_and_are_never_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("very-secret==\n")
    file = written(tmp_path, "http://127.0.0.1:1", f'token_file = "{tmp_path}/token"')
    assert kilowatch("config", "check", "--config", str(file)).exit_code == 0
    assert "very-secret" not in kilowatch("config", "show", "--config", str(file)).output
    (tmp_path / "token").unlink()
    with pytest.raises(ConfigError, match=r"token_file: .*can't be read"):
        verify(load(file, {}))
    (tmp_path / "token").write_text("\n")
    with pytest.raises(ConfigError, match="is empty"):
        InfluxConfig(token_file=tmp_path / "token").secret()


def test_the_metrics_page_tells_of_spool_and_sender(tmp_path: Path) -> None:
    sender = SenderMetrics(
        connected=True,
        requests=9,
        failures=2,
        seconds=1.5,
        delivered=100,
        delivered_bytes=5000,
        refused=Counter(field_type=3),
    )
    spool = Spool(tmp_path / "spool", 1 << 20)
    spool.append([SpoolRecord("raw", 11, 1_700_000_000_500, 1_700_000_000_900, b"x")])
    page = render(families(sender, spool, {"spool_full": 7})).decode()
    spool.close()
    found = {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }
    assert found["kilowatch_influxdb_points_refused_total", "field_type"] == 3
    assert found["kilowatch_influxdb_points_refused_total", "beyond_retention"] == 0
    assert found["kilowatch_influxdb_points_dropped_total", "spool_full"] == 7
    assert found["kilowatch_influxdb_points_dropped_total", "spool_old"] == 0
    assert found["kilowatch_influxdb_spool_oldest_timestamp_seconds",] == 1_700_000_000.5
    assert found["kilowatch_influxdb_spool_points",] == 11
    assert found["kilowatch_influxdb_connected",] == 1
