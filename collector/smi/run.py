"""One run of nvidia-smi, which may hang in the driver and then can't be killed.

A process inside a driver call is asked to end (SIGTERM) and left alone: SIGKILL in the middle of a
call has frozen GPUs (gpu_faults research, section 5). Output goes to unnamed files, not to pipes,
so that nobody ever waits for a reader or a writer.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
from collections.abc import Sequence
from typing import IO

MAX_OUTPUT = 64 * 1024 * 1024


class Run:
    """A process of its own session, its output on unnamed files. Raises `OSError` on no start."""

    def __init__(self, command: Sequence[str], started: float) -> None:
        self.started = started
        """Monotonic seconds, of the caller."""
        self._output: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - lives with the process
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115
        try:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._errors,
                start_new_session=True,
                env={**os.environ, "LC_ALL": "C"},
            )
        except BaseException:
            self._close_files()
            raise

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def over(self) -> bool:
        """Whether the process has ended."""
        return self._process.poll() is not None

    @property
    def code(self) -> int | None:
        """Exit code, None while it runs."""
        return self._process.returncode

    def texts(self) -> tuple[str, str]:
        """Return what it printed, and what it printed on standard error."""
        texts = []
        for file in (self._output, self._errors):
            file.seek(0)
            texts.append(file.read(MAX_OUTPUT).decode("utf-8", errors="replace"))
        return texts[0], texts[1]

    def ask_to_end(self) -> None:
        """Send SIGTERM, never more."""
        if not self.over():
            with contextlib.suppress(OSError):
                self._process.terminate()

    def forget(self) -> None:
        """Let go of the process, whether it has ended or not."""
        if not self.over():
            # It goes on without us; Python would warn of a process that nobody waits for.
            self._process.returncode = -1
        self._close_files()

    def _close_files(self) -> None:
        self._output.close()
        self._errors.close()
