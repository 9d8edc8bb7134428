"""Every exception sluicegate raises.

Error
├── ConfigurationError        the configuration has faults; all of them, each with its path
├── RelayClosed               a request came after the relay was closed
└── ParseError                bytes that break a rule, with the offset of the byte
    ├── InvalidJSON           not one JSON object
    ├── InvalidRequest        JSON, but a member the gateway reads has a type it cannot have
    └── LimitExceeded         a bound was reached instead of growing without end
        ├── EventTooLarge     one server-sent event
        ├── DocumentTooLarge  one JSON document
        └── TooDeep           nesting of a JSON document
"""

from collections.abc import Iterable
from dataclasses import dataclass


class Error(Exception):
    """Base of every exception here."""


@dataclass(frozen=True, slots=True)
class ConfigurationFault:
    """One thing wrong in a configuration.

    `path` names the place (`upstreams.local.base_url`, `keys[0].name`; empty: the whole file), `line` its
    line in the file, counted from 1, where that is known. No field ever holds a value that may be a secret.
    """

    path: str
    message: str
    hint: str | None = None
    line: int | None = None

    def __str__(self) -> str:
        place = self.path or "configuration"
        if self.line is not None:
            place = f"{place} (line {self.line})"
        return f"{place}: {self.message}" + (f" [{self.hint}]" if self.hint else "")


class ConfigurationError(Error):
    """The configuration cannot be used. `faults` holds everything that is wrong, not only the first."""

    faults: tuple[ConfigurationFault, ...]

    def __init__(self, faults: str | Iterable[ConfigurationFault]) -> None:
        self.faults = (ConfigurationFault("", faults),) if isinstance(faults, str) else tuple(faults)
        super().__init__(self.faults)

    def __str__(self) -> str:
        return "\n".join(map(str, self.faults))


class RelayClosed(Error):
    """The relay was closed and takes no more requests."""


class ParseError(Error):
    """Bytes that break a rule. `offset` counts bytes from the start of the input, or of the stream."""

    message: str
    offset: int

    def __init__(self, message: str, offset: int = 0) -> None:
        self.message = message
        self.offset = offset
        super().__init__(message, offset)

    def __str__(self) -> str:
        return f"{self.message} (at byte {self.offset})"


class InvalidJSON(ParseError):
    """Not one JSON object (RFC 8259, UTF-8)."""


class InvalidRequest(ParseError):
    """A JSON object in which a member that the gateway reads has a type it cannot have (`stream: "yes"`)."""


class LimitExceeded(ParseError):
    """A configured bound was reached."""


class EventTooLarge(LimitExceeded):
    """One server-sent event is larger than allowed."""


class DocumentTooLarge(LimitExceeded):
    """One JSON document is larger than allowed."""


class TooDeep(LimitExceeded):
    """A JSON document nests deeper than allowed."""
