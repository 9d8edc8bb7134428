"""Warnings that are logged once in a process's life, not for every request."""

from sluicegate.telemetry import Log

# Beyond it nobody reads them, and what a client names may be in them.
_MOST = 10_000


class Notices:
    """Any thread."""

    __slots__ = ("_log", "_said")

    def __init__(self, log: Log) -> None:
        self._log = log
        self._said: set[tuple[str, ...]] = set()

    def warn_once(self, event: str, **fields: str) -> None:
        """Log a warning the first time it is met with these fields."""
        about = (event, *fields.values())
        if about not in self._said and len(self._said) < _MOST:
            self._said.add(about)
            self._log.warning(event, **fields)
