"""A client of upsd, the server of Network UPS Tools: lines of text over TCP."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable

from aggregator.meters.poller import Poller, PollError
from aggregator.meters.secrets import secret
from power.meters.meter_record import MeterRecord
from power.meters.nut import Nut, as_whole, of_variables, words
from power.meters.sample import MeterSample
from telemetry.errors import WireError

LINES = 5000
"""Most lines of one answer."""
_CURES = {
    "ACCESS-DENIED": "check username, password_file and upsd.users",
    "UNKNOWN-UPS": "check its name: upsc -l",
    "DRIVER-NOT-CONNECTED": "its driver does not run: upsdrvctl start",
    "DATA-STALE": "its driver has lost the device",
}


class UpsdRefusedError(PollError):
    """upsd answered ERR."""


class NutPoller(Poller):
    """Poller of one upsd server: all its UPSs, or one."""

    def __init__(self, config: Nut, record: MeterRecord, now: Callable[[], float]) -> None:
        super().__init__(record, config.timeout, now)
        self._config = config
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._names: list[str] = []

    async def ask(self) -> list[MeterSample]:
        """Read the variables of each UPS; a refusal for one does not fail the others."""
        if self._streams is None:
            await self._enter()
        found: list[MeterSample] = []
        refused: list[str] = []
        for name in self._names:
            try:
                rows = await self._list(f"VAR {name}", 4)
            except UpsdRefusedError as error:
                refused.append(f"UPS {name}: {error}")
                continue
            samples = of_variables(name, {row[2]: row[3] for row in rows})
            found += samples
            if len(self._names) == 1:
                found += as_whole(samples)
        if refused and not found:
            raise PollError("; ".join(refused))
        self.partial = "; ".join(refused)
        return found

    async def leave(self) -> None:
        """Close the connection without waiting for the other side."""
        streams, self._streams = self._streams, None
        if streams is not None:
            with contextlib.suppress(OSError, RuntimeError):
                streams[1].transport.abort()

    async def _enter(self) -> None:
        config = self._config
        self._streams = await asyncio.open_connection(config.host, config.port, limit=1 << 14)
        password = secret(f"power: meters.{self.record.meter.name}", config.password_file)
        if config.username is not None and password is not None:
            for word, value in (("USERNAME", config.username), ("PASSWORD", password)):
                await self._send(f"{word} {_quoted(value)}")
                answer = await self._line()
                if answer[:1] != ["OK"]:
                    raise WireError("bad_answer", f"{answer[:3]} to {word}")
        known = [row[1] for row in await self._list("UPS", 3)]
        wanted = [config.ups] if config.ups is not None else list(config.map) or known
        missing = [name for name in wanted if name not in known]
        if missing:
            raise PollError(f"there is no UPS {', '.join(missing)}; it has {', '.join(known) or 'none'}")
        whole = [attachment.target for attachment in self.record.meter.attachments if not attachment.channel]
        if whole and len(wanted) > 1:
            raise PollError(f"which UPS is on {whole[0]}? It has {', '.join(wanted)}: set ups")
        self._names = wanted

    async def _list(self, what: str, width: int) -> list[list[str]]:
        """Return the rows of `LIST what`. Raises `UpsdRefusedError` or `WireError`."""
        await self._send(f"LIST {what}")
        first = await self._line()
        if first != ["BEGIN", "LIST", *what.split()]:
            raise WireError("bad_answer", f"{' '.join(first)[:80]!r} to LIST {what}")
        rows: list[list[str]] = []
        while (row := await self._line()) != ["END", "LIST", *what.split()]:
            if len(row) < width or row[0] != what.partition(" ")[0]:
                raise WireError("bad_answer", f"{' '.join(row)[:80]!r} in a list of {what}")
            rows.append(row)
            if len(rows) > LINES:
                raise WireError("too_long", f"more than {LINES} lines")
        return rows

    async def _send(self, line: str) -> None:
        assert self._streams is not None  # noqa: S101 - `ask` enters first
        self._streams[1].write(f"{line}\n".encode())
        await self._streams[1].drain()

    async def _line(self) -> list[str]:
        assert self._streams is not None  # noqa: S101 - `ask` enters first
        try:
            raw = await self._streams[0].readuntil(b"\n")
        except asyncio.IncompleteReadError as error:
            raise PollError("it hung up in the middle of an answer") from error
        except asyncio.LimitOverrunError as error:
            raise WireError("too_long", "a line without end") from error
        found = words(raw.decode("utf-8", "replace"))
        if found[:1] == ["ERR"]:
            code = found[1] if len(found) > 1 else "without a code"
            cure = _CURES.get(code)
            raise UpsdRefusedError(f"upsd reports {code}" + (f": {cure}" if cure else ""))
        return found


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
