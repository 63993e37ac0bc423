"""The terminal's input, whatever bytes come: a paste of a binary file, a broken sequence, another encoding.

Textual's own thread ends with the first byte that is no UTF-8, and the dashboard with it; its parser
raises for sequences that no keyboard sends (the code point 99999999 as a key).
"""

from __future__ import annotations

import logging
import os
import selectors
import time
from codecs import getincrementaldecoder
from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual import events
from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from textual.message import Message

log = logging.getLogger(__name__)

AT_ONCE = 4096
LOOK_SECONDS = 0.1
"""Seconds between two looks whether the dashboard has ended, or a key is over that may go on."""
PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"
"""Sequences that a terminal puts around a paste."""
PASTE_SECONDS = 1.0
"""Seconds without a byte after which a paste is over: its end was lost."""
LONGEST_PASTE = 65_536
"""Characters that are kept of a paste; a filter is one line."""
LARGEST = 4096
"""Columns or rows of a terminal; a sequence that claims more is no terminal's."""


class TerminalInput:
    """Messages from bytes. Never raises: what has no meaning is dropped."""

    def __init__(self, debug: bool = False) -> None:
        self._debug = debug
        self._decode = getincrementaldecoder("utf-8")("replace").decode
        self._parser = XTermParser(debug)
        self._newest = ""
        """The last characters that were no paste, in which one may begin."""
        self._paste: list[str] | None = None
        self._came_at = 0.0

    def feed(self, data: bytes, now: float) -> Iterator[Message]:
        """Yield the messages of bytes that came at `now`, monotonic seconds."""
        self._came_at = now
        # A byte that is no UTF-8 is no key either: U+FFFD would be typed into an open field.
        for character in self._decode(data).replace("\ufffd", ""):
            if self._paste is not None:
                yield from self._pasted(self._paste, character)
                continue
            self._newest = (self._newest + character)[-len(PASTE_START) :]
            # One at a time, so that a bad sequence costs itself alone.
            yield from self._parsed(character)
            if self._newest == PASTE_START:
                self._newest, self._paste = "", []

    def tick(self, now: float) -> Iterator[Message]:
        """Yield what is complete because nothing more has come: a lone Escape, a paste without an end."""
        if self._paste is not None:
            if now - self._came_at >= PASTE_SECONDS:
                yield from self._end_paste(self._paste)
            return
        yield from self._parsed(None)

    def _pasted(self, paste: list[str], character: str) -> Iterator[Message]:
        """Take a character of a paste: no part of it is a key, whatever it holds."""
        paste.append(character)
        if character == "~" and "".join(paste[-len(PASTE_END) :]) == PASTE_END:
            del paste[-len(PASTE_END) :]
            yield from self._end_paste(paste)
        elif len(paste) > 2 * LONGEST_PASTE:
            del paste[LONGEST_PASTE:-16]

    def _end_paste(self, paste: list[str]) -> Iterator[Message]:
        self._paste = None
        text = "".join(each for each in paste[:LONGEST_PASTE] if each.isprintable() or each == "\n")
        for character in PASTE_END:  # the parser has seen the beginning
            for message in self._parsed(character):
                yield events.Paste(text) if isinstance(message, events.Paste) else message

    def _parsed(self, character: str | None) -> Iterator[Message]:
        parser = self._parser
        try:
            found = list(parser.tick() if character is None else parser.feed(character))
        except Exception:
            log.debug("the terminal has sent a sequence that can't be read", exc_info=True)
            fresh = XTermParser(self._debug)
            fresh.mouse_pixels = parser.mouse_pixels
            fresh.terminal_size = parser.terminal_size
            fresh.terminal_pixel_size = parser.terminal_pixel_size
            self._parser = fresh
            return
        yield from (message for message in found if _plausible(message))


def _plausible(message: Message) -> bool:
    if isinstance(message, events.Resize):
        return 0 < message.size.width <= LARGEST and 0 < message.size.height <= LARGEST
    return True


class TerminalDriver(LinuxDriver):
    """Textual's driver with an input that survives every byte."""

    def run_input_thread(self) -> None:
        """Read the terminal until the dashboard ends, or the terminal is gone."""
        source = TerminalInput(self._debug)
        with selectors.DefaultSelector() as selector:
            selector.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                if selector.select(LOOK_SECONDS):
                    data = self._read()
                    if not data:  # without an end it would be asked for ever, at full speed
                        self._app.call_later(self._app.exit)
                        return
                    for message in source.feed(data, time.monotonic()):
                        self.process_message(message)
                for message in source.tick(time.monotonic()):
                    self.process_message(message)

    def _read(self) -> bytes:
        """Return what has come; nothing when the terminal is gone."""
        try:
            return os.read(self.fileno, AT_ONCE)
        except OSError:
            return b""
