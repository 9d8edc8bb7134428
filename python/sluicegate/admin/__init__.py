"""The admin API: what operators see of a running gateway, and change."""

from sluicegate.admin.access import SOCKET, HostRule, Identity, Tokens
from sluicegate.admin.api import admin_api
from sluicegate.admin.guard import Guard
from sluicegate.admin.watched import Watched

__all__ = ["SOCKET", "Guard", "HostRule", "Identity", "Tokens", "Watched", "admin_api"]
