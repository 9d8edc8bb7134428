"""Callers and keys in a database: making, changing and ending them, and who did that."""

from sluicegate.identity.audit import AuditEntry, audited, note
from sluicegate.identity.callers import change_caller, create_caller, find_caller, list_callers
from sluicegate.identity.errors import Conflict, IdentityError, InvalidFields, NoSuchCaller, NoSuchKey
from sluicegate.identity.following import Following
from sluicegate.identity.keys import (
    OVERLAP_SECONDS,
    MadeKey,
    configured_keys,
    create_key,
    find_key,
    key_meant,
    list_keys,
    revoke_key,
    rotate_key,
)
from sluicegate.identity.known import KnownCaller, KnownKey, Terms
from sluicegate.identity.model import CallerFields, ConfiguredKey, KeyFields, StoredCaller, StoredKey
from sluicegate.identity.place import open_callers
from sluicegate.identity.secret import configured_key_id, is_key, public_id
from sluicegate.identity.snapshot import NOTHING, Snapshot

__all__ = [
    "NOTHING",
    "OVERLAP_SECONDS",
    "AuditEntry",
    "CallerFields",
    "ConfiguredKey",
    "Conflict",
    "Following",
    "IdentityError",
    "InvalidFields",
    "KeyFields",
    "KnownCaller",
    "KnownKey",
    "MadeKey",
    "NoSuchCaller",
    "NoSuchKey",
    "Snapshot",
    "StoredCaller",
    "StoredKey",
    "Terms",
    "audited",
    "change_caller",
    "configured_key_id",
    "configured_keys",
    "create_caller",
    "create_key",
    "find_caller",
    "find_key",
    "is_key",
    "key_meant",
    "list_callers",
    "list_keys",
    "note",
    "open_callers",
    "public_id",
    "revoke_key",
    "rotate_key",
]
