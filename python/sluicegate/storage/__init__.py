"""Databases and files: where they are, how they are opened, and how their tables came to be."""

from sluicegate.storage.database import Database
from sluicegate.storage.errors import Contended, StoreError, StoreTooNew, StoreUnavailable, Unstorable
from sluicegate.storage.locations import state_directory, storage_directory, why_unwritable
from sluicegate.storage.migrations import MigrationStep, migrate, version_table

__all__ = [
    "Contended",
    "Database",
    "MigrationStep",
    "StoreError",
    "StoreTooNew",
    "StoreUnavailable",
    "Unstorable",
    "migrate",
    "state_directory",
    "storage_directory",
    "version_table",
    "why_unwritable",
]
