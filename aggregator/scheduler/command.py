"""A command of a scheduler as a bounded child process: with a deadline, and a bound on what it may print."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterable, Mapping, Sequence

MOST_BYTES = 256 * 1024 * 1024
"""Bytes of output at most: 3 KB a job make 80,000 jobs."""
_CHUNK = 1024 * 1024
_REFUSED = re.compile(r"denied|permission|not authorized|authentication|credential|munge|invalid user", re.IGNORECASE)
_KILL_SECONDS = 5.0


class CommandError(Exception):
    """A command that gave no answer: `state` as in `telemetry.wire.jobs.JobSourceState`."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(message)
        self.state = state


async def output_of(
    command: Sequence[str],
    environment: Mapping[str, str],
    deadline: float,
    most: int = MOST_BYTES,
    despite: re.Pattern[str] | None = None,
) -> bytes:
    """Return what a command prints. `despite`: last words of one that failed which are no failure. Raises `CommandError`;
    nothing of it goes on after the deadline."""
    name = command[0]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env={**os.environ, **environment},
            start_new_session=True,
        )
    except FileNotFoundError:
        raise CommandError("absent", f"{name} is not on the PATH of the aggregator") from None
    except OSError as error:
        state = "no permission" if isinstance(error, PermissionError) else "failing"
        raise CommandError(state, f"{name}: {error.strerror}") from None
    streams = process.stdout, process.stderr
    reading = [
        asyncio.create_task(_bounded(process.stdout, most, name)),
        asyncio.create_task(_last_words(process.stderr)),
    ]
    try:
        async with asyncio.timeout(deadline):
            output, errors = await asyncio.gather(*reading)
            code = await process.wait()
    except BaseException as error:
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)
        await _end(process, streams)
        if isinstance(error, TimeoutError):
            text = f"{name} has not answered in {deadline:g} s"
            raise CommandError("failing", text) from None
        raise
    if code:
        text = errors.decode() or f"it ended with {code}"
        if despite is not None and despite.search(text):
            return output
        state = "no permission" if _REFUSED.search(text) else "failing"
        raise CommandError(state, text if text.startswith(name) else f"{name}: {text}")
    return output


async def _bounded(stream: asyncio.StreamReader | None, most: int, name: str) -> bytes:
    parts, size = [], 0
    while stream is not None and (part := await stream.read(_CHUNK)):
        size += len(part)
        if size > most:
            raise CommandError("failing", f"{name} prints more than {most:,} bytes")
        parts.append(part)
    return b"".join(parts)


async def _last_words(stream: asyncio.StreamReader | None) -> bytes:
    """Return the last line of a stream, 300 characters of it at most."""
    last = b""
    while stream is not None and (part := await stream.read(_CHUNK)):
        last = (last + part)[-4096:]
    lines = last.decode("utf-8", "replace").strip().splitlines()
    return lines[-1].strip()[:300].encode() if lines else b""


async def _end(process: asyncio.subprocess.Process, streams: Iterable[asyncio.StreamReader | None]) -> None:
    """Kill a command with its children, one of which may hold its output open, and read what is left: asyncio
    closes a pipe at its end."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_KILL_SECONDS):
            for stream in streams:
                while stream is not None and await stream.read(_CHUNK):
                    pass
            await process.wait()
