"""Scripts at a Redis or Valkey server, on one connection."""

import asyncio
import contextlib
import hashlib
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

from pydantic import SecretStr

from sluicegate.errors import ConfigurationFault

if TYPE_CHECKING:
    from redis.asyncio import Redis

DEADLINE_SECONDS = 0.1
"""Of everything that is asked at once, a new connection included."""

_CLOSE_SECONDS = 1.0


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


class RedisScripts:
    """For one task of the event loop. A connection on which anything has failed is never used again: an
    answer that comes late would be taken for that of the next question.
    """

    def __init__(self, url: SecretStr) -> None:
        # Now: it takes longer than a deadline.
        import redis.asyncio
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        self._url = url
        self._redis = redis.asyncio
        self._never_again = Retry(NoBackoff(), 0)
        self._client: Redis | None = None

    async def run(self, calls: Sequence[ScriptCall]) -> list[Any]:
        """The answers to `calls`, which are sent together and done in this order. Raises `RedisFailed`."""
        from redis.exceptions import RedisError

        try:
            async with asyncio.timeout(DEADLINE_SECONDS):
                answers = await self._sent(calls, whole=set())
                if unknown := _unknown(answers):
                    # Nothing loads a script beforehand: proxies refuse that.
                    again = await self._sent([calls[number] for number in unknown], _firsts(calls, unknown))
                    for number, answer in zip(unknown, again, strict=True):
                        answers[number] = answer
        except TimeoutError:
            await self.close()
            raise RedisFailed(f"it did not answer within {DEADLINE_SECONDS} s") from None
        except (RedisError, OSError) as error:
            await self.close()
            raise RedisFailed(_said(error)) from None
        except BaseException:
            await self.close()
            raise
        for answer in answers:
            if isinstance(answer, Exception):
                await self.close()
                raise RedisFailed(_said(answer))
        return answers

    async def _sent(self, calls: Sequence[ScriptCall], whole: set[int]) -> list[Any]:
        """`whole`: the numbers of those that are sent with their source."""
        pipeline = self._connected().pipeline(transaction=False)
        for number, (script, keys, arguments) in enumerate(calls):
            if number in whole:
                pipeline.eval(script.source, len(keys), *keys, *arguments)
            else:
                pipeline.evalsha(script.name, len(keys), *keys, *arguments)
        return list(await pipeline.execute(raise_on_error=False))

    def _connected(self) -> "Redis":
        if self._client is None:
            self._client = self._redis.Redis.from_url(
                self._url.get_secret_value(),
                single_connection_client=True,
                socket_timeout=DEADLINE_SECONDS,
                socket_connect_timeout=DEADLINE_SECONDS,
                retry=self._never_again,
                protocol=2,
            )
        return self._client

    async def close(self) -> None:
        """Drop the connection; the next call makes another."""
        client, self._client = self._client, None
        if client is not None:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await client.aclose()


def redis_faults(url: SecretStr | None) -> list[ConfigurationFault]:
    """What keeps this server from being used, without asking it."""
    if url is None or find_spec("redis") is not None:
        return []
    hint = "pip install 'sluicegate[redis]'"
    return [ConfigurationFault("storage.counters", "needs a library that is not installed: redis", hint)]


def _unknown(answers: Sequence[Any]) -> list[int]:
    from redis.exceptions import NoScriptError

    return [number for number, answer in enumerate(answers) if isinstance(answer, NoScriptError)]


def _firsts(calls: Sequence[ScriptCall], numbers: Sequence[int]) -> set[int]:
    """Of the calls with these numbers, counted among themselves: the first of each script."""
    seen: dict[str, int] = {}
    for place, number in enumerate(numbers):
        seen.setdefault(calls[number].script.name, place)
    return set(seen.values())


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error)[:200]}"
