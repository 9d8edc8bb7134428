"""Lines to a file descriptor, written by a thread of its own.

Neither the event loop nor the relay ever waits for whoever reads them.
"""

import os
import select
import stat
import threading
import time
from collections import deque
from collections.abc import Iterator

COALESCE_SECONDS = 0.02
"""Under load many lines share one write; a lone line is late by this much."""

MAX_WAITING = 100_000
"""Lines held for a reader that does not read, about 60 MB; later ones are dropped and counted."""

# POSIX: up to PIPE_BUF bytes written to a pipe at once never mix with another process's. Workers share it.
_PIPE_BUF = 4096


class LineWriter:
    """Appends lines to `fd`. Any thread may write. The thread starts with the first line, never on import."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._waiting: deque[bytes] = deque()
        self._wake = threading.Event()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._starting = threading.Lock()
        self.dropped = 0

    def write(self, line: bytes) -> None:
        """Queue `line`, which ends with LF. Never blocks; after `close` the line is dropped."""
        if self._closing or len(self._waiting) >= MAX_WAITING:
            self.dropped += 1
            return
        self._waiting.append(line)
        if not self._wake.is_set():
            self._wake.set()
            if self._thread is None:
                self._start()

    def close(self, timeout: float = 2.0) -> None:
        """Write what waits, for at most `timeout` seconds. Idempotent."""
        self._closing = True
        self._wake.set()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join(timeout)

    def _start(self) -> None:
        with self._starting:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="log-writer", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while True:
            self._wake.wait()
            if not self._closing:
                time.sleep(COALESCE_SECONDS)
            # Cleared before the queue is emptied: a line that comes after this wakes the thread again.
            self._wake.clear()
            try:
                for block in self._blocks():
                    self._write_all(block)
            except OSError:
                # The reader is gone (EPIPE) or the disk is full: a gateway goes on serving without its log.
                self.dropped += len(self._waiting) + 1
                self._waiting.clear()
            if self._closing and not self._waiting:
                return

    def _blocks(self) -> Iterator[bytes]:
        limit = _PIPE_BUF if stat.S_ISFIFO(os.fstat(self._fd).st_mode) else 1 << 20
        block: list[bytes] = []
        size = 0
        waiting = self._waiting
        # Nobody else takes from it.
        while waiting:
            line = waiting.popleft()
            if block and size + len(line) > limit:
                yield b"".join(block)
                block, size = [], 0
            block.append(line)
            size += len(line)
        if block:
            yield b"".join(block)

    def _write_all(self, block: bytes) -> None:
        view = memoryview(block)
        while view:
            try:
                view = view[os.write(self._fd, view) :]
            except BlockingIOError:
                # Somebody else who has this terminal or pipe made it non-blocking.
                select.select((), (self._fd,), (), 1.0)
