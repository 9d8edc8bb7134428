"""The server's certificate, looked at before anything is begun with it."""

import ssl

from sluicegate._core import Tls
from sluicegate.config import ServerConfig, TlsConfig
from sluicegate.errors import ConfigurationError, ConfigurationFault


def tls_of(settings: ServerConfig) -> Tls | None:
    """TLS towards clients. Raises `ConfigurationError` where the files are no certificates, or no pair."""
    tls = settings.tls
    if tls is None:
        return None
    check_certificate(tls, "server.tls")
    password = None if tls.key_password is None else tls.key_password.get_secret_value()
    return Tls(
        tls.cert_file,
        tls.key_file,
        key_password=password,
        min_version=tls.min_version,
        client_ca_file=tls.client_ca_file,
    )


def check_certificate(tls: TlsConfig, path: str) -> None:
    """Raises `ConfigurationError` where the files are no certificates, or no pair. `path`: of the setting."""
    password = None if tls.key_password is None else tls.key_password.get_secret_value()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        # Without a password the library would ask for one on the terminal.
        context.load_cert_chain(tls.cert_file, tls.key_file, password or "")
        if tls.client_ca_file is not None:
            context.load_verify_locations(tls.client_ca_file)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        fault = ConfigurationFault(path, f"cannot be used: {reason}", "PEM files, a pair")
        raise ConfigurationError([fault]) from None
