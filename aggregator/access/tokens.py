"""Tokens of HTTP: names, scopes and hashed secrets in a file, read again when it changes.

`kilowatch token` writes the file. A secret is 256 random bits, so that a plain SHA-256 of it can't be
guessed back.
"""

from __future__ import annotations

import hashlib
import hmac
import logging
import os
import re
import stat
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

import msgspec

from telemetry.errors import ConfigError
from telemetry.files import local_token, private_file
from telemetry.text.decoders import of_json
from telemetry.text.settings import fault_of

log = logging.getLogger(__name__)

TOKENS = "tokens.json"
"""Name of the tokens file in `data_dir`."""
MOST_TOKENS = 256
"""Every one is compared with what is shown."""
MOST_USER = 128
"""Characters of a user's name."""
_MOST_BYTES = 256 * 1024
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,63}")


class AccessScope(StrEnum):
    """A kind of permission of a token; `admin` permits everything."""

    READ = "read"
    """See everything, change nothing."""
    ACK = "ack"
    """Acknowledge incidents, and record the steps of a recovery."""
    SILENCE = "silence"
    """Silence alerts, for a bounded time."""
    ADMIN = "admin"
    """Silence without a bound, test channels, reload settings, forget nodes; and all of the others."""


class AccessToken(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A token without its secret."""

    name: str
    """Name of the person or program; `who` of what is done with it."""
    scopes: tuple[AccessScope, ...]
    sha256: str
    """Hash of the secret, hex."""
    created: int
    """ns since 1970."""
    expires: int | None = None
    """ns since 1970; none is never."""
    user: str = ""
    """User whose jobs are all that it shows; empty for a token with scopes."""

    def allows(self, scope: AccessScope) -> bool:
        """Whether it permits something."""
        if self.user:  # whatever scopes somebody wrote beside it
            return False
        return scope in self.scopes or AccessScope.ADMIN in self.scopes


class TokenFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The content of a tokens file, as JSON."""

    tokens: list[AccessToken] = []


def hashed(secret: str) -> str:
    """Return the hash of a secret."""
    return hashlib.sha256(secret.encode("utf-8", "surrogateescape")).hexdigest()


def check_name(name: str) -> None:
    """Raise `ConfigError` for a name that no token may have."""
    if not _NAME.fullmatch(name):
        raise ConfigError(
            "NAME",
            f"{name[:80]!r} is no name of a token",
            "Write letters, digits, '.', '_', '@' and '-': ann, grafana, ci-bot.",
        )


def check_user(user: str) -> None:
    """Raise `ConfigError` for a user who can't be told from others."""
    if not user.strip() or not user.isprintable() or len(user) > MOST_USER:
        raise ConfigError(
            "--user",
            f"{user[:80]!r} is no user",
            "Write the name as `kilowatch jobs` shows it in USER; where users are hashed, the hash.",
        )


def make(
    name: str, scopes: Iterable[AccessScope], now: int, expires: int | None = None, user: str = ""
) -> tuple[AccessToken, str]:
    """Return a new token and its secret. Raises `ConfigError` for an invalid name or user."""
    check_name(name)
    if user:
        check_user(user)
    secret, asked = local_token.make(), set(scopes)
    kept = tuple(scope for scope in AccessScope if scope in asked)
    return AccessToken(name=name, scopes=kept, sha256=hashed(secret), created=now, expires=expires, user=user), secret


def read(path: Path) -> list[AccessToken]:
    """Return the tokens in a file; none where there is no file. Raises `ConfigError`."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise _unreadable(path, error.strerror or str(error)) from error
    mode = os.fstat(handle).st_mode
    if not stat.S_ISREG(mode):
        os.close(handle)
        raise _unreadable(path, "it is no file")
    with os.fdopen(handle, "rb") as file:
        if mode & 0o022:
            raise ConfigError(str(path), "other users may write it: they could make tokens", f"chmod 600 {path}")
        try:
            raw = file.read(_MOST_BYTES + 1)
        except OSError as error:
            raise _unreadable(path, error.strerror or str(error)) from error
    if len(raw) > _MOST_BYTES:
        raise _unreadable(path, f"it is longer than {_MOST_BYTES} bytes")
    try:
        found = of_json(TokenFile).decode(raw).tokens
    except msgspec.ValidationError as error:
        fault = fault_of(error, TokenFile)
        raise _unreadable(path, f"{fault.place or 'it'}: {fault.problem}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _unreadable(path, f"it is not JSON: {error}") from error
    if len(found) > MOST_TOKENS:
        raise _unreadable(path, f"it has {len(found)} tokens, and {MOST_TOKENS} are the most")
    for token in found:
        check_name(token.name)
        if token.user:
            check_user(token.user)
    return found


def write(path: Path, tokens: list[AccessToken]) -> None:
    """Write a tokens file, whole or not at all, for its owner alone. Raises `ConfigError`."""
    try:
        private_file.make_folder(path.parent)
        body = msgspec.json.format(msgspec.json.encode(TokenFile(tokens=tokens)))
        os.close(private_file.write(path, f"{body.decode()}\n"))
    except OSError as error:
        raise ConfigError(
            str(path), f"it can't be written: {error.strerror}", "Run it as the aggregator's user."
        ) from error


class TokenRegister:
    """The tokens in force, from files that may change while the aggregator runs."""

    def __init__(self, path: Path | None, fixed: Iterable[AccessToken] = ()) -> None:
        """`path`: the tokens file; `fixed`: tokens from elsewhere. No token of a file that can't be used counts, until
        it can: the listener is then closed to those who have one, and open to nobody more."""
        self._path = path
        self._fixed = list(fixed)
        self._seen = self._state()
        self._read: list[AccessToken] = []
        self.damaged = False
        """Whether there is a file, and it can't be used."""
        try:
            self._read = [] if path is None else read(path)
        except ConfigError as error:
            self.damaged = True
            log.error("http: no token of the file counts. %s", error)  # noqa: TRY400

    @property
    def empty(self) -> bool:
        """Whether no token was ever made: a file that can't be used may hold some."""
        return not self._fixed and not self._read and not self.damaged

    def add(self, token: AccessToken) -> None:
        """Accept a token from elsewhere too."""
        self._fixed.append(token)

    def find(self, secret: str) -> AccessToken | None:
        """Return the token of a secret, expired or not. Compares with all, in the same time for each."""
        self._reread()
        given = hashed(secret)
        found = None
        for token in (*self._fixed, *self._read):
            if hmac.compare_digest(given, token.sha256):
                found = token
        return found

    def _reread(self) -> None:
        state = self._state()
        if self._path is None or state == self._seen:
            return
        self._seen = state
        try:
            self._read = read(self._path)
        except ConfigError as error:  # those that were in force stay so
            log.error("http: the tokens are not read again: %s", error)  # noqa: TRY400
        else:
            self.damaged = False
            log.info("http: %d tokens read from %s", len(self._read), self._path)

    def _state(self) -> tuple[int, int, int, int] | None:
        if self._path is None:
            return None
        try:
            its = self._path.stat()
        except OSError:
            return None
        return its.st_mtime_ns, its.st_ctime_ns, its.st_size, its.st_ino


def _unreadable(path: Path, problem: str) -> ConfigError:
    return ConfigError(
        str(path), f"it holds no tokens: {problem}", "Move it away, and make them with: kilowatch token add NAME"
    )
