"""The server's certificate, looked at before workers are started with it."""

import ssl

from sluicegate.config import ServerConfig
from sluicegate.errors import ConfigurationError, ConfigurationFault


def check_certificate(settings: ServerConfig) -> None:
    """Raises `ConfigurationError` where the files are no certificates, or no pair."""
    tls = settings.tls
    if tls is None:
        return
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Without a password the library would ask for one on the terminal.
    password = "" if tls.key_password is None else tls.key_password.get_secret_value()
    try:
        context.load_cert_chain(tls.cert_file, tls.key_file, password)
        if tls.client_ca_file is not None:
            context.load_verify_locations(tls.client_ca_file)
    except (ssl.SSLError, OSError) as error:
        reason = getattr(error, "reason", None) or type(error).__name__
        fault = ConfigurationFault("server.tls", f"cannot be used: {reason}", "PEM files, a pair")
        raise ConfigurationError([fault]) from None
