"""Running the gateway: granian, its workers, their end."""

import contextlib
import math
import multiprocessing
import os
import shutil
import signal
import tempfile
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from granian.constants import HTTPModes, Interfaces, SSLProtocols
from granian.http import HTTP1Settings, HTTP2Settings
from granian.log import LogLevels
from granian.server import Server

from sluicegate.config import Config, ServerConfig
from sluicegate.errors import ConfigurationError
from sluicegate.gateway.app import CLOSE_SECONDS
from sluicegate.routing import ModelTable
from sluicegate.server.address import Address, hold_address
from sluicegate.server.certificate import check_certificate
from sluicegate.server.limits import connections_per_worker, raise_open_files
from sluicegate.server.reload import Reloader, Stamp, stamp_of, tell
from sluicegate.server.worker import LOOP, Plan, load_worker
from sluicegate.telemetry import Log

BACKLOG = 4096

# Also how long an idle connection is kept: longer than the 60 s after which balancers (AWS ALB, nginx) drop
# theirs, so that it is never us who close a connection that is about to be used.
HEADER_READ_MS = 75_000

# The server's share of a slow client's buffer: the relay's sink has the rest. hyper takes no request head
# larger than its buffer.
CONNECTION_BUFFER_PART = 4
MIN_HTTP1_BUFFER = 64 * 1024

# After the drain deadline a worker still ends its exchanges and writes their records; then it is killed.
KILL_GRACE_SECONDS = CLOSE_SECONDS + 3.0

# One order to stop often comes twice: to this process and to its group (`timeout`, terminals, supervisors).
SAME_SIGNAL_SECONDS = 0.5

_HTTP = {"http1": HTTPModes.http1, "auto": HTTPModes.auto}
_TLS = {"1.2": SSLProtocols.tls12, "1.3": SSLProtocols.tls13}

_GRANIAN_LOG: dict[str, Any] = {
    "handlers": {
        name: {"formatter": "generic", "class": "logging.StreamHandler", "stream": "ext://sys.stderr"}
        for name in ("console", "access")
    }
}


class _Server(Server):  # type: ignore[misc, valid-type]
    """granian, with an end at once on the second signal, and workers that outlive configurations."""

    first_signal: float | None = None
    forced: int | None = None
    """The number of the signal that ended it at once."""
    reloader: Reloader | None = None

    def signal_handler_interrupt(self, *args: Any, **kwargs: Any) -> None:
        now = time.monotonic()
        if self.first_signal is None:
            self.first_signal = now
        elif now - self.first_signal >= SAME_SIGNAL_SECONDS:
            self.forced = int(args[0]) if args else int(signal.SIGTERM)
            for child in multiprocessing.active_children():
                child.kill()
        super().signal_handler_interrupt(*args, **kwargs)

    def signal_handler_reload(self, *args: Any, **kwargs: Any) -> None:
        if self.reloader is not None:
            self.reloader.ask()


