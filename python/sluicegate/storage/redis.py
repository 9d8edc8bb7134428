"""Scripts at a Redis or Valkey server, on a connection that never blocks."""

import contextlib
import hashlib
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Any, NamedTuple, cast

from pydantic import SecretStr

from sluicegate.config import RedisUrl
from sluicegate.errors import ConfigurationFault

DEADLINE_SECONDS = 0.1
"""Of a new connection, and of each call."""

_READ_BYTES = 65_536
# Of one answer, which has a few hundred bytes for each limit.
_MOST_ANSWER_BYTES = 1_048_576
# The server of a cluster that was asked first may name another.
_SERVERS = 2

_WOULD_BLOCK = (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError)


class RedisFailed(Exception):
    """It did not answer in time, or with an error. Whether it did what it was asked to is not known."""


class RedisScript:
    """Lua, and the name by which a server knows it once it has run."""

    __slots__ = ("name", "source")

    def __init__(self, source: str) -> None:
        self.source = source
        # The name is SHA-1 by the protocol; nothing depends on its strength.
        self.name = hashlib.sha1(source.encode(), usedforsecurity=False).hexdigest()


class ScriptCall(NamedTuple):
    """One run of a script."""

    script: RedisScript
    keys: Sequence[str]
    arguments: Sequence[str | int]


class RedisConnection:
    """For one thread. Calls are done and answered in the order in which they are sent. One on which anything
    has failed is of no use any more: an answer that comes late would be taken for that of the next call.
    """

    def __init__(self, stream: socket.socket) -> None:
        """`stream` is connected, and whoever asks there is known."""
        stream.setblocking(False)
        self._stream = stream
        self._packed = _packer()
        self._replies = _Replies()
        self._unsent = bytearray()
        self._known: set[str] = set()

    def fileno(self) -> int:
        """Readable when there is something to `receive`."""
        return self._stream.fileno()

    @property
    def is_sending(self) -> bool:
        """Not everything is sent: `receive` goes on with that."""
        return bool(self._unsent)

    def send(self, calls: Sequence[ScriptCall]) -> None:
        """Send them, with one write. Raises `RedisFailed`."""
        for script, keys, arguments in calls:
            if script.name in self._known:
                head = ("EVALSHA", script.name)
            else:
                # With its source: nothing loads a script beforehand, as proxies refuse that.
                head = ("EVAL", script.source)
                self._known.add(script.name)
            self._unsent += self._packed((*head, len(keys), *keys, *arguments))
        self._send()

    def receive(self) -> list[Any]:
        """The answers that have come. Raises `RedisFailed`, also where one is an error."""
        if self._unsent:
            self._send()
        try:
            return self._replies.of(self._stream.recv(_READ_BYTES))
        except _WOULD_BLOCK:
            return []
        except OSError as error:
            raise RedisFailed(_said(error)) from None

    def close(self) -> None:
        """Idempotent."""
        self._stream.close()

    def _send(self) -> None:
        try:
            sent = self._stream.send(self._unsent)
        except _WOULD_BLOCK:
            return
        except OSError as error:
            raise RedisFailed(_said(error)) from None
        del self._unsent[:sent]


