"""Apprise, for services that have no channel of their own here: mail, Teams, SMS and many more.

Its plugins block, and sleep between two messages; so each call runs in a thread of its own with a
time limit, never in the event loop.
"""

from __future__ import annotations

import asyncio
import importlib.util
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from alerts.message.formats import markdown
from alerts.message.text import clean, cut
from alerts.notifiers import secret
from alerts.notifiers.channel import Channel, Message
from alerts.notifiers.result import Answer, Delivered, Later, Refused
from api.alerts import Action, Severity
from telemetry.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from alerts.notifiers.http_sender import HttpSender

MISSING = 'Install it: pip install "kilowatch[apprise]".'
TITLE = 250
BODY = 4000
MAX_THREADS = 8
_threads = threading.Semaphore(MAX_THREADS)
"""Threads that run, or were abandoned because a plugin hangs; they cannot be ended."""
_TYPE = {Severity.PAGE: "failure", Severity.TICKET: "warning", Severity.INFO: "info"}


class Apprise(Channel, frozen=True, kw_only=True, tag="apprise"):
    """Services by their Apprise URLs, which contain secrets and so are read from a file."""

    urls_file: Path | None = None
    """A file with one URL a line; `#` begins a comment."""
    urls_env: str = ""
    """The name of an environment variable with URLs, separated by blanks."""
    timeout_seconds: float = 30.0
    """For all of its services together; a thread that hangs longer is abandoned."""
    at_once: int = 1
    per_minute: float = 60.0
    burst: int = 5

    kind: ClassVar[str] = "apprise"
    shows_updates: ClassVar[bool] = False

    def problems(self) -> Iterator[tuple[str, str, str]]:
        """Yield invalid settings."""
        yield from super().problems()
        if (self.urls_file is None) == (not self.urls_env):
            problem = "there are no URLs" if not self.urls_env else "there are two places of URLs"
            yield "urls_file", problem, "Give one of urls_file or urls_env."
        if importlib.util.find_spec("apprise") is None:
            yield "type", "Apprise is not installed", MISSING

    def open(self, where: str) -> None:
        """Read the URLs, and check that Apprise supports them. Raises `ConfigError`."""
        for number, url in enumerate(self._urls(where), 1):
            if not _client().add(url):
                scheme = clean(url.partition("://")[0], 20)
                raise ConfigError(
                    where,
                    f"URL {number} ({scheme}://...) is not supported by Apprise",
                    "See `apprise --details`.",
                )

    async def send(self, message: Message, sender: HttpSender) -> Answer:
        """Notify all of its services, in a thread."""
        try:
            urls = self._urls("urls_file")
        except ConfigError as error:
            return Refused(str(error))
        page = message.page
        over = message.notice.action in {Action.RESOLVE, Action.ACKNOWLEDGE}
        kind = "success" if over else _TYPE[message.notice.incident.severity]
        body = markdown(page, BODY, headline=False)
        return await _in_a_thread(urls, cut(page.headline, TITLE), body, kind, self.timeout_seconds)

    def _urls(self, where: str) -> list[str]:
        text = secret.read(where, self.urls_file, self.urls_env)
        lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
        return [word for line in lines if not line.startswith("#") for word in line.split()]


async def _in_a_thread(urls: list[str], title: str, body: str, kind: str, seconds: float) -> Answer:
    if not _threads.acquire(blocking=False):
        return Later(f"{MAX_THREADS} threads of Apprise hang")
    future: Future[Answer] = Future()

    def work() -> None:
        try:
            future.set_result(_notify(urls, title, body, kind, seconds))
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            future.set_exception(error)
        finally:
            _threads.release()

    # A daemon, so that a plugin that hangs does not delay the end of the process.
    threading.Thread(target=work, name="apprise", daemon=True).start()
    try:
        return await asyncio.wait_for(asyncio.wrap_future(future), seconds + 1)
    except TimeoutError:
        return Later(f"no answer within {seconds:g} s")
    except Exception as error:  # noqa: BLE001 - see above
        return Later(f"{type(error).__name__}: {clean(str(error), 200)}")


def _notify(urls: list[str], title: str, body: str, kind: str, seconds: float) -> Answer:
    import apprise  # noqa: PLC0415 - an extra

    client = _client()
    for url in urls:
        client.add(url)
    result = asyncio.run(
        client.async_notify(
            body=body,
            title=title,
            notify_type=kind,
            body_format=apprise.NotifyFormat.MARKDOWN,
            timeout=seconds,
        )
    )
    return _answer(result.status, len(client))


def _answer(status: Any, services: int) -> Answer:
    import apprise  # noqa: PLC0415

    words = apprise.AppriseResultStatus
    if status == words.SUCCESS:
        return Delivered(f"{services} services")
    if status == words.NOMATCH:
        return Refused("Apprise supports none of its URLs")
    if status == words.TIMEOUT:
        return Later("a service did not answer in time")
    if status == words.PARTIAL:
        # A retry would send twice to the services that accepted it.
        return Delivered("only some of its services accepted it")
    return Later("its services did not accept it")


def _client() -> Any:
    try:
        import apprise  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("alerts.channels", "Apprise is not installed", MISSING) from error
    return apprise.Apprise()
