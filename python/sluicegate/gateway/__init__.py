"""The gateway: an ASGI application, one endpoint a file."""

from sluicegate.gateway.app import Gateway, create_app

__all__ = ["Gateway", "create_app"]
