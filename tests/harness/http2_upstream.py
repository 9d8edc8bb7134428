"""An upstream that speaks HTTP/2 and does with each request what a test says."""

import asyncio
from collections.abc import Callable
from typing import Any, Literal, Self

import h2.config
import h2.connection
import h2.errors
import h2.events
import h2.exceptions

Act = Literal["reply", "go_away", "refuse", "reset", "close", "flood"]
"""What happens to a request: a whole reply; GOAWAY that does not name it; RST_STREAM, as refused or as
failed; the connection closed; a reply without an end, as fast as its window lets it."""


class Http2Upstream:
    """`acts` are for the next requests, one each; a request without one gets a `reply`."""

    def __init__(self, body: bytes, content_type: str = "text/event-stream") -> None:
        self.body = body
        self.content_type = content_type
        self.block = body * (16_384 // len(body))
        self.acts: list[Act] = []
        self.requests: list[tuple[int, int]] = []
        """(connection, stream) of each."""
        self.sent = 0
        """Bytes of floods that their windows have let through."""
        self._connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        number, self._connections = self._connections, self._connections + 1
        try:
            await _Connection(self, number, reader, writer).run()
        except (OSError, h2.exceptions.ProtocolError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()


class _Connection:
    def __init__(
        self,
        upstream: Http2Upstream,
        number: int,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
    ) -> None:
        self._upstream = upstream
        self._number = number
        self._reader = reader
        self._writer = writer
        self._h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self._floods: set[int] = set()

    async def run(self) -> None:
        self._h2.initiate_connection()
        await self._flush()
        while received := await self._reader.read(65_536):
            for event in self._h2.receive_data(received):
                if isinstance(event, h2.events.DataReceived):
                    assert event.stream_id is not None
                    self._h2.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id)
                elif isinstance(event, h2.events.StreamReset):
                    self._floods.discard(event.stream_id or 0)
                elif isinstance(event, h2.events.StreamEnded):
                    assert event.stream_id is not None
                    self._upstream.requests.append((self._number, event.stream_id))
                    act = self._upstream.acts.pop(0) if self._upstream.acts else "reply"
                    handlers: dict[str, Callable[[int], Any]] = {
                        "reply": self._reply,
                        "go_away": self._go_away,
                        "refuse": lambda stream: self._reset(stream, h2.errors.ErrorCodes.REFUSED_STREAM),
                        "reset": lambda stream: self._reset(stream, h2.errors.ErrorCodes.INTERNAL_ERROR),
                        "flood": self._flood,
                    }
                    if act == "close":
                        return
                    handlers[act](event.stream_id)
            self._pour()
            await self._flush()

    async def _flush(self) -> None:
        self._writer.write(self._h2.data_to_send())
        await self._writer.drain()

    def _head(self, stream: int) -> None:
        self._h2.send_headers(stream, [(":status", "200"), ("content-type", self._upstream.content_type)])

    def _reply(self, stream: int) -> None:
        self._head(stream)
        self._h2.send_data(stream, self._upstream.body, end_stream=True)

    def _go_away(self, stream: int) -> None:
        """The one before it is the last that is processed."""
        self._h2.close_connection(last_stream_id=max(stream - 2, 0))

    def _reset(self, stream: int, code: h2.errors.ErrorCodes) -> None:
        self._h2.reset_stream(stream, code)

    def _flood(self, stream: int) -> None:
        self._head(stream)
        self._floods.add(stream)

    def _pour(self) -> None:
        for stream in self._floods:
            while (room := self._h2.local_flow_control_window(stream)) > 0:
                piece = min(room, self._h2.max_outbound_frame_size, len(self._upstream.block))
                self._h2.send_data(stream, self._upstream.block[:piece])
                self._upstream.sent += piece
