"""Stored and background responses: the store, the queue, conversations."""

from sluicegate.responses.entry import Entry, Work
from sluicegate.responses.errors import (
    NotFinished,
    NotFound,
    QueueFull,
    StoreBusy,
    StoreUnavailable,
    Unstorable,
)
from sluicegate.responses.inputs import Item, Page, given, is_reference
from sluicegate.responses.members import replace as replace_members
from sluicegate.responses.objects import dump
from sluicegate.responses.place import store_faults, store_path
from sluicegate.responses.store import ResponseStore

__all__ = [
    "Entry",
    "Item",
    "NotFinished",
    "NotFound",
    "Page",
    "QueueFull",
    "ResponseStore",
    "StoreBusy",
    "StoreUnavailable",
    "Unstorable",
    "Work",
    "dump",
    "given",
    "is_reference",
    "replace_members",
    "store_faults",
    "store_path",
]
