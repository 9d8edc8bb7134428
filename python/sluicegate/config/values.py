"""The kinds of values in a configuration, each with the words for what is wrong with it."""

import contextlib
import os
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr
from pydantic_core import PydanticCustomError

from sluicegate.config.quantities import SIZE, TIME, Unit, fault, raise_all

# RFC 9110, section 5.6.2: a field name is a token. Section 5.5: no CR, LF or NUL in a value.
_HEADER_NAME = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_HEADER_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
# Set by the connection itself; a fixed value would break the framing of every request.
_CONNECTION_HEADERS = frozenset(
    {"host", "content-length", "transfer-encoding", "connection", "keep-alive", "te", "trailer", "upgrade"}
)

# RFC 3986, section 3.3: what may stand in a path as it is.
_PATH = re.compile(r"/[A-Za-z0-9\-._~!$&'()*+,;=:@%/]*")

MAX_THREADS = 256


_PROXY_HEADERS = frozenset({"proxy-authenticate", "proxy-authorization", "proxy-connection"})
# What no setting passes on, as `rust/relay/src/headers.rs` has it.
_NEVER_UP = (
    _CONNECTION_HEADERS | _PROXY_HEADERS | {"content-encoding", "accept-encoding", "expect", "x-request-id"}
)
_NEVER_DOWN = (
    (_CONNECTION_HEADERS - {"host"})
    | _PROXY_HEADERS
    | {"content-encoding", "content-type", "server", "date", "alt-svc", "strict-transport-security"}
    | {"x-accel-buffering", "x-request-id"}
)


DECIMALS_PER_MILLION = 6
"""A price with so many is a whole number of 10**-12 USD a token, in which a ledger counts."""

_DAY = 24 * 3600
_MIB = 1024**2


def _name(value: str) -> str:
    if not value or value != value.strip() or not value.isprintable():
        raise fault(
            "name",
            "is empty, or has spaces around it or unprintable characters in it",
            "give it a plain name",
        )
    return value


def _route_part(value: str) -> str:
    if not value.strip():
        raise fault("name", "is empty", "name it, or leave it out")
    return value


def _upstream_name(value: str) -> str:
    if "/" in _name(value):
        raise fault(
            "name", "has a slash in its name", "`upstream/model` is how a route is written: use another sign"
        )
    return value


def _model_name(value: str) -> str:
    if _name(value).count("*") > 1:
        raise fault(
            "name", "has more than one `*` in it", "a wildcard has one, which stands for any text: `openai/*`"
        )
    return value


def _alias(value: str) -> str:
    if "*" in _name(value):
        raise fault(
            "name",
            "has a `*` in it, and an alias stands for one model",
            "a model may be a wildcard: `openai/*: my-upstream/*`",
        )
    return value


def _host(value: str) -> str:
    # An IPv6 address has more than one colon.
    if re.fullmatch(r"[^:]*:[0-9]*", value):
        raise fault("host", "has a port in it", "the port is a setting of its own: `server.port`")
    return value


def _has_wrong_port(url: str) -> bool:
    """Whether `url` is right up to its host, and its port is not."""
    try:
        host = urlsplit(url)
    except ValueError:
        return False
    try:
        return host.port == 0
    except ValueError:
        return True


def _base_url(value: str) -> str:
    if _has_wrong_port(value if "://" in value else f"//{value}"):
        raise fault("url", "has a wrong port", "a port is a number from 1 to 65535")
    try:
        url = urlsplit(value)
    except ValueError:
        raise fault("url", "is not a URL", "such as http://127.0.0.1:8000/v1") from None
    if url.scheme not in ("http", "https"):
        raise fault("url", "is not an http or https URL", "such as http://127.0.0.1:8000/v1")
    if not url.hostname or re.search(r"[\s\x00-\x1f\x7f]", value):
        raise fault("url", "is not a URL with a host", "such as http://127.0.0.1:8000/v1")
    if url.username is not None or url.password is not None:
        raise fault("url", "carries a user or a password", "put the secret into `api_key` or `headers`")
    if url.query or url.fragment:
        raise fault("url", "has a query or a fragment", "a query has its place in `query`")
    path = url.path.rstrip("/")
    if path.endswith("/completions"):
        raise fault("url", "names an endpoint", "give the part before `/chat/completions` only")
    return value.rstrip("/")


def _secret(value: SecretStr) -> SecretStr:
    text = value.get_secret_value()
    if not text:
        raise fault("secret", "is empty", "is the variable it comes from empty?")
    if not text.isascii() or not text.isprintable() or " " in text:
        raise fault("secret", "cannot be sent in a header", "check it for spaces, line ends and quotes")
    return value


def _headers(headers: Mapping[str, SecretStr]) -> Mapping[str, SecretStr]:
    raise_all("headers", _header_faults(headers))
    return headers


