"""`kilowatch init`: a folder from which a cluster starts, and whose files pass their programs' checks."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import aiohttp
import pytest
from click.testing import CliRunner, Result

from kilowatch import settings
from kilowatch.__main__ import main
from kilowatch.init.archive import Member, archive
from kilowatch.init.cluster_folder import WITHOUT_SYSTEMD
from kilowatch.pki.authority import Authority
from tests.brokers import free_port, wait_for_port
from tests.kit.waiting import until, within

ROOT = Path(__file__).parents[2]
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="apt-get install openssl")
SHIPPED = {
    "prometheus": "deploy/prometheus",
    "grafana/dashboards": "grafana/dashboards",
    "grafana/provisioning": "grafana/provisioning",
}


def init(folder: Path, *arguments: str) -> Result:
    """Without a terminal."""
    return CliRunner().invoke(main, ["init", "--folder", str(folder), *arguments])


def begun(folder: Path, *nodes: str, port: int = 8883) -> Path:
    """A cluster whose broker is on this machine."""
    result = init(folder, "--cluster", "lab", "--broker", "127.0.0.1", "--port", str(port), *nodes)
    assert result.exit_code == 0, result.output
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def unpacked(tar: Path, root: Path) -> Path:
    """An archive in a root of its own, whose settings name the files there."""
    root.mkdir(parents=True, exist_ok=True)
    subprocess.run(["tar", "-xf", str(tar), "-C", str(root), "--no-same-owner"], check=True)
    for path in root.rglob("etc/*/**/*"):
        if path.is_file() and not path.is_symlink() and path.suffix in {".toml", ".conf"}:
            text = path.read_text()
            for place in ("/etc/kilowatch/", "/etc/mosquitto/"):
                text = text.replace(place, f"{root}{place}")
            path.write_text(text)
    return root


def settings_of(root: Path) -> Path:
    return root / "etc/kilowatch/kilowatch.toml"


def test_the_same_files_are_the_same_archive() -> None:
    members = [Member("/etc/a", b"a", 0o600, "mosquitto"), Member("/etc/b"), Member("/etc/c", link="a")]
    assert archive(members) == archive(members)
    with tarfile.open(fileobj=io.BytesIO(archive(members))) as tar:
        file, folder, link = tar.getmembers()
    assert (file.name, file.mode, file.uname, file.size) == ("etc/a", 0o600, "mosquitto", 1)
    assert folder.isdir()
    assert (link.issym(), link.linkname) == (True, "a")


def test_everything_is_written_once_and_secrets_are_private(tmp_path: Path) -> None:
    folder = begun(tmp_path / "c", "dgx01", "dgx02")
    before = contents(folder)
    assert {"broker.tar", "aggregator.tar", "nodes/dgx01.tar", "nodes/dgx02.tar", "INSTALL.md"} <= before.keys()
    assert [path.name for path in folder.rglob("*.tar") if path.stat().st_mode & 0o077] == []
    assert folder.stat().st_mode & 0o077 == 0
    for place, source in SHIPPED.items():
        shipped = contents(ROOT / source)
        assert shipped
        assert {name: before[f"{place}/{name}"] for name in shipped} == shipped
    again = init(folder)
    assert (again.exit_code, ": 0 files written" in again.output) == (0, True)
    assert contents(folder) == before


def test_what_was_changed_is_left_unless_asked(tmp_path: Path) -> None:
    folder = begun(tmp_path / "c", "dgx01")
    mine = folder / "prometheus/prometheus.yml"
    mine.write_text("mine")
    kept = init(folder)
    assert (kept.exit_code, mine.read_text()) == (0, "mine")
    assert f"{mine}: differs" in kept.stderr
    assert init(folder, "--overwrite").exit_code == 0
    assert mine.read_text() != "mine"


def test_a_new_node_is_one_file_for_it(tmp_path: Path) -> None:
    folder = begun(tmp_path / "c", "dgx01")
    old, broker = (folder / "nodes/dgx01.tar").read_bytes(), (folder / "broker.tar").read_bytes()
    added = init(folder, "--node", "dgx02")
    assert added.exit_code == 0, added.output
    assert added.stdout == f"{folder}/nodes/dgx02.tar\n"
    assert (folder / "nodes/dgx01.tar").read_bytes() == old
    assert (folder / "broker.tar").read_bytes() != broker
    assert "systemctl reload mosquitto" in added.stderr
    root = unpacked(folder / "nodes/dgx02.tar", tmp_path / "dgx02")
    loaded = settings.load(settings_of(root), {})
    assert (loaded.cluster, loaded.collector.node, loaded.broker.tls) == ("lab", "dgx02", True)
    assert loaded.broker.context() is not None
    unit = "etc/systemd/system/kilowatch-collector.service"
    assert (root / unit).read_bytes() == (ROOT / "deploy/systemd" / Path(unit).name).read_bytes()
    assert sorted(each.name for each in Authority(folder / "pki").valid().values()) == [
        "dgx01", "dgx02", "kilowatch-aggregator", "kilowatch-broker",
    ]  # fmt: skip


def test_one_machine_has_both_certificates_in_one_file(tmp_path: Path) -> None:
    folder = tmp_path / "m"
    result = init(folder, "--cluster", "home", "--one-machine", "rig")
    assert result.exit_code == 0, result.output
    assert not list(folder.glob("nodes/*.tar"))
    root = unpacked(folder / "machine.tar", tmp_path / "rig")
    loaded = settings.load(settings_of(root), {})
    assert str(loaded.collector.broker.cert_file).endswith("/node.crt")
    assert str(loaded.aggregator.broker.cert_file).endswith("/aggregator.crt")
    for side in (loaded.collector.broker, loaded.aggregator.broker):
        assert (side.host, side.port) == ("localhost", 8883)
        assert side.context() is not None
    assert {path.name for path in (root / "etc/systemd/system").glob("*.service")} == {
        "kilowatch-collector.service",
        "kilowatch-aggregator.service",
    }
    again = init(folder)
    assert (again.exit_code, ": 0 files written" in again.output) == (0, True)
    assert init(folder, "--node", "other").exit_code == 64


def test_a_revoked_node_leaves_the_folder_and_the_access_list(tmp_path: Path) -> None:
    folder = begun(tmp_path / "c", "dgx01", "dgx.02")
    revoked = CliRunner().invoke(main, ["pki", "revoke", "dgx01", "--folder", str(folder / "pki")])
    assert revoked.exit_code == 0, revoked.output
    assert init(folder).exit_code == 0
    assert [path.name for path in (folder / "nodes").iterdir()] == ["dgx.02.tar"]
    root = unpacked(folder / "broker.tar", tmp_path / "broker")
    assert "user dgx01\n" not in (root / "etc/mosquitto/kilowatch/access.acl").read_text()


def test_the_page_names_its_files_and_options(tmp_path: Path) -> None:
    page = (ROOT / "docs/deploy.md").read_text().partition("## All files at once")[2]
    section = page.partition("\n## ")[0]
    (command,) = [line.split()[2:] for line in section.splitlines() if line.startswith("    kilowatch")]
    assert init(tmp_path / "kilowatch-cluster", *command).exit_code == 0
    found = contents(tmp_path / "kilowatch-cluster")
    for name in ("INSTALL.md", "broker.tar", "aggregator.tar", "nodes/dgx01.tar"):
        assert f"`{name}`" in section
        assert name in found
    assert "tar -xpf dgx01.tar -C / --no-overwrite-dir" in section
    assert b"tar -xpf NAME.tar -C / --no-overwrite-dir" in found["INSTALL.md"]
    usage = CliRunner().invoke(main, ["init", "--help"]).output
    assert all(word in usage for word in ("--node", "--one-machine", "--overwrite"))


@pytest.mark.parametrize("more", [("dgx01", "dgx02"), ("--one-machine", "rig")])
def test_every_step_of_systemd_has_one_without(tmp_path: Path, more: tuple[str, ...]) -> None:
    """The table is that of docs/deploy.md, whose commands tests/endtoend/test_deploy_page.py runs."""
    folder = tmp_path / "kilowatch-cluster"
    assert init(folder, "--cluster", "lab", "--broker", "broker.example", *more).exit_code == 0
    steps, _, table = (folder / "INSTALL.md").read_text().partition("## Without systemd")
    row = re.compile(r"^\| `(systemctl [^`]*)` \| `([^`]*)` \|$", re.MULTILINE)
    instead = dict(row.findall(table))
    assert instead == dict(row.findall((ROOT / "docs/deploy.md").read_text()))
    assert instead == dict(WITHOUT_SYSTEMD)
    for verb, units in re.findall(r"systemctl (restart|reload|enable --now) ([^&`\n]+)", steps):
        for unit in units.split():
            assert f"systemctl {verb} {unit}" in instead


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "--cluster, --broker, NODE must be given where there is no terminal"),
        (["--cluster", "lab", "--broker", "b"], "NODE must be given"),
        (["--node", "dgx01"], "there is no cluster yet"),
        (["--cluster", "a/b", "--broker", "b", "n"], "can't be part of an MQTT topic"),
        (["--cluster", "lab", "--broker", "a b", "n"], "is no host name"),
        (["--cluster", "lab", "--one-machine", "a", "b"], "2 nodes are more than one machine"),
        (["--node", "a", "b"], "Leave out the other names"),
    ],
)
def test_a_mistake_is_one_line_and_writes_nothing(tmp_path: Path, arguments: list[str], words: str) -> None:
    result = init(tmp_path / "c", *arguments)
    assert result.exit_code == 64, result.output
    assert words in " ".join(result.output.split())
    assert contents(tmp_path) == {}


@pytest.mark.parametrize(
    "there", [(), ("notes.txt",), ("pki/mine.txt",)], ids=["nothing", "a folder", "an authority's place"]
)
def test_what_can_not_begin_leaves_nothing(there: tuple[str, ...], tmp_path: Path) -> None:
    """A bad name of a node left an authority, which the next run took for a cluster."""
    folder = tmp_path / "c"
    for name in there:
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text("mine")
    result = init(folder, "--cluster", "lab", "--broker", "127.0.0.1", "good", "bad name!")
    assert result.exit_code == 64
    assert contents(folder) == dict.fromkeys(there, b"mine")
    assert folder.exists() == bool(there)
    if "pki/mine.txt" not in there:
        begun(folder, "good")


@pytest.mark.parametrize("place", ["/proc/c", "file/c"], ids=["read-only", "below a file"])
def test_a_folder_that_can_not_be_written_is_one_line(place: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = init(tmp_path / place, "--cluster", "lab", "--broker", "127.0.0.1", "good")
    assert result.exit_code == 64
    assert "it can't be written" in result.output
    assert result.output.count("\n") == 1


def test_a_cluster_is_not_begun_twice(tmp_path: Path) -> None:
    folder = begun(tmp_path / "c", "dgx01")
    before = contents(folder)
    result = init(folder, "--cluster", "other", "dgx01")
    assert (result.exit_code, contents(folder)) == (64, before)
    shutil.rmtree(folder / "pki/nodes/dgx01")
    gone = init(folder)
    assert gone.exit_code == 64
    assert "kilowatch pki renew dgx01" in " ".join(gone.output.split())


def test_on_a_terminal_it_asks(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "kilowatch", "init", "--folder", str(tmp_path / "c")],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=ROOT,
    )  # fmt: skip
    os.close(theirs)
    try:
        os.write(ours, b"hall-1\ndgx01 dgx02\nbroker.example\n")
        text, _ = process.communicate(timeout=120)
    finally:
        process.kill()
        os.close(ours)
    assert process.returncode == 0, text
    made = Authority(tmp_path / "c/pki")
    assert (made.settings.cluster, made.settings.names) == ("hall-1", ("broker.example",))
    assert {"dgx01", "dgx02"} <= made.valid().keys()


@pytest.mark.skipif(shutil.which("promtool") is None, reason="apt-get install prometheus")
def test_prometheus_accepts_its_configuration(tmp_path: Path) -> None:
    folder = begun(tmp_path / "c", "dgx01")
    file = str(folder / "prometheus/prometheus.yml")
    checked = subprocess.run(["promtool", "check", "config", file], capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stderr


def test_a_wheel_has_what_is_written() -> None:
    """By MANIFEST.in; in the repository they are links."""
    files = ROOT / "kilowatch/init/files"
    assert {path.name for path in files.iterdir()} == {"systemd", "prometheus", "dashboards", "provisioning"}
    assert all(path.is_symlink() and path.is_dir() for path in files.iterdir())
    assert "recursive-include kilowatch/init/files *" in (ROOT / "MANIFEST.in").read_text()
    assert "include-package-data" not in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]


# -- A cluster from the folder -------------------------------------------------------------------


@contextlib.contextmanager
def mosquitto_of(root: Path, port: int) -> Iterator[subprocess.Popen[bytes]]:
    """mosquitto with the files that were unpacked."""
    conf = root / "etc/mosquitto/conf.d/kilowatch.conf"
    target = root / str(conf.readlink()).lstrip("/")
    if os.geteuid() == 0:  # it would become a user that can't enter the test's folder
        target.write_text(f"{target.read_text()}\nuser root\n")
    binary = shutil.which("mosquitto") or "/usr/sbin/mosquitto"
    process = subprocess.Popen([binary, "-c", str(target)])
    try:
        wait_for_port(port)
        yield process
    finally:
        process.kill()
        process.wait(30)


@contextlib.asynccontextmanager
async def started(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """A command of kilowatch, until the end of the block."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "XDG_STATE_HOME": str(folder), "STATE_DIRECTORY": ""}
    environment["KILOWATCH__COLLECTOR__STATE_DIR"] = str(folder / "state")
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "kilowatch", *arguments, cwd=folder, env=environment
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        await process.wait()


