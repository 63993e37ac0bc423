"""Apprise, for services that have no channel of their own here: mail, Teams, SMS and many more.

Its plugins block, and sleep between two messages; so each call runs in a thread of its own with a
time limit, never in the event loop.
"""

from __future__ import annotations

import asyncio
import importlib.util
import tempfile
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

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
    picture: bool = True
    """Whether a page has a picture of the readings with it, where the service takes attachments."""

    kind: ClassVar[str] = "apprise"
    receiver_settings: ClassVar[tuple[str, ...]] = ("urls_file", "urls_env")
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
                    where, f"URL {number} ({scheme}://...) is not supported by Apprise", "See `apprise --details`."
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
        letter = _Letter(cut(page.headline, TITLE), body, kind, message.picture() if self.picture else None)
        return await _in_a_thread(urls, letter, self.timeout_seconds)

    def _urls(self, where: str) -> list[str]:
        text = secret.read(where, self.urls_file, self.urls_env)
        lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
        return [word for line in lines if not line.startswith("#") for word in line.split()]


class _Letter(NamedTuple):
    """Everything that a service gets."""

    title: str
    body: str
    kind: str
    picture: bytes | None
    """PNG."""


async def _in_a_thread(urls: list[str], letter: _Letter, seconds: float) -> Answer:
    if not _threads.acquire(blocking=False):
        return Later(f"{MAX_THREADS} threads of Apprise hang")
    future: Future[Answer] = Future()

    def work() -> None:
        try:
            future.set_result(_notify(urls, letter, seconds))
        except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
            future.set_exception(error)
        finally:
            _threads.release()

    # A daemon, so that a plugin that hangs does not delay the end of the process.
    threading.Thread(target=work, name="apprise", daemon=True).start()
    try:
        async with asyncio.timeout(seconds + 1):
            return await asyncio.wrap_future(future)
    except TimeoutError:
        return Later(f"no answer within {seconds:g} s")
    except Exception as error:  # noqa: BLE001 - see above
        return Later(f"{type(error).__name__}: {clean(str(error), 200)}")


def _notify(urls: list[str], letter: _Letter, seconds: float) -> Answer:
    with tempfile.TemporaryDirectory(prefix="kilowatch-") as folder:
        path = None
        if letter.picture is not None:
            path = Path(folder) / "readings.png"
            path.write_bytes(letter.picture)
        statuses = asyncio.run(_notify_all(urls, letter, path, seconds))
    return _answer(statuses)


async def _notify_all(urls: list[str], letter: _Letter, picture: Path | None, seconds: float) -> list[Any]:
    """Notify each service by itself: what one makes of a picture is no matter of the others."""
    return list(await asyncio.gather(*(_notify_one(url, letter, picture, seconds) for url in urls)))


async def _notify_one(url: str, letter: _Letter, picture: Path | None, seconds: float) -> Any:
    """Notify a service; one that refuses the picture gets the page without it."""
    import apprise  # noqa: PLC0415 - an extra

    client = _client()
    client.add(url)
    loop = asyncio.get_running_loop()
    end = loop.time() + seconds
    for attached in (picture, None) if picture is not None else (None,):
        result = await client.async_notify(
            body=letter.body,
            title=letter.title,
            notify_type=letter.kind,
            body_format=apprise.NotifyFormat.MARKDOWN,
            timeout=max(0.05, end - loop.time()),
            attach=None if attached is None else str(attached),
        )
        if result.status != apprise.AppriseResultStatus.FAILURE:
            break
    return result.status


def _answer(statuses: list[Any]) -> Answer:
    import apprise  # noqa: PLC0415

    words = apprise.AppriseResultStatus
    good = statuses.count(words.SUCCESS)
    if good == len(statuses) > 0:
        return Delivered(f"{good} services")
    if good or words.PARTIAL in statuses:
        # A retry would send twice to the services that accepted it.
        return Delivered("only some of its services accepted it")
    if not statuses or all(status == words.NOMATCH for status in statuses):
        return Refused("Apprise supports none of its URLs")
    if words.TIMEOUT in statuses:
        return Later("a service did not answer in time")
    return Later("its services did not accept it")


def _client() -> Any:
    try:
        import apprise  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError("alerts.channels", "Apprise is not installed", MISSING) from error
    return apprise.Apprise()