def serve(config: Config, config_path: Path | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the process's exit status.

    The first signal closes the listening sockets, lets running streams end for at most `server.drain_seconds`
    and returns 0. A later one ends everything at once and returns 128 + its number, as a shell would say.
    SIGHUP, and a change of the file, let the workers serve what `config_path` says now; no stream is cut, and
    `server` stays as it is. A configuration with faults, or an address that cannot be had, is 1.

    Call it from a main module that can be imported without side effects: workers are spawned, not forked.
    """
    settings = config.server
    log = Log.configured(settings.log.level, settings.log.format)
    try:
        ModelTable(config)
        check_certificate(settings)
        address = hold_address(settings.host, settings.port)
    except ConfigurationError as error:
        log.error("configuration", faults=[str(fault) for fault in error.faults])
        log.close()
        return 1
    except OSError as error:
        log.error(
            "cannot_listen", host=settings.host, port=settings.port, reason=error.strerror or str(error)
        )
        log.close()
        return 1
    with _metrics_directory():
        try:
            return _run(config, config_path, address, log)
        finally:
            address.holder.close()
            log.close()


def _run(config: Config, config_path: Path | None, address: Address, log: Log) -> int:
    settings = config.server
    # Python 3.14 no longer forks by default either. A forked worker would share the parent's mmapped metrics.
    multiprocessing.set_start_method("spawn", force=True)
    plan = Plan(config, config_path, stamp_of(config_path))
    server = _Server(
        "sluicegate",
        address=address.host,
        port=address.port,
        interface=Interfaces.ASGI,
        workers=settings.workers,
        loop=LOOP,
        http=_HTTP[settings.http],
        websockets=False,
        backlog=BACKLOG,
        backpressure=connections_per_worker(raise_open_files()),
        http1_settings=HTTP1Settings(
            header_read_timeout=HEADER_READ_MS,
            max_buffer_size=max(MIN_HTTP1_BUFFER, settings.client_buffer_bytes // CONNECTION_BUFFER_PART),
        ),
        http2_settings=HTTP2Settings(
            keep_alive_interval=HEADER_READ_MS,
            max_headers_size=MIN_HTTP1_BUFFER,
            max_send_buffer_size=settings.client_buffer_bytes // CONNECTION_BUFFER_PART,
        ),
        **_tls(settings),
        log_level=LogLevels.warning,
        log_dictconfig=_GRANIAN_LOG,
        log_access=False,
        respawn_failed_workers=True,
        workers_kill_timeout=math.ceil(settings.drain_seconds + KILL_GRACE_SECONDS),
    )
    if config_path is not None:
        changed = partial(_changed, plan, server, log)
        server.reloader = Reloader(config_path, plan.stamp, changed, log, watch=settings.reload_on_change)
        server.reloader.start()
    log.info(
        "listening",
        address=f"{'http' if settings.tls is None else 'https'}://{address}",
        host=address.host,
        port=address.port,
        workers=settings.workers,
    )
    try:
        server.serve(target_loader=partial(load_worker, plan), wrap_loader=False)
        status = 0
    except SystemExit as stop:
        # A worker that died, again and again.
        status = stop.code if isinstance(stop.code, int) else 1
    finally:
        if server.reloader is not None:
            server.reloader.stop()
    if server.forced is not None:
        status = 128 + server.forced
    log.info("stopped", status=status)
    return status


def _tls(settings: ServerConfig) -> dict[str, Any]:
    tls = settings.tls
    if tls is None:
        return {}
    authorities = tls.client_ca_file
    return {
        "ssl_cert": Path(tls.cert_file),
        "ssl_key": Path(tls.key_file),
        "ssl_key_password": None if tls.key_password is None else tls.key_password.get_secret_value(),
        "ssl_protocol_min": _TLS[tls.min_version],
        "ssl_ca": None if authorities is None else Path(authorities),
        "ssl_client_verify": authorities is not None,
    }


def _changed(plan: Plan, server: _Server, log: Log, config: Config, stamp: Stamp) -> None:
    if config.server != plan.config.server:
        log.warning("needs_restart", section="server")
    # For workers that come after others that died.
    plan.config = config.model_copy(update={"server": plan.config.server})
    plan.stamp = stamp
    tell([worker.inner.pid for worker in server.wrks if worker.inner.pid is not None])


@contextlib.contextmanager
def _metrics_directory() -> Iterator[None]:
    """Where workers share their metrics; prometheus-client finds it through the environment."""
    name = "PROMETHEUS_MULTIPROC_DIR"
    base = os.environ.get(name)
    directory = tempfile.mkdtemp(prefix="sluicegate-metrics-", dir=base)
    os.environ[name] = directory
    try:
        yield
    finally:
        if base is None:
            del os.environ[name]
        else:
            os.environ[name] = base
        shutil.rmtree(directory, ignore_errors=True)
