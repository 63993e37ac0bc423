"""The folder that `kilowatch init` writes.

    INSTALL.md           which archive belongs on which machine, and the commands
    broker.tar           certificate, access list and configuration of mosquitto
    aggregator.tar       settings, certificate and unit of the aggregator
    nodes/NAME.tar       settings, certificate and unit of a collector
    machine.tar          instead of those three, where all is on one machine
    prometheus/          configuration and rules
    grafana/             dashboards and their provisioning
    pki/                 the authority (`kilowatch.pki.authority`): it stays here, and is kept secret

Archives are written anew whenever their content changes; every other file that differs from what is
written is left as it is, unless its replacement is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

from kilowatch.init.archive import Member, archive
from kilowatch.pki.authority import AGGREGATOR, Authority, PkiSettings, Role, replace_private
from telemetry.errors import ConfigError
from telemetry.files.private_file import make_folder

PLACE = "/etc/kilowatch"
UNITS = "/etc/systemd/system"
BROKER_PLACE = "/etc/mosquitto/kilowatch"
BROKER_USER = "mosquitto"
DATA = "/var/lib/kilowatch-data"
"""Data folder of an aggregator that is not started by its unit."""
NODE_UNIT = ("kilowatch-collector.service", "kilowatch-collector.service.d/kernel-log.conf")
AGGREGATOR_UNIT = ("kilowatch-aggregator.service",)
_SECRET, _PUBLIC = 0o600, 0o644


@dataclass(slots=True)
class ClusterFolder:
    """A folder with everything that the machines of a cluster need."""

    folder: Path
    authority: Authority
    replace: Callable[[Path], bool]
    """Whether a file with another content is to be replaced."""
    days: int
    written: list[Path] = field(default_factory=list)
    kept: list[Path] = field(default_factory=list)
    """Files with another content, which were left as they are."""

    @classmethod
    def opened(
        cls, folder: Path, settings: PkiSettings | None, days: tuple[int, int], replace: Callable[[Path], bool]
    ) -> ClusterFolder:
        """Open a folder, or begin one with these settings. `days`: for which the authority and the
        certificates are valid. Raises `ConfigError`."""
        place = folder / "pki"
        if exists(folder):
            authority = Authority(place)
            if settings is not None and settings != authority.settings:
                raise ConfigError(
                    str(folder),
                    f"it is for the cluster {authority.settings.cluster} with the broker "
                    f"{', '.join(authority.settings.names)}:{authority.settings.port}",
                    "Name another --folder, or leave out --cluster, --broker and --port.",
                )
            return cls(folder, authority, replace, days[1])
        if settings is None:
            raise ConfigError(
                str(folder), "there is no cluster yet", "Begin one: kilowatch init --cluster NAME --broker HOST NODE..."
            )
        make_folder(folder)
        return cls(folder, Authority.create(place, settings, days[0]), replace, days[1])

    def add(self, nodes: Iterable[str]) -> list[str]:
        """Issue certificates for the aggregator and for nodes that have none; return the nodes that
        are new. Raises `ConfigError`."""
        authority, new = self.authority, []
        with authority.locked():
            valid = authority.valid()
            wanted = [(Role.AGGREGATOR, AGGREGATOR), *((Role.NODE, name) for name in nodes)]
            for role, name in wanted:
                authority.check_new(role, name, valid.get(name))
            for role, name in dict.fromkeys(wanted):
                if name not in valid:
                    authority.issue(role, name, self.days)
                    new += [name] if role is Role.NODE else []
            if valid.keys() != authority.valid().keys():
                authority.publish()
        return new

    def nodes(self) -> list[str]:
        """Return the nodes that have a certificate."""
        found = self.authority.valid().values()
        return sorted(each.name for each in found if each.role is Role.NODE)

    # -- Files -------------------------------------------------------------------------------------

    def write_cluster(self, *, one_machine: bool) -> None:
        """Write everything. `one_machine`: broker, aggregator and the only node are one machine."""
        nodes = self.nodes()
        if one_machine:
            self._archive("machine.tar", self._machine(nodes[0]))
        else:
            self.write_broker()
            self._archive("aggregator.tar", self._member_files(Role.AGGREGATOR, AGGREGATOR))
            for name in nodes:
                self.write_node(name)
            for old in (self.folder / "nodes").glob("*.tar"):
                if old.stem not in nodes:  # its certificate was revoked
                    old.unlink()
        for part, place in (
            ("prometheus", "prometheus"),
            ("dashboards", "grafana/dashboards"),
            ("provisioning", "grafana/provisioning"),
        ):
            for path, content in _shipped(part):
                self._plain(self.folder / place / path, content)
        self._plain(self.folder / "INSTALL.md", self._steps(one_machine).encode())

    def write_broker(self) -> None:
        """Write the broker's archive."""
        self._archive("broker.tar", self._broker_files())

    def write_node(self, name: str) -> Path:
        """Write a node's archive; return its path."""
        return self._archive(f"nodes/{name}.tar", self._member_files(Role.NODE, name))

    def _broker_files(self) -> Iterator[Member]:
        place, source = self.authority.settings.place, self.authority.folder / "broker"
        yield Member(place, mode=0o700, owner=BROKER_USER)
        for path in sorted(source.iterdir()):
            yield Member(f"{place}/{path.name}", path.read_bytes(), _SECRET, BROKER_USER)
        yield Member("/etc/mosquitto/conf.d/kilowatch.conf", link=f"{place}/kilowatch.conf")

    def _member_files(self, role: Role, name: str) -> Iterator[Member]:
        yield Member(PLACE, mode=0o755)
        for path, content in self._issued(role, name):
            yield Member(f"{PLACE}/{path}", content, _mode(path))
        yield from _units(NODE_UNIT if role is Role.NODE else AGGREGATOR_UNIT)

    def _machine(self, node: str) -> Iterator[Member]:
        """Yield the files of a machine that is everything: its settings hold both certificates."""
        yield from self._broker_files()
        yield Member(PLACE, mode=0o755)
        files = dict(self._issued(Role.AGGREGATOR, AGGREGATOR))
        own = dict(self._issued(Role.NODE, node))
        text = both(files["kilowatch.toml"].decode(), own["kilowatch.toml"].decode())
        for path, content in {**own, **files, "kilowatch.toml": text.encode()}.items():
            yield Member(f"{PLACE}/{path}", content, _mode(path))
        yield from _units((*NODE_UNIT, *AGGREGATOR_UNIT))

    def _issued(self, role: Role, name: str) -> Iterator[tuple[str, bytes]]:
        source = self.authority.folder / f"{role}s" / name
        if not source.is_dir():
            raise ConfigError(
                str(source),
                f"the key of {name} is no longer here",
                f"Make a new one: kilowatch pki renew {name} --folder {self.authority.folder}",
            )
        for path in sorted(source.iterdir()):
            yield path.name, path.read_bytes()

    def _archive(self, name: str, members: Iterable[Member]) -> Path:
        path, content = self.folder / name, archive(members)
        make_folder(path.parent)
        if not path.exists() or path.read_bytes() != content:
            replace_private(path, content)
            self.written.append(path)
        return path

    def _plain(self, path: Path, content: bytes) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.exists() and path.read_bytes() != content and not self.replace(path):
            self.kept.append(path)
        elif not path.exists() or path.read_bytes() != content:
            path.write_bytes(content)
            self.written.append(path)

    def _steps(self, one_machine: bool) -> str:
        settings = self.authority.settings
        steps = "\n".join(_one_machine() if one_machine else _cluster(settings))
        rows = "\n".join(f"| `{unit}` | `{command}` |" for unit, command in WITHOUT_SYSTEMD)
        return _INSTALL.format(cluster=settings.cluster, steps=steps, folder=self.folder, rows=rows, data=DATA)


