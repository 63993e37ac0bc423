"""Processes that send pages and are killed: a parent that forks a victim on each command.

    python -m tests.alerts.outbox_victims JOURNAL SETTINGS
    <- go 40        fork a victim that opens incidents up to number 40, resolves every third, and sends
    -> <pid>        of the victim
    -> done         the victim has ended, by itself or not

A fork has all modules loaded: a life takes a few ms instead of a second. A victim goes on where the
journal ends, as the incident manager does.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

import msgspec

from alerts.config import AlertsConfig
from alerts.delivery.clock import DeliveryClock
from alerts.delivery.outbox import Outbox
from alerts.delivery.routing import Router
from api.alerts import Action
from tests.alerts.notices import NoticeWriter

PAUSE = 0.002
"""Seconds between two notices."""


def key_of(number: int) -> str:
    """The dedup key of an incident."""
    return f"i-{number:04d}"


async def live(path: Path, config: AlertsConfig, last: int) -> None:
    """Open incidents and send their notices until all are sent."""
    writer = NoticeWriter(path, DeliveryClock(), Router(config).route)
    outbox = Outbox(config, writer.journal)
    sending = asyncio.create_task(outbox.run())
    for number in range(1, last + 1):
        for action in (Action.TRIGGER, Action.RESOLVE) if number % 3 == 0 else (Action.TRIGGER,):
            if not _decided(writer, key_of(number), action):
                await asyncio.to_thread(writer.write, action, key_of(number))
                outbox.wake()
                await asyncio.sleep(PAUSE)
    while writer.journal.waiting():  # noqa: ASYNC110 - the journal has no event to set
        await asyncio.sleep(0.005)
    sending.cancel()
    await asyncio.gather(sending, return_exceptions=True)
    writer.journal.close()


def _decided(writer: NoticeWriter, key: str, action: Action) -> bool:
    return any(
        one.notice.incident.key == key and one.notice.action is action for one in writer.journal.history(limit=100_000)
    )


def nurse(path: Path, config: AlertsConfig) -> None:
    """Fork a victim for each line, and say when it has ended."""
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            asyncio.run(live(path, config, int(line.split()[1])))
            os._exit(0)
        print(pid, flush=True)
        os.waitpid(pid, 0)
        print("done", flush=True)


if __name__ == "__main__":
    nurse(Path(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=AlertsConfig))
