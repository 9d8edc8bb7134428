"""One process that serves a gateway: what it needs is checked and held first."""

import asyncio
import contextlib
import errno
from collections.abc import Sequence
from pathlib import Path

import uvloop

from sluicegate.config import Config
from sluicegate.errors import ConfigurationError, ConfigurationFault
from sluicegate.gateway import Gateway, create_app
from sluicegate.responses import store_faults
from sluicegate.server import interpreter
from sluicegate.server.address import hold_first
from sluicegate.server.admin import AdminListener
from sluicegate.server.certificate import tls_of
from sluicegate.server.ending import Ending
from sluicegate.server.holders import holder_of
from sluicegate.server.limits import connections_for, raise_open_files
from sluicegate.server.running import Running, Tell
from sluicegate.server.signals import Signals
from sluicegate.telemetry import Log, where


def serve(
    config: Config,
    config_path: Path | None = None,
    *,
    ports: Sequence[int] = (),
    tell: Tell | None = None,
) -> int:
    """Serve until SIGTERM or SIGINT; returns the process's exit status. On the main thread.

    `ports`: the first free one of them, in place of `server.port`. `tell` is called once it listens and the
    upstreams that are asked for their models have answered, or have had the time to.

    The first signal closes the listening sockets, after `server.drain_delay_seconds` and once what waits at
    them has been accepted, lets running streams end for at most `server.drain_seconds` and returns 0. A later
    one ends the process at once with 128 + its number. SIGHUP, and a change of the file, let it serve what
    `config_path` says now; no stream is cut, and `server` stays as it is. Wrong settings, an address that
    cannot be had, and an engine that died, are 1.

    These signals are ignored when it has returned: the process is meant to end then.
    """
    settings = config.server
    log = Log.configured(settings.log.level, settings.log.format)
    ending = Ending(log)
    signals = Signals(ending.at_once)
    try:
        ending.start()
        signals.install()
        return _serve(config, config_path, ports, tell, signals, ending, log)
    except ConfigurationError as error:
        log.error("configuration", faults=[str(fault) for fault in error.faults])
    except Exception as error:
        log.error("cannot_start", error=where(error))
    finally:
        log.close()
        ending.cancel()
        signals.ignore()
    return 1


def _serve(
    config: Config,
    path: Path | None,
    ports: Sequence[int],
    tell: Tell | None,
    signals: Signals,
    ending: Ending,
    log: Log,
) -> int:
    settings = config.server
    ports = ports or (settings.port,)
    # Whatever is wrong with the configuration is told before a port is taken.
    tls = tls_of(settings)
    gateway = create_app(config, log=log)
    for fault in store_faults(config.responses):
        # What needs no store is served all the same.
        log.warning("response_store_unwritable", reason=str(fault))
    with contextlib.ExitStack() as held:
        admin = _admin(config, gateway, log)
        if admin is not None:
            held.callback(admin.release)
        try:
            address = hold_first(settings.host, ports, shared=settings.reuse_port)
        except OSError as error:
            reason = error.strerror or str(error)
            taken = error.errno == errno.EADDRINUSE
            holder = holder_of(ports[-1]) if taken else None
            log.error("cannot_listen", host=settings.host, port=ports[-1], reason=reason, holder=holder)
            return 1
        held.callback(address.release)
        connections = _connections(config, log)
        interpreter.take_short_turns()
        interpreter.give_large_objects_back()
        running = Running(gateway, config, address, tls, connections, log, tell, admin)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            status = runner.run(running.run(signals, ending, path))
    log.info("stopped", status=status)
    return status


def _admin(config: Config, gateway: Gateway, log: Log) -> AdminListener | None:
    """The admin API's listener; None where there is none. Raises `ConfigurationError`."""
    if config.admin is None:
        return None
    try:
        shared = config.server.reuse_port
        return AdminListener(config.admin, config.storage, gateway, log, shared=shared)
    except OSError as error:
        reason = f"cannot listen: {error.strerror or error}"
        if error.filename is not None:
            reason += f": {error.filename}"
        raise ConfigurationError([ConfigurationFault("admin", reason, None)]) from None


def _connections(config: Config, log: Log) -> int:
    """Clients at once: what the configuration says, as far as open files allow."""
    possible = connections_for(raise_open_files())
    wanted = config.server.bounds.connections
    if wanted is None:
        return possible
    if wanted > possible:
        log.warning("too_few_open_files", connections=possible, wanted=wanted)
    return min(wanted, possible)
