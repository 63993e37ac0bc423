"""`kilowatch pki`: the authority's folder, what it refuses to do, and what the page says about it."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import stat
import subprocess
from pathlib import Path

import click
import pytest
from click.testing import CliRunner, Result

from kilowatch import settings
from kilowatch.__main__ import main
from kilowatch.pki.access_list import access_list
from telemetry.wire.topics import Topic, topic

ROOT = Path(__file__).parents[2]
DEPLOY = (ROOT / "docs" / "deploy.md").read_text()

needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "pki"


def pki(command: str, folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(main, ["pki", command, "--folder", str(folder), *arguments])


def init(folder: Path, *arguments: str) -> Result:
    return pki("init", folder, "--cluster", "lab", "--broker", "broker.example", *arguments)


def text_of(path: Path) -> str:
    """Return openssl's description of a certificate."""
    command = ("openssl", "x509", "-in", str(path), "-noout", "-text")
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def contents(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@needs_openssl
def test_everything_that_is_made_is_for_its_owner_alone(folder: Path) -> None:
    assert init(folder).exit_code == 0
    assert pki("aggregator", folder).exit_code == 0
    assert pki("node", folder, "dgx01").exit_code == 0
    for path in (folder, *folder.rglob("*")):
        wanted = 0o700 if path.is_dir() else 0o600
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


@needs_openssl
def test_a_members_certificate_can_not_be_the_brokers(folder: Path) -> None:
    """The broker's serves both ends, since nats-servers are clients of each other; none can issue another."""
    init(folder, "--broker", "10.0.0.5")
    pki("node", folder, "dgx01")
    node = text_of(folder / "nodes" / "dgx01" / "node.crt")
    broker = text_of(folder / "broker" / "broker.crt")
    assert "TLS Web Client Authentication" in node
    assert "TLS Web Server" not in node
    assert "TLS Web Server Authentication" in broker
    assert "TLS Web Client Authentication" in broker
    assert "DNS:broker.example, IP Address:10.0.0.5" in broker
    for text in (node, broker):
        assert "CA:FALSE" in text
    assert re.search(r"Subject: OU ?= ?node, CN ?= ?dgx01\n", node)


@needs_openssl
def test_what_is_made_again_is_left_as_it_is(folder: Path) -> None:
    init(folder)
    pki("node", folder, "dgx01")
    before = contents(folder)
    again = init(folder)
    assert (again.exit_code, "is there already" in again.output) == (0, True)
    node = pki("node", folder, "dgx01")
    assert (node.exit_code, "kilowatch pki renew dgx01" in node.output) == (0, True)
    after = contents(folder)
    changed = {path.name for path in before if before[path] != after[path]}
    assert changed <= {"revoked.crl"}  # it has a date
    other = pki("init", folder, "--cluster", "other", "--broker", "broker.example")
    assert other.exit_code == 64
    assert "an authority for another cluster or broker is there (lab, broker.example)" in other.output
    assert contents(folder) == after


@needs_openssl
def test_a_folder_with_something_else_is_not_touched(folder: Path) -> None:
    folder.mkdir()
    (folder / "mine").write_text("mine")
    result = init(folder)
    assert result.exit_code == 64
    assert "it is not an empty folder" in result.output
    assert [path.name for path in folder.iterdir()] == ["mine"]
    assert [path.name for path in folder.parent.iterdir()] == ["pki"]


@needs_openssl
@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("node", "a/b"), "can't be part of an MQTT topic"),
        (("node", "+"), "can't be part of an MQTT topic"),
        (("node", "n" * 65), "has 65 characters"),
        (("node", "kilowatch-aggregator"), "is the aggregator's name"),
        (("node", "kilowatch-broker"), "is the broker's name"),
        (("node", "dgx01", "--days", "4000"), "the authority itself expires"),
        (("revoke", "dgx99"), "'dgx99' has no certificate"),
        (("renew", "dgx99"), "'dgx99' has no certificate"),
        (("renew",), "no name was given"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, tuple) else "",
)
def test_what_can_not_be_says_why_and_changes_nothing(folder: Path, arguments: tuple[str, ...], problem: str) -> None:
    init(folder)
    before = contents(folder)
    result = pki(arguments[0], folder, *arguments[1:])
    assert (result.exit_code, problem in result.output) == (64, True), result.output
    assert contents(folder) == before


