"""`kilowatch doctor` checks what this machine is for, tries its rights on the bus, and ends in a verdict."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from kilowatch.__main__ import main
from kilowatch.doctor.checks import verdict
from kilowatch.doctor.finding import DoctorFinding
from kilowatch.doctor.rights import bus_name, bus_rights
from kilowatch.doctor.role import MachineRole, as_the_units_run, role_of
from kilowatch.pki.access_list import access_list
from kilowatch.settings import Settings, load
from telemetry.wire.mqtt import BrokerConfig
from tests.brokers import Mosquitto

UNITS = Path(__file__).parents[2] / "deploy" / "systemd"
MOSQUITTO_PASSWD = shutil.which("mosquitto_passwd")


def written(folder: Path, text: str) -> tuple[Path, Settings]:
    """Return a settings file and what it says."""
    path = folder / "kilowatch.toml"
    path.write_text(text)
    return path, load(path, {})


@pytest.mark.parametrize(
    ("services", "text", "role"),
    [
        (["collector"], "[aggregator]\n", "collector"),
        (["aggregator"], "", "aggregator"),
        (["collector", "aggregator"], "", "both"),
        ([], '[broker]\ncert_file = "/etc/kilowatch/aggregator.crt"\n', "aggregator"),
        ([], '[broker]\ncert_file = "/etc/kilowatch/node.crt"\n[aggregator]\n', "collector"),
        ([], "[aggregator]\n", "aggregator"),
        ([], "[collector]\n", "collector"),
        ([], "[collector]\n[aggregator]\n", "both"),
        ([], 'cluster = "x"\n', "both"),
    ],
)
def test_the_role_follows_from_units_certificate_and_sections(
    tmp_path: Path, services: list[str], text: str, role: str
) -> None:
    units = tmp_path / "units"
    units.mkdir()
    for service in services:
        shutil.copy(UNITS / f"kilowatch-{service}.service", units)
    path, loaded = written(tmp_path, text)
    found, why = role_of(path, loaded, [units])
    assert found == role
    assert why


def test_the_folders_are_those_of_the_units_and_not_of_who_calls(tmp_path: Path) -> None:
    _, loaded = written(tmp_path, "")
    same = as_the_units_run(loaded, [tmp_path / "no units"])
    assert same == loaded
    found = as_the_units_run(loaded, [UNITS])
    assert found.aggregator.data_dir == Path("/var/lib/kilowatch-data")
    assert found.collector.state_dir == Path("/var/lib/kilowatch")
    _, named = written(tmp_path, '[collector]\nstate_dir = "/srv/kilowatch"\n')
    assert as_the_units_run(named, [UNITS]).collector.state_dir == Path("/srv/kilowatch")


@pytest.mark.parametrize(
    ("levels", "level", "text"),
    [
        (["ok", "ok"], "ok", "aggregator: works"),
        (["ok", "warning"], "warning", "aggregator: works, 1 warning"),
        (["fault", "warning", "fault"], "fault", "aggregator: does not work, 2 faults, 1 warning"),
    ],
)
def test_the_verdict_is_one_line(levels: list[str], level: str, text: str) -> None:
    findings = [DoctorFinding(subject="x", level=each, text="x") for each in levels]
    found = verdict(MachineRole.AGGREGATOR, findings)
    assert (found.level, found.text) == (level, text)


def test_an_aggregator_needs_no_driver_and_a_viewer_no_broker(tmp_path: Path, mosquitto: Mosquitto) -> None:
    path, _ = written(
        tmp_path, f'[broker]\nport = {mosquitto.port}\n[aggregator]\ndata_dir = "{tmp_path}/d"\nlisten = ""\n'
    )
    for role, absent in (("aggregator", {"driver", "kernel log"}), ("viewer", {"driver", "broker"})):
        arguments = ["doctor", "--config", str(path), "--role", role, "--json"]
        result = CliRunner().invoke(main, arguments)
        found = json.loads(result.stdout)
        assert not absent & {each["subject"] for each in found}
        assert found[0]["text"] == f"{role}, by --role"
        assert found[-1]["subject"] == "verdict"
        faults = [each for each in found if each["level"] == "fault"]
        assert (result.exit_code, faults) == (0, [])


@pytest.fixture
def listed(tmp_path: Path) -> Iterator[Mosquitto]:
    """A broker whose access list knows one aggregator and one node; its users have the password x."""
    if MOSQUITTO_PASSWD is None:
        pytest.skip("apt-get install mosquitto")
    passwords, acl = tmp_path / "passwords", tmp_path / "acl"
    passwords.touch(mode=0o600)
    for user in ("kilowatch-aggregator", "agg1", "dgx01", "dgx02"):
        subprocess.run([MOSQUITTO_PASSWD, "-b", str(passwords), user, "x"], check=True)
    acl.write_text(access_list("hall", ["kilowatch-aggregator"], ["dgx01"]))
    broker = Mosquitto(tmp_path, f"password_file {passwords}\nacl_file {acl}\n", anonymous=False)
    broker.start()
    yield broker
    broker.kill()


@pytest.mark.parametrize(
    ("role", "user", "cure"),
    [
        ("aggregator", "kilowatch-aggregator", ""),
        ("aggregator", "agg1", "the name must be 'kilowatch-aggregator'"),
        ("collector", "dgx01", ""),
        ("collector", "dgx02", "that of the node, 'dgx01' (collector.node)"),
    ],
)
async def test_a_name_without_rights_is_a_fault_that_names_the_right_one(
    listed: Mosquitto, tmp_path: Path, role: str, user: str, cure: str
) -> None:
    (tmp_path / "password").write_text("x")
    _, loaded = written(
        tmp_path,
        f'cluster = "hall"\n[broker]\nport = {listed.port}\nusername = "{user}"\n'
        f'password_file = "{tmp_path}/password"\n[collector]\nnode = "dgx01"\n',
    )
    (found,) = await bus_rights(loaded, MachineRole(role))
    if cure:
        assert found.level == "fault"
        assert f"lets us in as {user!r}, and passes nothing on" in found.text
        assert cure in found.cure
    else:
        assert (found.level, found.text) == ("ok", f"the broker lets this {role} publish and subscribe")


@pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")
def test_a_client_is_known_by_the_name_in_its_certificate(tmp_path: Path) -> None:
    folder = tmp_path / "pki"
    for command in (["init", "--cluster", "hall", "--broker", "b.example"], ["aggregator", "agg1"]):
        done = CliRunner().invoke(main, ["pki", *command, "--folder", str(folder)])
        assert done.exit_code == 0, done.output
    certificate = folder / "aggregators" / "agg1" / "aggregator.crt"
    assert bus_name(BrokerConfig(cert_file=certificate)) == "agg1"
    assert bus_name(BrokerConfig()) == ""
