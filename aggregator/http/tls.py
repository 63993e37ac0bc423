"""Certificate and key of the HTTP listener, loaded again when their files change."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from telemetry.errors import ConfigError
from telemetry.files.secrets import secret_path

log = logging.getLogger(__name__)

PLACE = "aggregator.tls_cert"


class ServerCertificate:
    """The TLS context of a listener. New connections use the newest certificate, open ones go on."""

    def __init__(self, cert: Path, key: Path | None) -> None:
        """`key`: none where `cert` has it too. Raises `ConfigError` for files that can't be used."""
        self._files = [secret_path(PLACE, path) for path in (cert, key) if path is not None]
        self._seen = self._state()
        self.context = self._load()
        """The context of new connections."""

    def refresh(self) -> None:
        """Load the files again if they have changed; those that can't be used change nothing."""
        state = self._state()
        if state == self._seen:
            return
        self._seen = state
        try:
            # Another context: in the one in use a handshake could meet a certificate without its key.
            self.context = self._load()
        except ConfigError as error:
            log.error("http: the certificate before stays in force: %s", error)  # noqa: TRY400
        else:
            log.info("http: certificate loaded again from %s", self._files[0])

    def _load(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        try:
            # Without a password openssl would ask for one on the terminal.
            context.load_cert_chain(self._files[0], self._files[-1], password="")
        except (OSError, ssl.SSLError) as error:
            problem = error.strerror if isinstance(error, FileNotFoundError) else str(error)
            raise ConfigError(
                PLACE,
                f"{' and '.join(map(str, self._files))} can't be used: {problem}",
                "Name a certificate (its chain below it) and its key without a password, both PEM.",
            ) from error
        return context

    def _state(self) -> list[tuple[int, int] | None]:
        return [_stamp(path) for path in self._files]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        its = path.stat()
    except OSError:
        return None
    return its.st_mtime_ns, its.st_ino
