"""Findings of `kilowatch doctor` on what is open: each on a real broker, and real files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from kilowatch.doctor.access import broker_access, http_access, secret_files, state_folders
from kilowatch.doctor.finding import DoctorFinding
from kilowatch.pki.access_list import access_list
from kilowatch.settings import Settings, load
from telemetry.files import local_token
from telemetry.wire.mqtt import BrokerConfig
from tests.brokers import Embedded, Mosquitto

MOSQUITTO_PASSWD = shutil.which("mosquitto_passwd")


def only(found: list[DoctorFinding]) -> DoctorFinding:
    (finding,) = found
    return finding


async def test_a_broker_that_asks_for_no_user_is_named(mosquitto: Mosquitto) -> None:
    finding = only(await broker_access(mosquitto.config, "lab"))
    assert finding.level == "warning"
    assert "every user of this machine can publish as any node and command coll" in finding.text
    assert "kilowatch pki init" in finding.cure


async def test_the_embedded_broker_is_this_users_alone(
    embedded_broker: Embedded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = BrokerConfig(host=embedded_broker.host, port=embedded_broker.port)
    finding = only(await broker_access(here, "default"))
    assert (finding.level, "who alone has its password" in finding.text) == ("ok", True)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another user"))
    monkeypatch.setattr(local_token, "SYSTEM", ())
    assert await broker_access(here, "default") == []  # it can't even connect


@pytest.mark.skipif(MOSQUITTO_PASSWD is None, reason="apt-get install mosquitto")
@pytest.mark.parametrize("listed", [False, True], ids=["without-access-list", "with-access-list"])
async def test_a_broker_with_users_is_safe_only_with_an_access_list(
    tmp_path: Path, listed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And is called safe by what it answered, not by what a busy machine did not do in time."""
    monkeypatch.setattr("kilowatch.doctor.access.PROBE_SECONDS", 0.0)
    passwords, password, acl = (tmp_path / name for name in ("passwords", "password", "acl"))
    password.write_text("secret")
    assert MOSQUITTO_PASSWD is not None
    subprocess.run(  # noqa: ASYNC221 - it returns at once
        [MOSQUITTO_PASSWD, "-b", "-c", str(passwords), "dgx01", "secret"], check=True
    )
    acl.write_text(access_list("lab", [], ["dgx01"]))
    more = f"acl_file {acl}\n" if listed else ""
    broker = Mosquitto(tmp_path, f"password_file {passwords}\n{more}", anonymous=False)
    broker.start()
    try:
        config = BrokerConfig(port=broker.port, username="dgx01", password_file=password)
        finding = only(await broker_access(config, "lab"))
    finally:
        broker.kill()
    expected = ("ok", "lets nobody publish") if listed else ("warning", "it has no access list")
    assert (finding.level, expected[1] in finding.text) == (expected[0], True), finding


def test_names_of_dcgm_that_are_not_served_are_a_warning(tmp_path: Path) -> None:
    counters = tmp_path / "counters.csv"
    counters.write_text("DCGM_FI_DEV_GPU_TEMP, gauge, t\nDCGM_EXP_P2P_STATUS, gauge, pairs\n")
    file = tmp_path / "kilowatch.toml"
    file.write_text(f'[aggregator]\ndata_dir = "{tmp_path}"\ndcgm_counters = "{counters}"\n')
    (found,) = http_access(load(file).aggregator)
    assert found.level == "warning"
    assert f"not served: 1; {counters}:2: DCGM_EXP_P2P_STATUS" in found.text


async def test_a_broker_elsewhere_without_tls_is_named() -> None:
    """The broker has no address: the rest can't be tried."""
    finding = only(await broker_access(BrokerConfig(host="broker.invalid"), "lab"))
    assert "broker.invalid:1883 is used without TLS" in finding.text


def settings_with(tmp_path: Path, text: str) -> Settings:
    path = tmp_path / "kilowatch.toml"
    path.write_text(text)
    return load(path, {})


@pytest.mark.parametrize("name", ["password_file", "key_file"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o600, 0o604])
def test_a_secret_that_every_user_can_read_is_a_fault(tmp_path: Path, name: str, mode: int) -> None:
    """A group of the service's own may read it."""
    secret = tmp_path / "secret"
    secret.write_text("secret")
    secret.chmod(mode)
    found = secret_files(settings_with(tmp_path, f'[broker]\n{name} = "{secret}"\n'))
    if mode & 0o004:
        finding = only(found)
        assert finding.level == "fault"
        assert f"(mode {mode:04o})" in finding.text
        assert f"chmod 600 {secret}" in finding.cure
    else:
        assert found == []


def test_secrets_of_channels_and_stores_are_checked_too(tmp_path: Path) -> None:
    for name in ("token", "url"):
        (tmp_path / name).write_text("secret")
        (tmp_path / name).chmod(0o644)
    found = secret_files(
        settings_with(
            tmp_path,
            f'[aggregator]\ntoken_file = "{tmp_path}/token"\n'
            f'[alerts.channels.chat]\ntype = "slack"\nurl_file = "{tmp_path}/url"\n',
        )
    )
    assert sorted(each.text.split(":")[0] for each in found) == [str(tmp_path / "token"), str(tmp_path / "url")]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")
@pytest.mark.parametrize(("days", "count"), [(29, 1), (31, 0)])
def test_a_certificate_is_reported_a_month_before_it_expires(tmp_path: Path, days: int, count: int) -> None:
    folder = tmp_path / "pki"
    for command in (["init", "--cluster", "lab", "--broker", "broker.example"], ["node", "dgx01", "--days", str(days)]):
        done = CliRunner().invoke(main, ["pki", *command, "--folder", str(folder)])
        assert done.exit_code == 0
    path = folder / "nodes" / "dgx01" / "node.crt"
    found = secret_files(settings_with(tmp_path, f'[broker]\ncert_file = "{path}"\n'))
    assert len(found) == count
    assert all("kilowatch pki renew" in each.cure for each in found)


def test_a_state_folder_that_others_can_enter_is_named(tmp_path: Path) -> None:
    closed, open_ = tmp_path / "closed", tmp_path / "open"
    for path, mode in ((closed, 0o700), (open_, 0o755)):
        path.mkdir()
        path.chmod(mode)
    finding = only(state_folders([closed, open_, tmp_path / "nothing"]))
    assert f"{open_}: other users of this machine can enter it (mode 0755)" in finding.text


@pytest.mark.parametrize(
    ("settings", "levels", "words"),
    [
        ("", ["ok"], "changes need a token (1 in"),
        ('listen = "0.0.0.0:9400"', ["warning"], "is not encrypted"),
        ('listen = "0.0.0.0:9400"\nanonymous_read = true', ["warning", "warning"], "reads all but"),
        ('tls_cert = "/nowhere/http.crt"', ["fault"], "can't be used"),
        ('listen = ""', [], ""),
    ],
)
def test_it_says_who_may_use_http(tmp_path: Path, settings: str, levels: list[str], words: str) -> None:
    file = tmp_path / "kilowatch.toml"
    file.write_text(f'[aggregator]\ndata_dir = "{tmp_path}"\n{settings}\n')
    assert CliRunner().invoke(main, ["token", "add", "ann", "--config", str(file)]).exit_code == 0
    found = http_access(load(file).aggregator)
    assert [each.level for each in found] == levels
    assert words in "; ".join(each.text for each in found)
    (tmp_path / "tokens.json").chmod(0o666)
    assert [each.level for each in http_access(load(file).aggregator)] == ["fault"] * bool(levels)
