"""Who has changed what by the admin API."""

from typing import Any

from starlette.requests import Request

from sluicegate.admin.guard import identity_of
from sluicegate.telemetry import Log


class Changes:
    def __init__(self, log: Log) -> None:
        self._log = log

    async def record(self, request: Request, what: str, subject: str, **details: Any) -> None:
        """Whoever asks has done `what` to `subject`."""
        who = identity_of(request.scope).name
        self._log.info("admin_change", who=who, what=what, subject=subject, **details)
