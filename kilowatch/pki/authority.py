"""A folder with a certificate authority, and the certificates that it has issued.

    pki.json         the cluster, the broker's names and port
    ca/              the authority: its key, its certificate, openssl's index of all that it issued
    broker/          what the broker needs: certificate, key, access list, revocations, mosquitto.conf
    aggregators/N/   what an aggregator needs: certificate, key, settings
    nodes/N/         what a node needs: certificate, key, settings

openssl does all cryptography, and its index is the only list of members. Folders are 0700 and files
0600; each appears complete or not at all.
"""

from __future__ import annotations

import contextlib
import fcntl
import ipaddress
import os
import re
import shutil
import ssl
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from functools import cached_property
from importlib import resources
from pathlib import Path

import msgspec

from kilowatch.pki.access_list import access_list
from telemetry.errors import ConfigError
from telemetry.text import rfc3339
from telemetry.text.decoders import of_json
from telemetry.wire.topics import check_name

DAY = 86_400
AGGREGATOR = "kilowatch-aggregator"
"""Usual name of the aggregator's certificate."""
BROKER = "kilowatch-broker"
"""Common name of the broker's certificate; clients check its alternative names."""
LONGEST_NAME = 64
"""X.509's bound of a common name."""
_LONGEST_HOST = 253
_LABEL = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_-]*[A-Za-z0-9_])?")
_CONFIGURATION = """\
[ca]
default_ca = kilowatch
[kilowatch]
database = ca/index.txt
new_certs_dir = ca/issued
certificate = ca/ca.crt
private_key = ca/ca.key
rand_serial = yes
unique_subject = no
default_md = sha256
policy = names
copy_extensions = none
[names]
organizationalUnitName = supplied
commonName = supplied
"""
_EXTENSIONS = """\
basicConstraints = critical, CA:FALSE
keyUsage = critical, digitalSignature
subjectKeyIdentifier = hash
authorityKeyIdentifier = keyid
extendedKeyUsage = {usage}
"""
_SETTINGS = """\
# {name}: /etc/kilowatch/kilowatch.toml, beside the certificate and the key.
cluster = "{cluster}"
[broker]
host = "{host}"
port = {port}
tls = true
ca_file = "/etc/kilowatch/ca.crt"
cert_file = "/etc/kilowatch/{role}.crt"
key_file = "/etc/kilowatch/{role}.key"
"""
_NODE_SETTINGS = """\
[collector]
node = "{name}"
# What an aggregator needs, and no more: whoever has its certificate could close drivers by "release" and "resume".
accept_commands = ["resend", "inventory"]
"""


class Role(StrEnum):
    """The use of a certificate."""

    BROKER = "broker"
    AGGREGATOR = "aggregator"
    NODE = "node"


class Certificate(msgspec.Struct, frozen=True, kw_only=True):
    """A certificate in the authority's index."""

    name: str
    role: Role
    serial: str
    until: float
    """Seconds since 1970."""
    revoked: bool


class PkiSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `kilowatch pki init`: `pki.json`."""

    cluster: str
    names: tuple[str, ...]
    """Host names and addresses of the broker; clients connect to the first."""
    port: int
    place: str
    """Folder of the broker's files on the broker's machine."""


class Authority:
    """The authority of a folder."""

    def __init__(self, folder: Path) -> None:
        """Open an existing one. Raises `ConfigError`."""
        self.folder = folder.absolute()
        try:
            text = (self.folder / "pki.json").read_bytes()
            self.settings = of_json(PkiSettings).decode(text)
        except FileNotFoundError as error:
            raise ConfigError(
                str(folder),
                "there is no certificate authority",
                "Make one: kilowatch pki init --cluster NAME --broker HOST; or name its --folder.",
            ) from error
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"{folder}/pki.json", f"it can't be read: {error}", "Restore it from a backup."
            ) from error

    @classmethod
    def create(cls, folder: Path, settings: PkiSettings, days: int) -> Authority:
        """Make an authority and the broker's files in a folder that is new or empty."""
        check_name("--cluster", settings.cluster)
        for name in settings.names:
            _subject_alternative(name)
        folder = folder.absolute()
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise ConfigError(str(folder), "it is not an empty folder", "Name another --folder.")
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        try:
            (new / "ca").mkdir(mode=0o700)
            (new / "ca" / "issued").mkdir(mode=0o700)
            _write(new / "pki.json", msgspec.json.format(msgspec.json.encode(settings)))
            _write(new / "ca" / "openssl.cnf", _CONFIGURATION.encode())
            _write(new / "ca" / "index.txt", b"")
            _openssl(
                new,
                "req",
                "-x509",
                *_NEW_KEY,
                "-keyout",
                "ca/ca.key",
                "-out",
                "ca/ca.crt",
                "-days",
                str(days),
                "-subj",
                f"/OU=authority/CN=kilowatch {settings.cluster}",
                "-addext",
                "basicConstraints = critical, CA:TRUE, pathlen:0",
                "-addext",
                "keyUsage = critical, keyCertSign, cRLSign",
            )
            authority = cls(new)
            authority.issue(Role.BROKER, BROKER, days)
            authority.publish()
            new.rename(folder)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        return cls(folder)

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other commands from changing the folder."""
        with (self.folder / "pki.json").open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    @cached_property
    def until(self) -> float:
        """End of the authority's own certificate, seconds since 1970."""
        return expiry(self.folder / "ca" / "ca.crt")

    def certificates(self) -> list[Certificate]:
        """Return everything issued, oldest first."""
        path = self.folder / "ca" / "index.txt"
        try:
            return [_indexed(line) for line in path.read_text("utf-8").splitlines()]
        except (OSError, ValueError) as error:
            raise ConfigError(
                str(path), f"openssl's index can't be read: {error}", "Restore it from a backup."
            ) from error

    def valid(self) -> dict[str, Certificate]:
        """Return the newest certificate of each name that is not revoked."""
        return {each.name: each for each in self.certificates() if not each.revoked}

    def check_new(self, role: Role, name: str, other: Certificate | None) -> None:
        """Raise `ConfigError` for a name that can't have a certificate of this role; `other`: the one
        that it has."""
        check_name(f"kilowatch pki {role}", name)
        if len(name) > LONGEST_NAME:
            raise ConfigError(
                f"kilowatch pki {role}",
                f"{name!r} has {len(name)} characters, and a certificate's name {LONGEST_NAME}",
                "Give the node a shorter name (collector.node).",
            )
        if other is not None and other.role is not role:
            raise ConfigError(
                f"kilowatch pki {role}",
                f"{name!r} is the {other.role}'s name",
                "Choose another: the broker grants rights by name.",
            )
        if role is Role.NODE and name == AGGREGATOR:
            raise ConfigError(
                "kilowatch pki node",
                f"{name!r} is the aggregator's name",
                "Choose another: the broker grants rights by name.",
            )

    def issue(self, role: Role, name: str, days: int) -> Path:
        """Make a key and a certificate, and return the folder that holds them with all else that its
        owner needs. An older folder of the name is replaced. Raises `ConfigError`."""
        end = self.until
        if time.time() + days * DAY > end + DAY:
            raise ConfigError(
                "--days",
                f"the authority itself expires on {date(end)}",
                "Choose fewer days, or make a new authority in another --folder.",
            )
        place = self.folder / (role if role is Role.BROKER else f"{role}s/{name}")
        place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = Path(tempfile.mkdtemp(prefix=f".{name}-", dir=place.parent))
        try:
            usage, more = "clientAuth", ""
            if role is Role.BROKER:
                names = ",".join(map(_subject_alternative, self.settings.names))
                # Clients of each other too: servers of one cluster connect to one another.
                usage, more = "serverAuth, clientAuth", f"subjectAltName = {names}\n"
            _write(new / "extensions", (_EXTENSIONS.format(usage=usage) + more).encode())
            _openssl(
                self.folder,
                "req",
                *_NEW_KEY,
                "-keyout",
                str(new / f"{role}.key"),
                "-out",
                str(new / "request"),
                "-subj",
                f"/OU={role}/CN={name}",
            )
            _openssl(
                self.folder,
                "ca",
                "-batch",
                "-config",
                "ca/openssl.cnf",
                "-notext",
                "-in",
                str(new / "request"),
                "-out",
                str(new / f"{role}.crt"),
                "-days",
                str(days),
                "-extfile",
                str(new / "extensions"),
            )
            (new / "extensions").unlink()
            (new / "request").unlink()
            _write(new / "ca.crt", (self.folder / "ca" / "ca.crt").read_bytes())
            if role is not Role.BROKER:
                _write(new / "kilowatch.toml", self._settings_of(role, name).encode())
            for path in new.iterdir():
                path.chmod(0o600)
            if place.exists():
                shutil.rmtree(place)
            new.rename(place)
        except BaseException:
            shutil.rmtree(new, ignore_errors=True)
            raise
        return place

    def revoke(self, name: str) -> None:
        """Withdraw every certificate of a name. Raises `ConfigError` when it has none."""
        found = [each for each in self.certificates() if each.name == name and not each.revoked]
        if not found:
            raise ConfigError(
                "kilowatch pki revoke",
                f"{name!r} has no certificate",
                "`kilowatch pki show` lists those that are issued.",
            )
        for each in found:
            _openssl(
                self.folder, "ca", "-batch", "-config", "ca/openssl.cnf", "-revoke", f"ca/issued/{each.serial}.pem"
            )
        for role in (Role.NODE, Role.AGGREGATOR):
            shutil.rmtree(self.folder / f"{role}s" / name, ignore_errors=True)

    def broker_is_client(self) -> bool:
        """Return whether the broker's certificate may also open connections; older releases made it
        for one end alone."""
        found = _openssl(self.folder, "x509", "-in", "broker/broker.crt", "-noout", "-ext", "extendedKeyUsage")
        return "TLS Web Client Authentication" in found

    def publish(self) -> Path:
        """Write the broker's settings, access list and revocations; return their folder."""
        place = self.folder / "broker"
        members = [each for each in self.certificates() if not each.revoked]
        names = {role: {each.name for each in members if each.role is role} for role in Role}
        text = access_list(self.settings.cluster, names[Role.AGGREGATOR], names[Role.NODE])
        replace_private(place / "access.acl", text.encode())
        replace_private(place / "kilowatch.conf", self._configuration().encode())
        # A list that has expired would lock the whole fleet out: it lasts as long as the authority.
        seconds = max(DAY, int(self.until - time.time()))
        _openssl(
            self.folder,
            "ca",
            "-config",
            "ca/openssl.cnf",
            "-gencrl",
            "-crlsec",
            str(seconds),
            "-out",
            "broker/revoked.new",
        )
        (place / "revoked.new").chmod(0o600)
        (place / "revoked.new").replace(place / "revoked.crl")
        return place

    def _configuration(self) -> str:
        shipped = resources.files("kilowatch.pki").joinpath("mosquitto.conf").read_text("utf-8")
        return shipped.replace("/etc/mosquitto/kilowatch", self.settings.place).replace(
            "listener 8883", f"listener {self.settings.port}"
        )

    def _settings_of(self, role: Role, name: str) -> str:
        settings = self.settings
        text = _SETTINGS.format(
            name=name, role=role, cluster=settings.cluster, host=settings.names[0], port=settings.port
        )
        return text + (_NODE_SETTINGS.format(name=name) if role is Role.NODE else "")


