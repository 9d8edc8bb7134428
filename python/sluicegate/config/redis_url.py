"""The URL of a Redis or Valkey server."""

from typing import NamedTuple, Self
from urllib.parse import parse_qs, unquote, urlsplit

_PORT = 6379


class RedisUrl(NamedTuple):
    """Where a server is, and as whom it is asked."""

    tls: bool
    host: str
    """Empty: it listens at `path`, a Unix socket."""
    port: int
    path: str
    user: str
    """Empty: the server's default user."""
    password: str
    database: int

    @classmethod
    def of(cls, text: str) -> Self:
        """`redis://[[user]:password@]host[:port][/database]`, `rediss://…` with TLS, or
        `unix://[[user]:password@]/path[?db=database]`. Raises `ValueError`, which quotes nothing of `text`.
        """
        try:
            parts = urlsplit(text)
            port = parts.port
            options = parse_qs(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        except ValueError:
            raise ValueError("no URL") from None
        host, path, database = parts.hostname or "", "", "0"
        if parts.scheme == "unix":
            path = unquote(parts.path)
            [database] = options.pop("db", ["0"])
            known = path.startswith("/") and len(path) > 1 and not host and port is None
        else:
            known = parts.scheme in ("redis", "rediss") and bool(host) and port != 0
            database = parts.path.removeprefix("/") or "0"
        user, password = unquote(parts.username or ""), unquote(parts.password or "")
        if not known or options or parts.fragment or (user and not password):
            raise ValueError("no URL of Redis")
        if not (database.isascii() and database.isdigit() and len(database) < 6):
            raise ValueError("no number of a database")
        tls = parts.scheme == "rediss"
        return cls(tls, host, port or _PORT, path, user, password, int(database))
