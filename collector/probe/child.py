"""The probe process: answers the collector at once, whatever the driver does.

The main thread calls no driver. It reads requests from standard input and writes replies to standard
output; workers and a thread that waits for events make the calls that may hang. When the collector
closes the pipe, the process ends as soon as every call has returned, and not before: killing
a process inside a driver call has frozen GPUs.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import sys
from threading import Event, Lock, Thread

import msgspec

from collector.probe.driver import Driver
from collector.probe.protocol import ProbeReply, ProbeReport, ProbeRequest, Unpacker, pack
from collector.probe.watchdog import Watchdog
from telemetry.errors import DriverError
from telemetry.text.decoders import of_msgpack

log = logging.getLogger(__name__)

_IN, _OUT, _ERR = 0, 1, 2
_CHUNK = 1 << 16
_EVENT_WAIT = 0.5
"""Seconds: how long the process may outlive a collector that has ended."""


class Child:
    """The probe process: one driver, opened once. A driver that went away needs a new process,
    because the library loaded here may be of the previous release."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._closing = Event()
        self._write_lock = Lock()
        self._watchdog: Watchdog | None = None
        self._down = False
        # Libraries print to standard output; that goes to the log, and not to the parent.
        self._out = os.dup(_OUT)
        os.dup2(_ERR, _OUT)
        self._opener = Thread(target=self._open, name="open", daemon=True)
        self._events: Thread | None = None

    def run(self) -> None:
        """Serve until standard input closes."""
        self._opener.start()
        decoder = of_msgpack(ProbeRequest)
        unpacker = Unpacker()
        try:
            while data := os.read(_IN, _CHUNK):
                for body in unpacker.feed(data):
                    self._serve(decoder.decode(body))
        finally:
            self._finish()

    def _serve(self, ask: ProbeRequest) -> None:
        if self._watchdog is None or self._down:
            self._send(ProbeReply(ask.seq, []))
            return
        try:
            self._send(self._watchdog.serve(ask))
        except DriverError as error:
            self._down = True
            self._send(ProbeReport(up=False, code=error.code, message=str(error)))

    def _open(self) -> None:
        try:
            report = self._driver.open()
        except DriverError as error:
            self._send(ProbeReport(up=False, code=error.code, message=str(error)))
            return
        except Exception as error:
            log.exception("the driver can't be opened")
            self._failed(error)
            return
        self._watchdog = Watchdog(self._driver, report.devices)
        self._send(report)
        self._events = Thread(target=self._wait, name="events", daemon=True)
        self._events.start()

    def _wait(self) -> None:
        try:
            while not self._closing.is_set():
                for notice in self._driver.wait(_EVENT_WAIT):
                    self._send(notice)
        except Exception as error:
            log.exception("the driver's events can't be read")
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Report that this process is of no use any more: the collector starts another."""
        self._down = True
        self._send(ProbeReport(up=False, message=f"{type(error).__name__}: {error}"))

    def _finish(self) -> None:
        self._closing.set()
        # A reader of the collector's output must not wait for a call that hangs.
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in (self._out, _OUT, _ERR):
            os.dup2(nothing, descriptor)
        self._opener.join()
        if self._events is not None:
            self._events.join()
        if self._watchdog is not None:
            self._watchdog.finish()
            self._driver.close()

    def _send(self, message: msgspec.Struct) -> None:
        data = memoryview(pack(message))
        with self._write_lock:
            try:
                while data:
                    data = data[os.write(self._out, data) :]
            except BrokenPipeError:  # the collector has ended: standard input is closed too
                return


def run(driver: Driver) -> None:
    """Run as the probe process of `driver`. Signals are ignored: a terminal and a service manager
    send them to the collector too, which then closes the pipe."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    gc.freeze()  # what is loaded now stays: no full collection walks it again
    Child(driver).run()
    sys.exit(0)
