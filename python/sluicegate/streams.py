"""Event streams of HTTP clients, decoded as they arrive."""

from collections.abc import AsyncIterator
from typing import Any, Protocol, runtime_checkable

from sluicegate._core import ServerSentEvent, SSEDecoder


@runtime_checkable
class HttpxResponse(Protocol):
    """What is used of an `httpx.Response`."""

    def aiter_bytes(self) -> AsyncIterator[bytes]: ...


class _AiohttpContent(Protocol):
    def iter_any(self) -> AsyncIterator[bytes]: ...


class AiohttpResponse(Protocol):
    """What is used of an `aiohttp.ClientResponse`."""

    @property
    def content(self) -> _AiohttpContent: ...


async def aiter_events(
    response: HttpxResponse | AiohttpResponse | AsyncIterator[bytes], *, max_event_bytes: int | None = None
) -> AsyncIterator[ServerSentEvent]:
    """The events of a streamed response, each as soon as its last byte is there.

    `response` is one of httpx or aiohttp, or any asynchronous iterator of bytes. `[DONE]` is an event like
    others; comments are none.
    A last event without its blank line is given too. Raises `EventTooLarge`, and `TypeError` where the
    response is none of these.

    >>> import asyncio
    >>> async def body():
    ...     yield b'data: {"a":'
    ...     yield b'1}\\n\\ndata: [DONE]\\n\\n'
    >>> async def main():
    ...     return [event.data async for event in aiter_events(body())]
    >>> asyncio.run(main())
    ['{"a":1}', '[DONE]']
    """
    decoder = SSEDecoder(max_event_bytes=max_event_bytes)
    async for chunk in _chunks(response):
        for event in decoder.feed(chunk):
            yield event
    last = decoder.finish()
    if last is not None:
        yield last


def _chunks(response: Any) -> AsyncIterator[bytes]:
    if isinstance(response, HttpxResponse):
        return response.aiter_bytes()
    iter_any = getattr(getattr(response, "content", None), "iter_any", None)
    if iter_any is not None:
        return iter_any()  # type: ignore[no-any-return]
    return aiter(response)
