"""The scripted upstream's server."""

import asyncio
import contextlib
import signal
import socket
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sluicegate.testing.book import Book
from sluicegate.testing.connection import BadRequest, Connection, ConnectionOver, HttpRequest
from sluicegate.testing.endpoints import body_of, is_health, path_of, problem, question_of, reply_to
from sluicegate.testing.faults import Hazards, error_reply
from sluicegate.testing.playback import Playback
from sluicegate.testing.reading import ScriptError, script_from, script_from_json
from sluicegate.testing.records import Record, Records
from sluicegate.testing.reply import Document
from sluicegate.testing.script import Script

DEFAULT_PORT = 18101
DEFAULT_MODEL = "mock-1"


class ScriptedUpstream:
    """An inference server that does as it is told.

        async with ScriptedUpstream(Script(tokens=3)) as upstream:
            ...  # send requests to upstream.base_url
            record = await upstream.requests[0].ended()
            assert record.complete

    What it does with a request is its `script`, or the oldest one still in its queue (`enqueue`), overridden
    field by field by the request's JSON member `mock`, and that by its header `x-mock`. It speaks HTTP/1.1,
    serves `/v1/chat/completions`, `/v1/completions`, `/v1/embeddings`, `/v1/responses`, `/v1/messages`,
    `/v1/messages/count_tokens`, `/v1/audio/…`, `/v1/images/…`, `/v1/moderations`, `/v1/rerank`, `/v1/score`,
    `/tokenize`, `/detokenize`, `/api/chat`, `/v1/models` and `/health`, accepts any model and any key, and
    records every request but health checks in `requests`.

    `idle_seconds`: a connection without a request for so long is closed, as uvicorn does after 5 s.
    `send_buffer`: bytes of the kernel's send buffer of a connection; a small one shows backpressure early.
    `book`: a file to which each request adds a line when it is over. Raises OSError where there can be none.
    After `stop`, the port is refused; `start` listens on the same one again.
    """

    def __init__(
        self,
        script: Script | None = None,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        models: Sequence[str] = (DEFAULT_MODEL,),
        idle_seconds: float | None = None,
        send_buffer: int | None = None,
        book: str | Path | None = None,
    ) -> None:
        self.script = script or Script()
        self.host = host
        self.port = port
        self.models = tuple(models)
        self.idle_seconds = idle_seconds
        self.send_buffer = send_buffer
        self._book = None if book is None else Book(book)
        self.requests = Records()
        self.connections_made = 0
        self._queue: deque[Script] = deque()
        self._server: asyncio.Server | None = None
        self._connections: set[Connection] = set()
        self._current: dict[Connection, Record] = {}

    @property
    def base_url(self) -> str:
        """With `/v1`, without a slash at the end. The port is known once it has started."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/v1"

    @property
    def connections_open(self) -> int:
        return len(self._connections)

    def enqueue(self, *scripts: Script) -> None:
        """Scripts for the next requests (those with a body), one each, before `script` holds again."""
        self._queue.extend(scripts)

    async def start(self) -> None:
        """Listen. Raises OSError where the port is taken."""
        loop = asyncio.get_running_loop()
        listener = socket.create_server(
            (self.host, self.port),
            family=socket.AF_INET6 if ":" in self.host else socket.AF_INET,
            backlog=1024,
        )
        if self.send_buffer is not None:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self.send_buffer)
        self.port = listener.getsockname()[1]
        self._server = await loop.create_server(self._new_connection, sock=listener, backlog=1024)

    async def stop(self) -> None:
        """Stop listening and drop every connection. Idempotent."""
        if self._server is not None:
            self._server.close()
        connections = tuple(self._connections)
        for connection in connections:
            connection.drop()
            if connection.task is not None:
                connection.task.cancel()
        tasks = (connection.task for connection in connections if connection.task is not None)
        await asyncio.gather(*tasks, return_exceptions=True)
        for connection in connections:
            await connection.closed.wait()
        if self._server is not None:
            await self._server.wait_closed()
            self._server = None

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.stop()

    @classmethod
    @contextlib.contextmanager
    def in_thread(cls, script: Script | None = None, **options: Any) -> Iterator[Self]:
        """A running upstream in a thread with an event loop of its own, for tests that have none.

        `options` are the constructor's.
        """
        upstream = cls(script, **options)
        started: Future[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = Future()

        async def serve() -> None:
            stop = asyncio.Event()
            try:
                await upstream.start()
            except BaseException as error:
                started.set_exception(error)
                return
            started.set_result((asyncio.get_running_loop(), stop))
            await stop.wait()
            await upstream.stop()

        thread = threading.Thread(target=lambda: asyncio.run(serve()), name="scripted-upstream", daemon=True)
        thread.start()
        loop, stop = started.result()
        try:
            yield upstream
        finally:
            loop.call_soon_threadsafe(stop.set)
            thread.join()

    # === Connections ===

    def _new_connection(self) -> Connection:
        self.connections_made += 1
        return Connection(
            self.connections_made,
            on_made=self._made,
            on_left=self._left,
            on_closed=self._connections.discard,
        )

    def _made(self, connection: Connection) -> None:
        self._connections.add(connection)
        connection.task = asyncio.get_running_loop().create_task(self._run(connection))

    def _left(self, connection: Connection) -> None:
        record = self._current.get(connection)
        if record is not None:
            record.end(client_left=True)
            if connection.task is not None:
                connection.task.cancel()

    async def _run(self, connection: Connection) -> None:
        try:
            await self._accept(connection)
            served = 0
            while (request := await connection.read_request(self.idle_seconds)) is not None:
                await self._serve(connection, request, reused=served > 0)
                served += 1
        except ConnectionOver:
            pass
        except BadRequest as error:
            with contextlib.suppress(ConnectionOver):
                await _answer(connection, error_reply(400, problem(f"Not HTTP/1.1: {error}")))
        finally:
            record = self._current.pop(connection, None)
            if record is not None:
                record.end()
            connection.close()

    async def _accept(self, connection: Connection) -> None:
        fault = Hazards(self.script, reused=False).at("accept")
        if fault is None:
            return
        if fault.action == "stall":
            await (asyncio.sleep(fault.seconds) if fault.seconds is not None else asyncio.Event().wait())
        elif fault.action == "reset":
            connection.abort()
            raise ConnectionOver
        else:
            connection.close()
            raise ConnectionOver

    async def _serve(self, connection: Connection, request: HttpRequest, *, reused: bool) -> None:
        if is_health(path_of(request)):
            await _answer(connection, Document({"status": "ok"}), keep_alive=True)
            return
        try:
            script = self._script_for(request)
        except ScriptError as error:
            await _answer(connection, _invalid_script(error))
            return
        number = len(self.requests) + 1
        record = Record(number, connection.number, reused, request, script)
        self._current[connection] = record
        self.requests.add(record)
        reply = None
        try:
            playback = Playback(connection, script, record)
            if script.raw:
                await playback.play_raw(script.raw)
            question, api = question_of(request, script)
            reply = reply_to(request, script, question, api, self.models)
            await playback.play(reply)
        except ScriptError as error:
            await _answer(connection, _invalid_script(error))
            record.end(complete=True)
        except (ConnectionOver, asyncio.CancelledError):
            record.end()
            raise
        else:
            record.end(complete=True)
        finally:
            if self._book is not None:
                self._book.enter(record, reply)
        del self._current[connection]
        if request.version == "HTTP/1.0" or "close" in (request.header("connection") or "").lower():
            raise ConnectionOver

    def _script_for(self, request: HttpRequest) -> Script:
        script = self.script
        if request.method == "POST":
            if self._queue:
                script = self._queue.popleft()
            body = body_of(request)
            if body is not None and body.get("mock") is not None:
                script = script_from(body["mock"], script)
        header = request.header("x-mock")
        return script if header is None else script_from_json(header.encode("latin-1"), script)


async def _answer(connection: Connection, document: Document, *, keep_alive: bool = False) -> None:
    """A reply of the server's own, which no script has a say in."""
    script = Script(keep_alive=keep_alive)
    record = Record(0, connection.number, False, HttpRequest("", "", "", (), b""), script)
    await Playback(connection, script, record).play(document)


