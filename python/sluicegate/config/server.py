"""The gateway's own side: where it listens, what it logs, and what bounds a request."""

from ipaddress import ip_address
from typing import Literal

from pydantic import Field

from sluicegate.config.bounds import BoundsConfig
from sluicegate.config.section import Section
from sluicegate.config.values import (
    Bytes,
    ClientBuffer,
    Count,
    Delay,
    ExistingFile,
    Host,
    MemoryBytes,
    Port,
    Seconds,
    Secret,
    Threads,
    default_threads,
)

Http = Literal["http1", "auto"]
TlsVersion = Literal["1.2", "1.3"]
MetricsAccess = Literal["loopback", "public"]
LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "json", "console"]


class LogConfig(Section):
    """The structured log: a line for each request, and for what happens to the process."""

    level: LogLevel = Field(default="info", description="Lines below this level are not written.")
    format: LogFormat = Field(
        default="auto",
        description="json: a JSON object a line; console: text for people; auto: console on a terminal, json "
        "elsewhere.",
    )


class DisconnectDrainConfig(Section):
    """How far replies are read on after their clients have left, where `on_client_leave` is `drain`."""

    seconds: Seconds = Field(
        default=60.0,
        description="How long one reply is read on at most; the upstream's deadlines apply as well.",
    )
    bytes: Bytes = Field(
        default=16 * 1024 * 1024, description="How much of one reply is read on after its client has left."
    )
    replies: Count = Field(default=100, description="How many replies are read on at once; 0: none.")


class TlsConfig(Section):
    """TLS towards clients. All files are PEM."""

    cert_file: ExistingFile = Field(description="The file with the certificate and its chain.")
    key_file: ExistingFile = Field(description="The file with the certificate's private key.")
    key_password: Secret | None = Field(
        default=None, description="The password of the private key, where it has one."
    )
    min_version: TlsVersion = Field(default="1.2", description="The oldest TLS version that is accepted.")
    client_ca_file: ExistingFile | None = Field(
        default=None,
        description="The certificates of authorities; clients must present a certificate signed by one of "
        "them. null: clients need none.",
    )


class ServerConfig(Section):
    """The gateway's own side: where it listens, and what bounds a request."""

    host: Host = Field(
        default="127.0.0.1", description="The address to listen on; 0.0.0.0 or :: for all addresses."
    )
    port: Port = Field(
        default=8080, description="The port to listen on; 0: a free port, chosen by the system."
    )
    reuse_port: bool = Field(
        default=False,
        description="Let another process listen on the same port: during an upgrade the old and the new "
        "gateway share its connections.",
    )
    threads: Threads = Field(
        default_factory=default_threads,
        description="How many threads read from and write to clients and upstreams.",
    )
    http: Http = Field(
        default="http1",
        description="http1: HTTP/1.1 only; auto: HTTP/2 as well, chosen by ALPN with TLS, and without TLS by "
        "the client's first bytes.",
    )
    tls: TlsConfig | None = Field(default=None, description="TLS towards clients; null: plain HTTP.")
    max_body_bytes: MemoryBytes = Field(
        default=64 * 1024 * 1024,
        description="The largest body of a request; a larger one is answered with 413.",
    )
    max_event_bytes: MemoryBytes = Field(
        default=16 * 1024 * 1024,
        description="The largest event in an upstream's stream; at a larger one the upstream has failed.",
    )
    max_reply_bytes: MemoryBytes = Field(
        default=64 * 1024 * 1024, description="The largest JSON reply that has to be held in memory whole."
    )
    client_buffer_bytes: ClientBuffer = Field(
        default=256 * 1024,
        description="How much is held for one slow client before reading from its upstream stops.",
    )
    bounds: BoundsConfig = Field(
        default=BoundsConfig(), description="What one client, and all of them together, may use."
    )
    drain_delay_seconds: Delay = Field(
        default=0.0,
        description="How long new connections are still accepted after SIGTERM while `/readyz` says 503, so "
        "that balancers that ask it can take the gateway out first; 0: none are.",
    )
    drain_seconds: Seconds = Field(
        default=30.0,
        description="How long streams under way may go on after SIGTERM; what is left then is cut.",
    )
    disconnect_drain: DisconnectDrainConfig = Field(
        default=DisconnectDrainConfig(),
        description="How far replies are read on after their clients have left.",
    )
    keepalive_seconds: Seconds | None = Field(
        default=None,
        description="Send an SSE comment, or a ping to a client of `/v1/messages`, whenever its stream has "
        "been silent for this long; null: never. Balancers close a connection that is silent for 60 s, and "
        "a first token may take ten minutes: behind a balancer set this to 15 s or so.",
    )
    reload_on_change: bool = Field(
        default=True,
        description="Read the configuration file again whenever it changes; false: on SIGHUP only.",
    )
    metrics: MetricsAccess = Field(
        default="loopback",
        description="Who may read `/metrics`, which names models, upstreams and their cost, without a key. "
        "loopback: only where the gateway listens on a loopback address, and has no `admin`, whose listener "
        "serves them then; public: anyone who can connect.",
    )
    log: LogConfig = Field(default=LogConfig(), description="The structured log.")

    @property
    def is_loopback(self) -> bool:
        """Whether only this machine can connect."""
        return is_loopback(self.host)


def is_loopback(host: str) -> bool:
    """Whether only this machine can connect to `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
