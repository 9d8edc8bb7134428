"""Who has changed what by the admin API: a line of the log each, and a row of the audit."""

import asyncio
from typing import Annotated

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response

from sluicegate.admin.answers import page
from sluicegate.admin.asking import Paged, Text, parameters
from sluicegate.admin.guard import identity_of
from sluicegate.identity import audited, note
from sluicegate.storage import Database, StoreUnavailable
from sluicegate.telemetry import Log

AUDIT_SECONDS = 5.0
"""An answer waits for the database no longer."""


class _Listed(Paged):
    subject: Text | None = None
    before: Annotated[int | None, Field(ge=1, le=2**62)] = None


class Changes:
    def __init__(self, database: Database, log: Log) -> None:
        self._database = database
        self._log = log

    def tell(self, request: Request, action: str, subject: str) -> None:
        """Log what is in the audit already: changes of callers and keys are put there with them."""
        self._log.info("admin_change", who=identity_of(request.scope).actor, what=action, subject=subject)

    async def record(self, request: Request, action: str, subject: str) -> None:
        """Whoever asks has done this to `subject`. Where the database cannot be had only the log has it:
        a server can be taken off all the same.
        """
        self.tell(request, action, subject)
        actor = identity_of(request.scope).actor
        try:
            async with asyncio.timeout(AUDIT_SECONDS):
                await self._database.undisturbed(note(self._database, actor, action, subject))
        except (StoreUnavailable, TimeoutError) as error:
            reason = str(error) or "no answer in time"
            self._log.error("audit_failed", what=action, subject=subject, reason=reason)

    async def list(self, request: Request) -> Response:
        asked = parameters(request, _Listed)
        found = await self._database.undisturbed(
            audited(self._database, subject=asked.subject, before=asked.before, limit=asked.limit + 1)
        )
        shown = [entry.as_data() for entry in found[: asked.limit]]
        return page(shown, str(shown[-1]["id"]) if len(found) > len(shown) else None)