def expiry(path: Path) -> float:
    """Return when a certificate expires, seconds since 1970. Raises `ConfigError`."""
    text = _openssl(path.parent, "x509", "-in", str(path.absolute()), "-noout", "-enddate")
    return float(ssl.cert_time_to_seconds(text.strip().removeprefix("notAfter=")))


def date(at: float) -> str:
    """Return a date for people, in UTC."""
    return rfc3339(round(at * 1e9))[:10]


_NEW_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes")


def _openssl(folder: Path, *arguments: str) -> str:
    """Run openssl in a folder and return its output. Raises `ConfigError`."""
    try:
        done = subprocess.run(
            ("openssl", *arguments),
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            umask=0o077,
            env={**os.environ, "OPENSSL_CONF": os.devnull},
        )
    except FileNotFoundError as error:
        raise ConfigError(
            "openssl", "it is not installed", "apt-get install openssl (or dnf install openssl)."
        ) from error
    if done.returncode:
        problem = " ".join(done.stderr.split())[-400:]
        raise ConfigError(f"openssl {arguments[0]}", f"it failed in {folder}: {problem}")
    return done.stdout


def _indexed(line: str) -> Certificate:
    """Return the certificate of a line of openssl's index. Raises `ValueError`."""
    state, until, _, serial, _, subject = line.split("\t")
    parts = dict(part.split("=", 1) for part in subject.strip("/").split("/"))
    form = "%y%m%d%H%M%SZ" if len(until) == len("yymmddhhmmssZ") else "%Y%m%d%H%M%SZ"
    at = datetime.strptime(until, form).replace(tzinfo=UTC)
    return Certificate(
        name=parts["CN"], role=Role(parts["OU"]), serial=serial, until=at.timestamp(), revoked=state == "R"
    )


def _subject_alternative(name: str) -> str:
    """Return a host name or address as openssl writes it in a certificate. Raises `ConfigError`."""
    with contextlib.suppress(ValueError):
        return f"IP:{ipaddress.ip_address(name)}"
    if len(name) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, name.split("."))):
        raise ConfigError(
            "--broker",
            f"{name!r} is no host name or address",
            "Write the name by which the nodes reach the broker, as broker.example.",
        )
    return f"DNS:{name}"


def _write(path: Path, content: bytes) -> None:
    """Write a new file that only its owner can read."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def replace_private(path: Path, content: bytes) -> None:
    """Replace a file, whole or not at all, by one that only its owner can read. Raises `OSError`."""
    new = path.with_name(f"{path.name}.new")
    new.unlink(missing_ok=True)
    _write(new, content)
    new.replace(path)


def members_to_show(certificates: Sequence[Certificate]) -> list[Certificate]:
    """Return the newest certificate of each name, in the order of roles and names."""
    newest = {(each.role, each.name): each for each in certificates}
    order = list(Role)
    return sorted(newest.values(), key=lambda each: (order.index(each.role), each.name))
