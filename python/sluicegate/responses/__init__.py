"""Stored and background responses: the store, the queue, conversations."""

from sluicegate.responses.entry import Entry, Page, Work
from sluicegate.responses.errors import (
    LoadingBusy,
    NotFinished,
    NotFound,
    QueueFull,
    StoreBusy,
    TooLong,
)
from sluicegate.responses.loading import Hold
from sluicegate.responses.place import store_faults, store_path
from sluicegate.responses.repository import Chain, Holders
from sluicegate.responses.store import ResponseStore

__all__ = [
    "Chain",
    "Entry",
    "Hold",
    "Holders",
    "LoadingBusy",
    "NotFinished",
    "NotFound",
    "Page",
    "QueueFull",
    "ResponseStore",
    "StoreBusy",
    "TooLong",
    "Work",
    "store_faults",
    "store_path",
]