@pytest.mark.parametrize("name", ["", "a b", "-", "a..b", "/CN=x", "DNS:x", "x,DNS:y", "ü.example"])
def test_a_broker_of_no_possible_name_is_refused(folder: Path, name: str) -> None:
    """Else it would be written into openssl's settings."""
    result = pki("init", folder, "--cluster", "lab", f"--broker={name}")
    assert (result.exit_code, "is no host name or address" in result.output) == (64, True)
    assert not folder.exists()


def test_without_an_authority_the_remedy_is_named(folder: Path) -> None:
    for command in (("node", "x"), ("aggregator",), ("show",), ("revoke", "x")):
        result = pki(command[0], folder, *command[1:])
        assert result.exit_code == 64
        assert "kilowatch pki init --cluster NAME --broker HOST" in result.output


@needs_openssl
def test_the_authority_of_a_whole_cluster_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that are suggested work as they are printed."""
    monkeypatch.chdir(tmp_path)

    def typed(line: str) -> Result:
        return CliRunner().invoke(main, line.split()[1:])

    made = typed("kilowatch init dgx01 dgx02 --cluster lab --broker broker.example")
    assert made.exit_code == 0, made.output
    before = (tmp_path / "kilowatch-cluster" / "broker.tar").read_bytes()
    for named in ("", " --folder kilowatch-cluster", " --folder kilowatch-cluster/pki"):
        assert "dgx01" in typed(f"kilowatch pki show{named}").output
    revoked = typed("kilowatch pki revoke dgx02")
    (command,) = re.findall(r"kilowatch init --folder \S+", revoked.output)
    assert typed(command).exit_code == 0
    assert (tmp_path / "kilowatch-cluster" / "broker.tar").read_bytes() != before
    again = typed("kilowatch pki node dgx01").output
    (command,) = re.findall(r"kilowatch pki renew \S+$", again.splitlines()[0])
    assert typed(command).exit_code == 0


@needs_openssl
def test_of_two_authorities_one_must_be_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = CliRunner().invoke
    arguments = ["--cluster", "lab", "--broker", "broker.example"]
    first = run(main, ["pki", "init", "--folder", "elsewhere", *arguments])
    assert "kilowatch pki aggregator --folder elsewhere" in first.output
    assert "kilowatch pki aggregator;" in run(main, ["pki", "init", *arguments]).output
    assert run(main, ["init", "dgx01", *arguments]).exit_code == 0
    result = run(main, ["pki", "show"])
    assert result.exit_code == 64
    assert "--folder kilowatch-pki or --folder kilowatch-cluster" in result.output
    assert run(main, ["pki", "show", "--folder", "kilowatch-pki"]).exit_code == 0


def test_without_openssl_the_remedy_is_named(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = init(folder)
    assert (result.exit_code, "apt-get install openssl" in result.output) == (64, True)
    assert not folder.exists()


@needs_openssl
def test_a_renewed_name_has_a_new_key_and_a_revoked_one_no_rights(folder: Path) -> None:
    init(folder)
    pki("node", folder, "dgx01", "dgx02")
    key = folder / "nodes" / "dgx01" / "node.key"
    before = key.read_bytes()
    assert pki("renew", folder, "dgx01", "--broker").exit_code == 0
    assert key.read_bytes() != before
    assert pki("revoke", folder, "dgx01").exit_code == 0
    assert not key.exists()
    found = json.loads(pki("show", folder, "--json").output)["certificates"]
    assert {each["name"]: each["revoked"] for each in found} == {
        "kilowatch-broker": False,
        "dgx01": True,
        "dgx02": False,
    }
    users = re.findall(r"^user (.*)$", (folder / "broker" / "access.acl").read_text(), re.MULTILINE)
    assert users == ["dgx02"]
    crl = ("openssl", "crl", "-in", str(folder / "broker" / "revoked.crl"), "-noout", "-text")
    text = subprocess.run(crl, check=True, capture_output=True, text=True).stdout
    assert text.count("Serial Number") == 2  # the old one and the new one
    assert pki("node", folder, "dgx01").exit_code == 0  # a new machine of the name
    assert "revoked" not in pki("show", folder).output


@needs_openssl
def test_a_revoked_aggregator_has_no_rights_and_is_let_in_nowhere(folder: Path) -> None:
    init(folder)
    pki("node", folder, "dgx01")
    pki("aggregator", folder)
    acl, crl = (folder / "broker" / name for name in ("access.acl", "revoked.crl"))
    assert "user kilowatch-aggregator\n" in acl.read_text()
    assert pki("revoke", folder, "kilowatch-aggregator").exit_code == 0
    assert re.findall(r"^user (.*)$", acl.read_text(), re.MULTILINE) == ["dgx01"]
    command = ("openssl", "crl", "-in", str(crl), "-noout", "-text")
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert text.count("Serial Number") == 1
    assert not (folder / "aggregators" / "kilowatch-aggregator").exists()


@needs_openssl
def test_keys_that_were_delivered_can_be_deleted(folder: Path) -> None:
    """Who is let in is known by the authority's index."""
    init(folder)
    pki("node", folder, "dgx01")
    shutil.rmtree(folder / "nodes")
    pki("node", folder, "dgx02")
    acl = (folder / "broker" / "access.acl").read_text()
    assert "user dgx01\n" in acl
    assert "user dgx02\n" in acl
    assert pki("revoke", folder, "dgx01").exit_code == 0