WITHOUT_SYSTEMD = (
    ("systemctl restart mosquitto", f"mosquitto -c {BROKER_PLACE}/kilowatch.conf"),
    ("systemctl reload mosquitto", "kill -HUP PID"),
    ("systemctl enable --now kilowatch-aggregator", f"kilowatch aggregate --config {PLACE}/kilowatch.toml --data {DATA}"),
    ("systemctl enable --now kilowatch-collector", f"kilowatch collect --config {PLACE}/kilowatch.toml"),
)  # fmt: skip
"""Commands of the steps, and what does the same in the foreground."""
_INSTALL = """\
# The cluster {cluster}

An archive puts a machine's files in their places. Each holds a key: copy it over an encrypted channel, and
delete it there when it is unpacked. kilowatch itself belongs into `/opt/kilowatch` on every machine but the
broker's.

{steps}

Then `kilowatch doctor` on each machine says what is wrong. `prometheus/` and `grafana/` are for a
Prometheus and a Grafana on the aggregator's machine. `pki/` stays here, and is kept secret: who has it
can make certificates.

To add a node: `kilowatch init --folder {folder} --node NAME`, unpack `nodes/NAME.tar` there and `broker.tar` on
the broker again, and `systemctl reload mosquitto`.

## Without systemd

The same in the foreground, as a user who may read the keys, in a container or under a supervisor that starts again
what ends. Leave out `systemctl daemon-reload`. The aggregator makes its data folder, `{data}`, for
its own user alone (0700); the collector keeps its frames in `/var/lib/kilowatch`, or as another user than root in its own
`.local/state/kilowatch`. PID is the broker's.

| with systemd | the same without |
| --- | --- |
{rows}
"""