def _invalid_script(error: ScriptError) -> Document:
    return error_reply(400, {**problem(str(error)), "type": "invalid_script", "param": "mock"})


def run_mock(
    host: str = "127.0.0.1",
    port: int = DEFAULT_PORT,
    *,
    models: Sequence[str] = (DEFAULT_MODEL,),
    idle_seconds: float | None = None,
    book: str | Path | None = None,
    **defaults: Any,
) -> int:
    """Serve until SIGINT or SIGTERM; the process's exit code. Its address is printed first, and what to try.

    `defaults` are fields of a script, as in its JSON form; `book`: see `ScriptedUpstream`.
    Raises ScriptError, and OSError where the port is taken.
    """
    upstream = ScriptedUpstream(
        script_from(defaults), host=host, port=port, models=models, idle_seconds=idle_seconds, book=book
    )

    async def serve() -> None:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        async with upstream:
            sys.stdout.write(
                f"scripted upstream on {upstream.base_url} (models: {', '.join(upstream.models)})\n"
                f"put a gateway before it: sluicegate serve --upstream {upstream.base_url}\n"
            )
            sys.stdout.flush()
            await stop.wait()

    try:
        import uvloop
    except ImportError:
        asyncio.run(serve())
    else:
        uvloop.run(serve())
    return 0