def _header_faults(headers: Mapping[str, SecretStr]) -> Iterator[PydanticCustomError]:
    known: set[str] = set()
    for name, value in headers.items():
        at = (name,)
        if not _HEADER_NAME.fullmatch(name):
            message = "has a name that is not a header name"
            yield fault("header", message, "letters, digits and dashes", at=at, lacks=())
        elif name.lower() in _CONNECTION_HEADERS:
            yield fault("header", f"{name} belongs to the connection", "take it out", at=at, lacks=())
        elif name.lower() in known:
            message, hint = "names one header twice", "case makes no difference in header names"
            yield fault("header", message, hint, at=at, lacks=())
        if not _HEADER_VALUE.fullmatch(value.get_secret_value()):
            message = f"the value of {name} cannot be sent"
            yield fault("header", message, "check it for line ends", at=at, lacks=())
        known.add(name.lower())


def header_name(name: str) -> str:
    """`name`, where it can be a header's."""
    if not _HEADER_NAME.fullmatch(name):
        raise fault("header", "has a name that is not a header name", "letters, digits and dashes")
    return name


def _credential_header(name: str) -> str:
    if header_name(name).lower() in _CONNECTION_HEADERS:
        raise fault("header", f"{name} belongs to the connection", "such as `api-key`")
    return name.lower()


def _paths(paths: Mapping[str, str]) -> Mapping[str, str]:
    hint = "such as {/v1/embeddings: /embed}; {model} stands for the model's name"
    raise_all(
        "paths",
        (
            fault("path", "has a path that is none", hint, at=(usual,), lacks=())
            for usual, path in paths.items()
            if not all(_PATH.fullmatch(text.replace("{model}", "")) for text in (usual, path))
        ),
    )
    return paths


def _forwarded_headers(names: tuple[str, ...]) -> tuple[str, ...]:
    own = {
        "authorization": ("is not passed on by name", "use `forward_authorization`"),
        "x-api-key": ("is not passed on by name", "use `forward_authorization`"),
        "cookie": ("is the client's with the gateway", "take it out"),
    }
    raise_all("headers", _passed_faults(names, _NEVER_UP, own))
    return names


def _reply_headers(names: tuple[str, ...]) -> tuple[str, ...]:
    hosts = ("is true only of the upstream's host", "take it out")
    own = {name.lower(): hosts for name in names if name.lower().startswith("access-control-")}
    raise_all("headers", _passed_faults(names, _NEVER_DOWN, {"set-cookie": hosts, **own}))
    return names


def _passed_faults(
    names: tuple[str, ...], never: frozenset[str], own: Mapping[str, tuple[str, str]]
) -> Iterator[PydanticCustomError]:
    """Of headers that are not to be passed on; `own`: why, and what to do."""
    for index, name in enumerate(names):
        if not _HEADER_NAME.fullmatch(name):
            message, hint = "has a name that is not a header name", "letters, digits and dashes"
        elif name.lower() in own:
            message, hint = own[name.lower()]
            message = f"{name} {message}"
        elif name.lower() in never:
            message, hint = f"{name} is made anew by the gateway", "take it out"
        else:
            continue
        yield fault("header", message, hint, at=(index,), lacks=())


def _probe_path(value: str) -> str:
    # It stands in a request line as it is.
    if not re.fullmatch(r"/[!-~]*", value) or "#" in value:
        raise fault("path", "is no path", "it begins with a slash: /models, /health?deep=1")
    return value


def _file(value: str) -> str:
    if not Path(value).is_file():
        raise fault(
            "file", "names a file that is not there", "a relative path starts at the working directory"
        )
    return value


def _decimal(value: object) -> object:
    # The shortest text that reads back as this float is the one that was written, so 0.1 stays 0.1.
    return repr(value) if isinstance(value, float) else value


def _per_million(price: Decimal) -> Decimal:
    return _held(price, DECIMALS_PER_MILLION)


def _usd(amount: Decimal) -> Decimal:
    return _held(amount, DECIMALS_PER_MILLION + 6)


def _held(amount: Decimal, decimals: int) -> Decimal:
    if has_more_decimals(amount, decimals):
        raise fault("price", f"has more than {decimals} decimals", "costs are counted in 10⁻¹² USD: round it")
    return amount


def has_more_decimals(amount: Decimal, decimals: int) -> bool:
    """Whether `amount` has more than so many digits behind the point that are not zeros at its end."""
    # No arithmetic, since that would round to the digits of the context.
    _, digits, exponent = amount.as_tuple()
    return isinstance(exponent, int) and -exponent > decimals and any(digits[decimals + exponent :])


def no_bool(value: object) -> object:
    if isinstance(value, bool):
        raise fault("type", "should be a number", "write it as digits")
    return value


def default_threads() -> int:
    """One fewer than the cores that this process may use, at least one. Python needs one, too."""
    # macOS has no affinities.
    affinity = getattr(os, "sched_getaffinity", None)
    cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(cores - 1, MAX_THREADS))