async def reporting(address: str) -> set[str]:
    """Nodes of which an aggregator has a frame; none while it does not answer."""
    with contextlib.suppress(aiohttp.ClientError):
        async with aiohttp.ClientSession() as session, session.get(f"http://{address}/api/v1/nodes") as reply:
            return {row["node"] for row in (await reply.json())["nodes"] if row["state"] == "online"}
    return set()


async def until_reporting(address: str, *nodes: str) -> None:
    """Wait until the aggregator has fresh frames of exactly these nodes."""

    async def they_are() -> bool:
        return await reporting(address) == set(nodes)

    await until(they_are, seconds=900, every=0.1)


@pytest.mark.systems
@pytest.mark.timeout(960)  # four processes start one after another, on a machine that may be busy
async def test_a_cluster_starts_from_a_fresh_folder(tmp_path: Path) -> None:
    """A broker with TLS and access list, an aggregator, a node, and one that comes later."""
    port, address = free_port(), f"127.0.0.1:{free_port()}"
    folder = begun(tmp_path / "c", "dgx01", port=port)
    roots = {
        name: unpacked(folder / path, tmp_path / name)
        for name, path in (("broker", "broker.tar"), ("boss", "aggregator.tar"), ("dgx01", "nodes/dgx01.tar"))
    }
    for name in ("boss", "dgx01"):
        checked = CliRunner().invoke(main, ["config", "check", "--config", str(settings_of(roots[name]))])
        assert checked.exit_code == 0, checked.output
    aggregate = ("aggregate", "--config", str(settings_of(roots["boss"])), "--http", address)

    def collect(name: str) -> tuple[str, ...]:
        source = f"simulated:two-dgx-h100/dgx-{name[-2:]}"
        return ("collect", "--config", str(settings_of(roots[name])), "--source", source)

    with mosquitto_of(roots["broker"], port) as mosquitto:
        async with (
            within(900),
            started(roots["boss"], *aggregate, "--data", str(tmp_path / "data")),
            started(roots["dgx01"], *collect("dgx01")),
        ):
            await until_reporting(address, "dgx01")
            init(folder, "--node", "dgx02")
            unpacked(folder / "broker.tar", roots["broker"])
            mosquitto.send_signal(signal.SIGHUP)
            roots["dgx02"] = unpacked(folder / "nodes/dgx02.tar", tmp_path / "dgx02")
            async with started(roots["dgx02"], *collect("dgx02")):
                await until_reporting(address, "dgx01", "dgx02")
