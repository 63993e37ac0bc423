"""A smart plug on the network: publishes messages to a broker every second, until it is killed.

python -m tests.endtoend.plug HOST PORT USER PASSWORD-FILE < messages.json (pairs of topic and payload)
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import aiomqtt

EVERY = 1.0


async def main() -> None:
    """Publish for ever."""
    host, port, user, file = sys.argv[1:]
    messages = json.load(sys.stdin)
    password = Path(file).read_text(encoding="utf-8").strip()
    async with aiomqtt.Client(host, int(port), username=user, password=password) as client:
        while True:
            for topic, payload in messages:
                await client.publish(topic, payload)
            await asyncio.sleep(EVERY)


if __name__ == "__main__":
    asyncio.run(main())