@needs_openssl
def test_expiry_is_shown(folder: Path) -> None:
    init(folder)
    pki("node", folder, "dgx01", "--days", "30")
    line = next(line for line in pki("show", folder).output.splitlines() if "dgx01" in line)
    assert re.fullmatch(r"node +dgx01 +\d{4}-\d\d-\d\d  \d+ (d|h)( \d+ h)? left", line)


@needs_openssl
def test_the_settings_that_are_made_are_settings(folder: Path, tmp_path: Path) -> None:
    init(folder, "--port", "18883")
    pki("aggregator", folder)
    pki("node", folder, "dgx01")
    node = settings.load(folder / "nodes" / "dgx01" / "kilowatch.toml", {}).collector
    assert (node.node, node.cluster) == ("dgx01", "lab")
    assert (node.broker.host, node.broker.port, node.broker.tls) == ("broker.example", 18883, True)
    assert node.broker.key_file == Path("/etc/kilowatch/node.key")
    assert set(node.accept_commands) == {"resend", "inventory"}
    made = folder / "aggregators" / "kilowatch-aggregator"
    aggregator = settings.load(made / "kilowatch.toml", {}).aggregator
    assert aggregator.broker.cert_file == Path("/etc/kilowatch/aggregator.crt")
    for place, role in ((folder / "nodes" / "dgx01", "node"), (made, "aggregator")):
        assert {path.name for path in place.iterdir()} == {"kilowatch.toml", "ca.crt", f"{role}.crt", f"{role}.key"}
    conf = (folder / "broker" / "kilowatch.conf").read_text()
    assert "listener 18883\n" in conf
    named = re.findall(r"/etc/mosquitto/kilowatch/(\S+)", conf)
    assert set(named) <= {path.name for path in (folder / "broker").iterdir()}
    assert "use_username_as_clientid true" not in conf
    assert "allow_anonymous false" in conf


def test_the_access_list_names_every_kind_of_message_with_cluster_and_shard() -> None:
    """A kind that is added to the topics is here by itself; commands are the aggregator's."""
    lines = access_list("lab", ["kilowatch-aggregator"], ["dgx07"]).splitlines()
    at = lines.index("user dgx07")
    assert lines[at + 1 :] == [
        *(f"topic write {topic('lab', 'dgx07', kind)}" for kind in Topic if kind != "command"),
        "topic read kilowatch/1/lab/8a/dgx07/+",
    ]
    assert not [line for line in lines if line.startswith("pattern")]
    result = CliRunner().invoke(main, ["pki", "acl", "--cluster", "lab", "dgx07"])
    assert result.output.splitlines() == lines


def test_every_command_of_the_page_is_one() -> None:
    """Its options too."""
    commands = re.findall(r"(?:^    |`)(kilowatch pki [^`\n]+)", DEPLOY, re.MULTILINE)
    assert len(commands) >= 8
    group = main.get_command(click.Context(main), "pki")
    assert isinstance(group, click.Group)
    for line in commands:
        name, *arguments = shlex.split(line)[2:]
        group.commands[name].make_context(name, arguments)


def test_the_shipped_mosquitto_conf_is_the_one_that_is_written() -> None:
    shipped = ROOT / "deploy" / "mosquitto" / "kilowatch.conf"
    assert shipped.resolve() == ROOT / "kilowatch" / "pki" / "mosquitto.conf"
