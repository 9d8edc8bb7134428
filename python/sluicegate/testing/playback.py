"""Plays one reply on one connection: head, body, waits and faults, each where the script has it."""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence

from sluicegate.testing.compression import Compressor
from sluicegate.testing.connection import Connection, ConnectionOver
from sluicegate.testing.faults import Hazards
from sluicegate.testing.framing import BOM, Encoder
from sluicegate.testing.reading import ScriptError
from sluicegate.testing.records import Record
from sluicegate.testing.reply import Bytes, Document, Event, Stream
from sluicegate.testing.script import Fault, FaultPlace, Framing, Script, Step, StepAction, Transfer

_REASONS = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    413: "Content Too Large",
    422: "Unprocessable Content",
    429: "Too Many Requests",
    500: "Internal Server Error",
    502: "Bad Gateway",
    503: "Service Unavailable",
    504: "Gateway Timeout",
    529: "Overloaded",
}


class Playback:
    """One reply under way."""

    def __init__(self, connection: Connection, script: Script, record: Record) -> None:
        self._connection = connection
        self._script = script
        self._framing: Framing = script.framing
        self._record = record
        self._hazards = Hazards(script, reused=record.reused)
        self._encoder = Encoder(script, ndjson=False)
        self._compressor = Compressor(script.compression) if script.compression else None
        self._transfer: Transfer = "chunked"
        self._head_sent = False
        self._streams = False
        self._events = 0

    async def play(self, reply: Stream | Document | Bytes) -> None:
        """Send the reply.

        Raises ConnectionOver where a fault or a declared length ended the connection, ScriptError, before
        anything was sent, where the script asks for what cannot be.
        """
        if self._script.head_delay:
            await asyncio.sleep(self._script.head_delay)
        await self._hazard("before_head")
        if self._script.body:
            await self._play_body()
        elif isinstance(reply, Document):
            await self._play_document(reply)
        elif isinstance(reply, Bytes):
            await self._play_bytes(reply)
        else:
            await self._play_stream(reply)
        await self._end()

    async def play_raw(self, steps: Sequence[Step]) -> None:
        """Send bytes and nothing else, and close. Always raises ConnectionOver."""
        for step in steps:
            if isinstance(step, bytes):
                self._record.events_sent += 1
                await self._send(step)
            else:
                await self._step(step)
        self._record.end(complete=True)
        await self._connection.flush()
        self._connection.close()
        raise ConnectionOver

    # === The four kinds of body ===

    async def _play_body(self) -> None:
        whole = b"".join(step for step in self._script.body if isinstance(step, bytes))
        transfer = self._script.transfer or "chunked"
        await self._head(self._script.status, "text/event-stream", transfer, len(whole))
        for step in self._script.body:
            if isinstance(step, bytes):
                await self._unit(step)
            else:
                await self._step(step)

    async def _play_document(self, document: Document) -> None:
        body = self._encoder.json(document.value).encode()
        if self._compressor is not None:
            body, self._compressor = self._compressor.whole(body), None
        transfer = self._script.transfer or "length"
        await self._head(document.status, "application/json", transfer, len(body))
        await self._unit(body)

    async def _play_bytes(self, reply: Bytes) -> None:
        script = self._script
        transfer = script.transfer or "chunked"
        await self._head(200, reply.content_type, transfer, sum(map(len, reply.pieces)))
        for number, piece in enumerate(reply.pieces):
            if delay := script.pace if number else script.first_token_delay:
                await self._pause(delay)
            await self._unit(piece)

    async def _play_stream(self, stream: Stream) -> None:
        script = self._script
        self._streams = True
        self._encoder = Encoder(script, ndjson=stream.ndjson)
        events = stream.events
        content_type = "application/x-ndjson" if stream.ndjson else "text/event-stream; charset=utf-8"
        self._events = len(events)
        transfer = script.transfer or "chunked"
        framing = self._framing
        if transfer == "length" and (
            framing.keepalive_first
            or framing.keepalive_every_events
            or framing.keepalive_every_seconds
            or script.wire.processing_comment
        ):
            raise ScriptError("script.transfer: the length of a body with keep-alives is not known")
        # One by one, unless the length of all has to be known: most of a long stream may never be asked for.
        encoded: Iterable[bytes] = self._encoded(events)
        length = 0
        if transfer == "length":
            encoded = list(encoded)
            length = sum(map(len, encoded))
        await self._head(200, content_type, transfer, length)
        if script.wire.processing_comment:
            await self._write(self._encoder.comment("OPENROUTER PROCESSING"))
        if framing.keepalive_first:
            await self._keepalive()
        await self._play_events(events, encoded)

    def _encoded(self, events: Sequence[Event]) -> Iterator[bytes]:
        for number, event in enumerate(events):
            data = self._encoder.event(event, last=number == len(events) - 1)
            yield BOM + data if self._framing.bom and not number else data

    async def _play_events(self, events: Sequence[Event], encoded: Iterable[bytes]) -> None:
        batch: list[bytes] = []
        size = max(self._framing.events_per_write, 1)
        previous = "preamble"
        for event, data in zip(events, encoded, strict=True):
            delay = self._delay(previous, event.kind, new_write=not batch)
            if batch and (delay or len(batch) >= size or self._hazards.after(self._sent(batch))):
                await self._flush_batch(batch)
                delay = self._delay(previous, event.kind, new_write=True)
            if delay:
                await self._pause(delay)
            if not batch and self._hazards.after(self._record.events_sent):
                await self._unit(data)
            else:
                batch.append(data)
            if event.kind != "preamble":
                previous = event.kind
        await self._flush_batch(batch)

    def _sent(self, batch: Sequence[bytes]) -> int:
        return self._record.events_sent + len(batch)

    def _delay(self, previous: str, kind: str, *, new_write: bool) -> float:
        """The wait before an event, by what came before it; the pace is kept between writes."""
        if kind == "token":
            if previous == "preamble":
                return self._script.first_token_delay
            return self._script.pace if new_write else 0.0
        return self._script.end_delay if kind == "end" and previous != "end" else 0.0

    # === Writing ===

    async def _head(self, status: int, content_type: str, transfer: Transfer, length: int) -> None:
        script = self._script
        self._transfer = transfer
        if transfer == "length" and self._compressor is not None:
            raise ScriptError(
                "script.transfer: the length of a body that is compressed as it goes is not known"
            )
        fields: dict[str, str] = {
            "content-type": script.content_type or content_type,
            "x-request-id": f"req_mock{self._record.number:06}",
        }
        if transfer == "chunked":
            fields["transfer-encoding"] = "chunked"
        elif transfer == "length":
            fields["content-length"] = str(max(length + script.length_excess, 0))
        if script.compression:
            fields["content-encoding"] = script.compression
        if not script.keep_alive or transfer == "close":
            fields["connection"] = "close"
        fields |= {name.lower(): value for name, value in script.headers.items()}
        head = head_bytes(status, fields)
        if fault := self._hazards.at("in_head"):
            await self._send(head[: len(head) // 2])
            await self._strike(fault)
            head = head[len(head) // 2 :]
        await self._send(head)
        self._record.status = status
        self._head_sent = True
        await self._hazard("after_head")
        await self._hazard("events")

    async def _unit(self, data: bytes) -> None:
        """One event, or a whole body, and the faults within and after it."""
        if fault := self._hazards.at("mid_event", self._record.events_sent):
            half = len(data) // 2
            await self._write(data[:half])
            await self._strike(fault)
            data = data[half:]
        await self._write(data)
        await self._counted(1)

    async def _flush_batch(self, batch: list[bytes]) -> None:
        if batch:
            count = len(batch)
            await self._write(b"".join(batch))
            batch.clear()
            await self._counted(count)

    async def _counted(self, events: int) -> None:
        before = self._record.events_sent
        self._record.events_sent += events
        every = self._framing.keepalive_every_events
        due = every and self._record.events_sent // every > before // every
        if due and self._record.events_sent < self._events:
            await self._keepalive()
        await self._hazard("events")

    async def _keepalive(self) -> None:
        self._record.keepalives_sent += 1
        await self._write(self._encoder.keepalive())

    async def _write(self, data: bytes) -> None:
        """Part of the body: compressed, cut and framed."""
        if self._compressor is not None and data:
            data = self._compressor.flushed(data)
        size = self._framing.piece_bytes or len(data)
        for start in range(0, len(data), size or 1):
            piece = data[start : start + size]
            if self._transfer == "chunked":
                piece = b"%x\r\n%b\r\n" % (len(piece), piece)
            await self._send(piece)

    async def _end(self) -> None:
        if self._compressor is not None:
            rest, self._compressor = self._compressor.end(), None
            await self._write(rest)
        if self._transfer == "chunked":
            await self._send(b"0\r\n\r\n")
        closes = self._transfer == "close" or not self._script.keep_alive or self._script.length_excess != 0
        if closes:
            self._record.end(complete=True)
            await self._connection.flush()
            self._connection.close()
            raise ConnectionOver

    async def _send(self, data: bytes) -> None:
        if data:
            self._record.bytes_sent += len(data)
            await self._connection.send(data, self._framing.wire_bytes)

    # === Waiting and failing ===

    async def _hazard(self, place: FaultPlace) -> None:
        if fault := self._hazards.at(place, self._record.events_sent):
            await self._strike(fault)

    async def _strike(self, fault: Fault) -> None:
        if fault.action == "stall":
            await self._pause(fault.seconds, keepalives=fault.keepalives)
        else:
            await self._break("reset" if fault.action == "reset" else "close")

    async def _step(self, step: float | StepAction) -> None:
        if isinstance(step, float | int):
            await asyncio.sleep(step)
        else:
            await self._break(step)

    async def _break(self, action: StepAction) -> None:
        if action == "stall":
            await self._pause(None, keepalives=False)
        elif action == "reset":
            await self._connection.reset()
        else:
            await self._connection.flush()
            self._connection.close()
        raise ConnectionOver

    async def _pause(self, seconds: float | None, *, keepalives: bool = True) -> None:
        """Wait; None: until the client leaves. Keep-alives go on meanwhile, if the script has any."""
        every = (
            self._framing.keepalive_every_seconds if keepalives and self._streams and self._head_sent else 0
        )
        loop = asyncio.get_running_loop()
        end = float("inf") if seconds is None else loop.time() + seconds
        while (rest := end - loop.time()) > 0:
            if every and rest > every:
                await asyncio.sleep(every)
                await self._keepalive()
            elif rest == float("inf"):
                await asyncio.Event().wait()
            else:
                await asyncio.sleep(rest)


def head_bytes(status: int, fields: Mapping[str, str]) -> bytes:
    lines = [f"HTTP/1.1 {status} {_REASONS.get(status, 'Unknown')}"]
    lines += [f"{name}: {value}" for name, value in fields.items()]
    return "\r\n".join([*lines, "", ""]).encode("latin-1", "replace")
