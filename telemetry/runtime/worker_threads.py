"""A small pool of threads that is replaced when one of them has died.

A thread of `ThreadPoolExecutor` survives whatever the work raises. But one that dies all the same (for
want of memory, say) is never started again, and what is submitted later waits for ever.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar, TypeVarTuple, Unpack

Answer = TypeVar("Answer")
Arguments = TypeVarTuple("Arguments")

CHECK_SECONDS = 1.0


class WorkerThreads:
    """Threads for calls that block. No thread is started before it is used."""

    def __init__(self, count: int, name: str, begin: Callable[[], None] = lambda: None) -> None:
        """`begin` is called in each thread when it starts."""
        self.name = name
        self._count = count
        self._begin = begin
        self._threads: list[threading.Thread] = []
        self._pending: set[Future[Any]] = set()
        self._closed = False
        self._pool = self._make()

    async def run(self, function: Callable[[Unpack[Arguments]], Answer], *args: *Arguments) -> Answer:
        """Call a function in a thread of the pool."""
        future = self._pool.submit(function, *args)
        self._pending.add(future)
        future.add_done_callback(self._pending.discard)
        return await asyncio.wrap_future(future)

    async def watch(self) -> None:
        """Check once a second that all threads live."""
        while True:
            self.check()
            await asyncio.sleep(CHECK_SECONDS)

    def check(self) -> None:
        """Replace the pool and raise `RuntimeError` where a thread has died. What waits for it is cancelled."""
        dead = [thread.name for thread in self._threads if not thread.is_alive()]
        if dead and not self._closed:
            old, self._pool = self._pool, self._make()
            old.shutdown(wait=False, cancel_futures=True)
            for future in list(self._pending):  # what the thread had taken when it died
                future.cancel()  # without effect on one that another thread works at
            raise RuntimeError(f"thread {dead[0]} has died")

    def close(self, *, cancel: bool = False) -> None:
        """End the threads when they have done what they were given; with `cancel`, what they do now."""
        self._closed = True
        self._pool.shutdown(wait=False, cancel_futures=cancel)

    def _make(self) -> ThreadPoolExecutor:
        self._threads = []
        return ThreadPoolExecutor(self._count, self.name, initializer=self._started)

    def _started(self) -> None:
        self._threads.append(threading.current_thread())
        self._begin()
