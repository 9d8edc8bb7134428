"""Whether servers that keep something let the gateway in, for `sluicegate check --connect`."""

import asyncio
from importlib.util import find_spec
from inspect import signature

from pydantic import SecretStr
from sqlalchemy.engine import make_url

from sluicegate.config import RedisUrl
from sluicegate.errors import ConfigurationFault
from sluicegate.storage.database import Database
from sluicegate.storage.errors import StoreUnavailable
from sluicegate.storage.redis import RedisConnector, RedisFailed

_SECONDS = 5.0
_UNREADABLE = "its URL cannot be read: signs such as `@`, `:` and `/` in a password are written %40, %3A, %2F"
# Parameters of a URL that SQLAlchemy takes for itself.
_OF_SQLALCHEMY = frozenset({"prepared_statement_cache_size", "prepared_statement_name_func"})


def postgresql_faults(url: SecretStr | None, path: str) -> list[ConfigurationFault]:
    """What keeps this server from being used, without asking it. `path`: of the setting."""
    if url is None:
        return []
    if find_spec("asyncpg") is None:
        message = "needs a library that is not installed: asyncpg"
        return [ConfigurationFault(path, message, "pip install 'sluicegate[postgresql]'")]
    from asyncpg import connect

    try:
        read = make_url(url.get_secret_value())
    except Exception:
        return [ConfigurationFault(path, _UNREADABLE)]
    # Neither is repeated: a sign in a password may have made a part of it a port or a parameter.
    faults = []
    if read.port is not None and not 0 < read.port < 2**16:
        faults.append(ConfigurationFault(path, "names a port that is none"))
    if read.query.keys() - signature(connect).parameters.keys() - _OF_SQLALCHEMY:
        message = "has a parameter that is not known here"
        hint = "ssl=require in place of sslmode=require; schema and connection_limit have no counterpart"
        faults.append(ConfigurationFault(path, message, hint))
    return faults


async def why_no_postgresql(url: SecretStr) -> str | None:
    """Why the server does not let the gateway in, without its password; None: it does. Nothing is written."""
    try:
        password = make_url(url.get_secret_value()).password
    except Exception:
        # The words of the library may repeat a part of the password, whose signs are why it cannot be read.
        return _UNREADABLE
    database = Database(url, lambda connection: None)
    try:
        async with asyncio.timeout(_SECONDS), database.read("nothing") as connection:
            await connection.exec_driver_sql("SELECT 1")
    except TimeoutError:
        return f"it did not answer within {_SECONDS:g} s"
    except StoreUnavailable as error:
        return _without(str(error), str(password or ""))
    except Exception as error:
        # A port that is none, or a parameter in the URL that the library does not know.
        return _without(f"{type(error).__name__}: {error}", str(password or ""))
    finally:
        await database.close()
    return None


def why_no_redis(url: SecretStr, ca_file: str | None, key: str) -> str | None:
    """As `why_no_postgresql`; `key` is one that the gateway will use. It waits."""
    connector = RedisConnector(url, ca_file)
    connector.deadline = _SECONDS
    try:
        connector.connect(key).close()
    except RedisFailed as error:
        return _without(str(error), RedisUrl.of(url.get_secret_value()).password)
    except (OSError, OverflowError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}"
        return _without(reason, RedisUrl.of(url.get_secret_value()).password)
    return None


def _without(reason: str, password: str) -> str:
    """`reason`, unless it repeats the password: a part of one may have been taken for a host."""
    return reason if not password or password not in reason else reason.partition(":")[0]