def default_all_bodies() -> int:
    """A quarter of the memory that this machine has, or that its control group may use; at least 64 MiB."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    # Linux has control groups; elsewhere there is no such file, and where there is no limit it says `max`.
    with contextlib.suppress(OSError, ValueError):
        memory = min(memory, int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return max(64 * _MIB, memory // 4)


Name = Annotated[str, AfterValidator(_name)]
# Part of a database's key: far below what an index takes.
CallerId = Annotated[str, AfterValidator(_name), Field(max_length=128)]
UpstreamName = Annotated[str, AfterValidator(_upstream_name)]
ModelName = Annotated[str, AfterValidator(_model_name)]
Alias = Annotated[str, AfterValidator(_alias)]
Host = Annotated[str, Field(min_length=1), AfterValidator(_host)]
RoutePart = Annotated[str, AfterValidator(_route_part)]
BaseUrl = Annotated[str, AfterValidator(_base_url)]
ProbePath = Annotated[str, AfterValidator(_probe_path), Field(max_length=512)]
ExistingFile = Annotated[str, AfterValidator(_file)]
Secret = Annotated[SecretStr, AfterValidator(_secret)]
SecretHeaders = Annotated[Mapping[str, SecretStr], AfterValidator(_headers)]
ForwardedHeaders = Annotated[tuple[str, ...], AfterValidator(_forwarded_headers)]
KeyHeader = Annotated[str, AfterValidator(_credential_header)]
EndpointPaths = Annotated[Mapping[str, str], AfterValidator(_paths)]
ReplyHeaders = Annotated[tuple[str, ...], AfterValidator(_reply_headers)]
# Every number that becomes a time, a size or a count has an end: none may overflow where it is added to
# another, and a slip of the keyboard shall be a fault of the configuration, not of the machine.
Seconds = Annotated[float, Field(gt=0, le=30 * _DAY, allow_inf_nan=False), BeforeValidator(no_bool), TIME]
Delay = Annotated[float, Field(ge=0, le=3600, allow_inf_nan=False), BeforeValidator(no_bool), TIME]
Days = Annotated[int, Field(ge=1, le=36_500), BeforeValidator(no_bool)]
Retention = Annotated[float, Field(gt=0, le=3650 * _DAY, allow_inf_nan=False), BeforeValidator(no_bool), TIME]
Count = Annotated[int, Field(ge=0, le=1_000_000), BeforeValidator(no_bool)]
Tier = Annotated[int, Field(ge=0, le=100), BeforeValidator(no_bool)]
Weight = Annotated[float, Field(gt=0, le=1_000_000, allow_inf_nan=False), BeforeValidator(no_bool)]
Positive = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(no_bool)]
Tokens = Annotated[int, Field(ge=1, le=10**12), BeforeValidator(no_bool), Unit("tokens")]
# Read, on a disk, or held in memory for all requests together.
Bytes = Annotated[int, Field(ge=1, le=1024**2 * _MIB), BeforeValidator(no_bool), SIZE]
# Held in memory, for one request.
MemoryBytes = Annotated[int, Field(ge=1, le=1024 * _MIB), BeforeValidator(no_bool), SIZE]
# Below it the parts of which the server needs a whole one (a request's head) would be all there is.
ClientBuffer = Annotated[int, Field(ge=128 * 1024, le=1024 * _MIB), BeforeValidator(no_bool), SIZE]
Port = Annotated[int, Field(ge=0, le=65535), BeforeValidator(no_bool)]
Threads = Annotated[int, Field(ge=1, le=MAX_THREADS), BeforeValidator(no_bool)]
# The client's side: a bound that may be made too large is none.
Patience = Annotated[float, Field(gt=0, le=3600, allow_inf_nan=False), BeforeValidator(no_bool), TIME]
HeadBytes = Annotated[int, Field(ge=8 * 1024, le=1024 * 1024), BeforeValidator(no_bool), SIZE]
# 65534 is the longest that the `http` crate takes.
UrlBytes = Annotated[int, Field(ge=256, le=65_534), BeforeValidator(no_bool), SIZE]
HeaderCount = Annotated[int, Field(ge=1, le=1_000), BeforeValidator(no_bool)]
ByteRate = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(no_bool)]
Streams = Annotated[int, Field(ge=1, le=10_000), BeforeValidator(no_bool)]
Clients = Annotated[int, Field(ge=1, le=1_000_000), BeforeValidator(no_bool)]
# 24 digits is more than any price has, and keeps every product with a 64-bit count exact.
UsdPerMillion = Annotated[
    Decimal,
    Field(ge=0, max_digits=24, allow_inf_nan=False),
    AfterValidator(_per_million),
    BeforeValidator(_decimal),
    BeforeValidator(no_bool),
    Unit("USD per million tokens"),
]
Usd = Annotated[
    Decimal,
    Field(ge=0, max_digits=24, allow_inf_nan=False),
    AfterValidator(_usd),
    BeforeValidator(_decimal),
    BeforeValidator(no_bool),
    Unit("USD"),
]
Coefficient = Annotated[
    Decimal,
    Field(ge=0, le=1_000_000, max_digits=12, allow_inf_nan=False),
    BeforeValidator(_decimal),
    BeforeValidator(no_bool),
]