class RedisConnector:
    """Makes connections to one server, or to the one of its cluster that has a key."""

    def __init__(self, url: SecretStr, ca_file: str | None = None) -> None:
        """Raises `OSError` and `ImportError` where `redis_faults` finds any."""
        self._url = url
        # Now: it takes longer than a deadline.
        import hiredis  # noqa: F401

        secure = RedisUrl.of(url.get_secret_value()).tls
        self._tls = ssl.create_default_context(cafile=ca_file) if secure else None
        self.deadline = DEADLINE_SECONDS
        """Seconds."""

    def connect(self, key: str) -> RedisConnection:
        """A connection to the server that has `key`. For a thread that may wait: as long as names are looked
        up, and for each address of theirs until the deadline. Raises `RedisFailed`.
        """
        url = RedisUrl.of(self._url.get_secret_value())
        host, port = url.host, url.port
        until = time.monotonic() + self.deadline
        for _ in range(_SERVERS):
            try:
                with contextlib.ExitStack() as unused:
                    stream = unused.enter_context(self._opened(url, host, port, until))
                    _greet(stream, url, key, until)
                    unused.pop_all()
                    return RedisConnection(stream)
            except _Moved as moved:
                host, port = moved.host or host, moved.port
            except TimeoutError:
                raise RedisFailed(f"it did not answer within {self.deadline} s") from None
            except (OSError, ValueError) as error:
                raise RedisFailed(_said(error)) from None
        raise RedisFailed("the servers of its cluster do not agree on where a key is")

    def _opened(self, url: RedisUrl, host: str, port: int, until: float) -> socket.socket:
        """Raises `OSError`, and `ValueError` for names that cannot be looked up."""
        with contextlib.ExitStack() as unused:
            if url.path:
                stream = unused.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
                stream.settimeout(_left(until))
                stream.connect(url.path)
            else:
                stream = unused.enter_context(socket.create_connection((host, port), _left(until)))
                stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                if self._tls is not None:
                    stream = self._tls.wrap_socket(stream, server_hostname=host)
            unused.pop_all()
        return stream


class _Moved(Exception):
    """Another server of the cluster has the key."""

    def __init__(self, message: str) -> None:
        """`MOVED slot host:port`; without a host it is the one that says so. Raises `ValueError`."""
        self.host, _, port = message.split(" ")[2].rpartition(":")
        self.port = int(port)


class _Replies:
    """Finds replies in what a server sends."""

    def __init__(self) -> None:
        from hiredis import HiredisError, Reader

        self._fault = HiredisError
        self._reader = Reader()
        self._unfinished = 0

    def of(self, data: bytes) -> list[Any]:
        """Those that `data` completes. Raises `RedisFailed`, also where one is an error."""
        if not data:
            raise RedisFailed("it closed the connection")
        found: list[Any] = []
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                if isinstance(reply, self._fault):
                    raise reply
                found.append(reply)
        except self._fault as error:
            raise RedisFailed(_said(error)) from None
        self._unfinished = 0 if found else self._unfinished + len(data)
        if self._unfinished > _MOST_ANSWER_BYTES:
            raise RedisFailed("it says too much at once")
        return found


def _greet(stream: socket.socket, url: RedisUrl, key: str, until: float) -> None:
    """Say who asks, and in which database; and learn whether this is where `key` is. Raises `RedisFailed`,
    `OSError`, and `_Moved`.
    """
    commands: list[tuple[str | int, ...]] = []
    if url.password:
        commands.append(("AUTH", url.user, url.password) if url.user else ("AUTH", url.password))
    if url.database:
        commands.append(("SELECT", url.database))
    commands.append(("HGET", key, ""))
    packed, replies = _packer(), _Replies()
    for command in commands:
        stream.settimeout(_left(until))
        stream.sendall(packed(command))
        try:
            while not replies.of(stream.recv(_READ_BYTES)):
                stream.settimeout(_left(until))
        except RedisFailed as error:
            _, moved, rest = str(error).partition("MOVED ")
            if moved:
                raise _Moved(moved + rest) from None
            raise


def redis_faults(url: SecretStr | None, ca_file: str | None) -> list[ConfigurationFault]:
    """What keeps this server from being used, without asking it."""
    faults = []
    if url is not None and find_spec("hiredis") is None:
        message, hint = "needs a library that is not installed: hiredis", "pip install 'sluicegate[redis]'"
        faults.append(ConfigurationFault("storage.counters", message, hint))
    if ca_file is not None:
        try:
            ssl.create_default_context(cafile=ca_file)
        except OSError:
            message, hint = "has no certificates in it", "a file of certificates, PEM"
            faults.append(ConfigurationFault("storage.counters_ca_file", message, hint))
    return faults


def _packer() -> Callable[[Sequence[str | int]], bytes]:
    """Gives commands their form on the wire."""
    from hiredis import pack_command

    # Its stub knows commands of one word only.
    return cast(Callable[[Sequence[str | int]], bytes], pack_command)


def _left(until: float) -> float:
    """Seconds; never none, which would mean not to wait at all."""
    return max(0.001, until - time.monotonic())


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