def _one_machine() -> Iterator[str]:
    yield "    tar -xpf machine.tar -C / --no-overwrite-dir"
    yield "    systemctl daemon-reload && systemctl restart mosquitto"
    yield "    systemctl enable --now kilowatch-collector kilowatch-aggregator"


def _cluster(settings: PkiSettings) -> Iterator[str]:
    yield f"On the broker, {settings.names[0]}, with mosquitto 2.0:"
    yield ""
    yield "    tar -xpf broker.tar -C / --no-overwrite-dir && systemctl restart mosquitto"
    yield ""
    yield "On the aggregator:"
    yield ""
    yield "    tar -xpf aggregator.tar -C / --no-overwrite-dir"
    yield "    systemctl daemon-reload && systemctl enable --now kilowatch-aggregator"
    yield ""
    yield "On each node, its own archive of `nodes/`:"
    yield ""
    yield "    tar -xpf NAME.tar -C / --no-overwrite-dir"
    yield "    systemctl daemon-reload && systemctl enable --now kilowatch-collector"


def exists(folder: Path) -> bool:
    """Return whether `kilowatch init` has begun a cluster in a folder."""
    return (folder / "pki" / "pki.json").exists()


def both(aggregator: str, node: str) -> str:
    """Return the settings of a machine that is aggregator and node, each with its own certificate."""
    own = [line for line in node.splitlines() if line.startswith(("cert_file", "key_file"))]
    rest = node[node.index("[collector]") :].rstrip()
    return "\n".join([aggregator.rstrip(), rest, "[collector.broker]", *own, ""])


def _units(names: Iterable[str]) -> Iterator[Member]:
    shipped = dict(_shipped("systemd"))
    for name in names:
        yield Member(f"{UNITS}/{name}", shipped[name], _PUBLIC)


def _mode(name: str) -> int:
    return _SECRET if name.endswith(".key") else _PUBLIC


def _shipped(part: str) -> list[tuple[str, bytes]]:
    """Return the files of a part of the package, with their paths below it."""
    return sorted(_below(resources.files("kilowatch.init").joinpath("files", part), ""))


def _below(folder: Traversable, prefix: str) -> Iterator[tuple[str, bytes]]:
    for entry in folder.iterdir():
        if entry.is_dir():
            yield from _below(entry, f"{prefix}{entry.name}/")
        else:
            yield f"{prefix}{entry.name}", entry.read_bytes()
