"""The brokers of `broker.hosts` that are not in use: one that is gone is known before it is needed.

The broker in use is known by its connection. Each other one is connected to every half minute or so, with the
handshake of TLS where that is set, and left without a word of MQTT: a broker that names its clients by their
certificates would take a second login for the first one's, where two addresses of the list are one broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from aggregator.impairments import Impairments
from telemetry.errors import ConfigError
from telemetry.text.connection_faults import connection_fault
from telemetry.wire.mqtt import BrokerConfig

RULE = "broker_lost"
WATCH_SECONDS = 30.0
"""Seconds between two tries of an address."""
ANSWER_SECONDS = 8.0
"""Seconds in which a broker must take the connection."""


class BrokerWatch:
    """Tries the addresses of a list that are not in use, and reports those that can't be reached."""

    def __init__(self, broker: BrokerConfig, impairments: Impairments, in_use: Callable[[], str]) -> None:
        """`in_use`: returns the address of the broker that we are connected to; "" without one."""
        self._brokers = broker.each()
        self._in_use = in_use
        self._impairments = impairments

    async def run(self) -> None:
        """Watch until cancelled."""
        while True:
            await self.check()
            await asyncio.sleep(WATCH_SECONDS)

    async def check(self) -> None:
        """Try each address that is not in use, once."""
        used = self._in_use()
        others = [one for one in self._brokers if one.address != used]
        why = await asyncio.gather(*(_fault(one) for one in others))
        instead = f"; {used} is used" if used else ""
        self._impairments.update(
            RULE,
            {f"broker/{one.address}": f"{fault}{instead}" for one, fault in zip(others, why, strict=True) if fault},
        )


async def _fault(broker: BrokerConfig) -> str:
    """Return why a broker does not take a connection; "" where it does."""
    try:
        async with asyncio.timeout(ANSWER_SECONDS):
            _, writer = await asyncio.open_connection(broker.host, broker.port, ssl=broker.context())
    except TimeoutError:
        return f"no answer in {ANSWER_SECONDS:.0f} s"
    except OSError as error:
        return connection_fault(error).what
    except ConfigError as error:
        return str(error)
    writer.close()
    return ""
