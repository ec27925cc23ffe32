"""A progress line on terminals and in notebooks."""

from __future__ import annotations

import sys
import threading
import time
from typing import TextIO

#: Seconds before the line appears.
PATIENCE = 0.5
#: Seconds between updates of the line.
INTERVAL = 0.2


def _stream() -> TextIO | None:
    """The output of the line: a terminal, or a notebook's cell."""
    if "ipykernel" in sys.modules:
        return sys.stdout
    stream = sys.stderr
    try:
        return stream if stream is not None and stream.isatty() else None
    except ValueError:
        return None  # closed


class Watch:
    """Writes the line from another thread while this one works without the interpreter's lock."""

    def __init__(self, what: str, stream: TextIO) -> None:
        self._what = what
        self._stream = stream
        self._begin = time.monotonic()
        self._width = 0
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._run, name="fxc-progress", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        wait = PATIENCE
        while not self._done.wait(wait):
            wait = INTERVAL
            text = f"fxc: {self._what} … {time.monotonic() - self._begin:.1f} s"
            self._width = max(self._width, len(text))
            self._stream.write("\r" + text.ljust(self._width))
            self._stream.flush()

    def stop(self) -> None:
        """Clears the line."""
        self._done.set()
        self._thread.join()
        if self._width:
            self._stream.write("\r" + " " * self._width + "\r")
            self._stream.flush()


class Silence:
    """Used where the line would not be visible."""

    def stop(self) -> None:
        pass


def start(what: str) -> Watch | Silence:
    stream = _stream()
    return Watch(what, stream) if stream is not None else Silence()
