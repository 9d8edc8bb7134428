"""Databases and files: where they are, how they are opened, and how their tables came to be."""

from sluicegate.storage.database import Database, Statement, Write
from sluicegate.storage.errors import Contended, StoreError, StoreTooNew, StoreUnavailable, Unstorable
from sluicegate.storage.locations import state_directory, storage_directory, why_unwritable
from sluicegate.storage.migrations import MigrationStep, migrate, version_table
from sluicegate.storage.reaching import postgresql_faults, why_no_postgresql, why_no_redis
from sluicegate.storage.redis import (
    RedisConnection,
    RedisConnector,
    RedisFailed,
    RedisScript,
    ScriptCall,
    redis_faults,
)

__all__ = [
    "Contended",
    "Database",
    "MigrationStep",
    "RedisConnection",
    "RedisConnector",
    "RedisFailed",
    "RedisScript",
    "ScriptCall",
    "Statement",
    "StoreError",
    "StoreTooNew",
    "StoreUnavailable",
    "Unstorable",
    "Write",
    "migrate",
    "postgresql_faults",
    "redis_faults",
    "state_directory",
    "storage_directory",
    "version_table",
    "why_no_postgresql",
    "why_no_redis",
    "why_unwritable",
]
