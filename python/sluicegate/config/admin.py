"""The admin API: where it listens, and who may ask it what."""

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_core import PydanticCustomError

from sluicegate.config.quantities import fault, raise_all
from sluicegate.config.section import Section
from sluicegate.config.server import TlsConfig, is_loopback
from sluicegate.config.values import Host, Name, Port, Secret

AdminRole = Literal["view", "operate"]

SHORTEST_TOKEN = 16

_FEWEST_SIGNS = "make one with `openssl rand -hex 24`"
# What `sun_path` of a Unix socket's address holds, with the zero at its end, less the name of the directory
# in which the socket is made.
_LONGEST_SOCKET = 90


def _token(value: SecretStr) -> SecretStr:
    if len(value.get_secret_value()) < SHORTEST_TOKEN:
        raise fault("token", f"has fewer than {SHORTEST_TOKEN} characters", _FEWEST_SIGNS)
    return value


def _socket(value: str) -> str:
    if not value.startswith("/") or value.endswith("/") or "\0" in value:
        raise fault("socket", "is no path of a socket", "such as /run/sluicegate/admin.sock")
    if len(value.encode()) > _LONGEST_SOCKET:
        raise fault("socket", "is too long for a Unix socket", f"at most {_LONGEST_SOCKET} bytes")
    return value


class AdminTokenConfig(Section):
    """One bearer token of the admin API."""

    name: Annotated[Name, Field(max_length=128)] = Field(
        description="Who that is: what the audit says of changes made with it."
    )
    token: Annotated[Secret, AfterValidator(_token)] = Field(
        description="What is sent as `Authorization: Bearer …`; at least 16 characters."
    )
    role: AdminRole = Field(
        default="view", description="view: reads everything; operate: changes what can be changed, as well."
    )


class AdminConfig(Section):
    """The admin API, on a listener of its own."""

    host: Host = Field(
        default="127.0.0.1",
        description="The address to listen on. One that other machines can reach needs `tls`, or `insecure`.",
    )
    port: Port | None = Field(
        default=9464,
        description="The port to listen on; 0: a free port, chosen by the system; null: none, only `socket`.",
    )
    hosts: tuple[Name, ...] = Field(
        default=(),
        description="Further names under which it is reached. A request whose `Host` is neither one of them "
        "nor an address that is listened on is refused.",
    )
    socket: Annotated[str, AfterValidator(_socket)] | None = Field(
        default=None,
        description="A Unix socket, beside the port: whoever may open it, this user only, needs no token.",
    )
    tls: TlsConfig | None = Field(default=None, description="TLS on the port; null: plain HTTP.")
    insecure: bool = Field(
        default=False,
        description="Listen without TLS on an address that other machines can reach: tokens can be read on "
        "their way.",
    )
    tokens: tuple[AdminTokenConfig, ...] = Field(
        default=(),
        description="Who may ask. Left out, a token that may operate is made at each start, and written to "
        "`admin.token` in the directory of `storage`.",
    )

    @field_validator("tokens")
    @classmethod
    def _different(cls, tokens: tuple[AdminTokenConfig, ...]) -> tuple[AdminTokenConfig, ...]:
        for what, given in (
            ("name", [each.name for each in tokens]),
            ("token", [each.token.get_secret_value() for each in tokens]),
        ):
            if len(set(given)) != len(given):
                raise fault("tokens", f"has one {what} twice", "each needs its own")
        return tokens

    @model_validator(mode="after")
    def _is_somewhere(self) -> Self:
        raise_all("AdminConfig", self._faults())
        return self

    def _faults(self) -> Iterator[PydanticCustomError]:
        if self.port is None and self.socket is None:
            yield fault(
                "admin", "listens nowhere", "give it a `port` or a `socket`", lacks=("port", "socket")
            )
        if self.port is None and self.tls is not None:
            hint = "take one of the two out"
            yield fault("admin", "has no `port` to be used on", hint, at=("tls",), lacks=("port",))
        if self.port is not None and not (is_loopback(self.host) or self.tls or self.insecure):
            yield fault(
                "admin",
                f"would send tokens readable over the network to {self.host}",
                "add `tls`, listen on 127.0.0.1, or say `insecure: true`",
                at=("host",),
                lacks=("tls", "insecure"),
            )
