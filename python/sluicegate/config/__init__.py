"""Configuration: its model, reading it from a file and the environment, and checking it."""

from sluicegate.config.admin import AdminConfig, AdminRole, AdminTokenConfig
from sluicegate.config.apis import ApiName, spelled
from sluicegate.config.bounds import BoundsConfig
from sluicegate.config.callers import (
    CALLER_PREFIX,
    CallerConfig,
    KeyConfig,
    ModelPattern,
    TeamConfig,
    UsersConfig,
)
from sluicegate.config.callers import (
    Moment as Expiry,
)
from sluicegate.config.change import NEED_RESTART, changed_settings, load_change
from sluicegate.config.check import Report, check_file, load_data, load_file
from sluicegate.config.discover import DiscoverConfig
from sluicegate.config.health import HealthConfig, ProbeConfig, RetryConfig
from sluicegate.config.ledger import CountersLost, LedgerConfig, StorageConfig
from sluicegate.config.limits import Amounts, LimitSet, Rate
from sluicegate.config.messages import MessagesConfig
from sluicegate.config.models import ModelConfig, RouteConfig
from sluicegate.config.names import matches as wildcard_matches
from sluicegate.config.names import target as alias_target
from sluicegate.config.own import load_own
from sluicegate.config.passthrough import PassthroughConfig
from sluicegate.config.policies import PolicyConfig
from sluicegate.config.prices import PriceConfig, TierConfig, picodollars
from sluicegate.config.profiles import (
    GENERIC,
    Profile,
    profile,
    profile_at,
    profile_of_owner,
    profiles,
)
from sluicegate.config.quantities import TIME
from sluicegate.config.redis_url import RedisUrl
from sluicegate.config.rights import unserved_models
from sluicegate.config.root import (
    Config,
    CostConfig,
    CostStyle,
    StoreConfig,
)
from sluicegate.config.routing import RoutingConfig
from sluicegate.config.schema import json_schema
from sluicegate.config.section import Section
from sluicegate.config.server import LogConfig, ServerConfig, TlsConfig, is_loopback
from sluicegate.config.settings import Setting, settings
from sluicegate.config.upstream import DeadlineConfig, Dialect, UpstreamConfig
from sluicegate.config.values import DECIMALS_PER_MILLION, Name

__all__ = [
    "CALLER_PREFIX",
    "DECIMALS_PER_MILLION",
    "GENERIC",
    "NEED_RESTART",
    "TIME",
    "AdminConfig",
    "AdminRole",
    "AdminTokenConfig",
    "Amounts",
    "ApiName",
    "BoundsConfig",
    "CallerConfig",
    "Config",
    "CostConfig",
    "CostStyle",
    "CountersLost",
    "DeadlineConfig",
    "Dialect",
    "DiscoverConfig",
    "Expiry",
    "HealthConfig",
    "KeyConfig",
    "LedgerConfig",
    "LimitSet",
    "LogConfig",
    "MessagesConfig",
    "ModelConfig",
    "ModelPattern",
    "Name",
    "PassthroughConfig",
    "PolicyConfig",
    "PriceConfig",
    "ProbeConfig",
    "Profile",
    "Rate",
    "RedisUrl",
    "Report",
    "RetryConfig",
    "RouteConfig",
    "RoutingConfig",
    "Section",
    "ServerConfig",
    "Setting",
    "StorageConfig",
    "StoreConfig",
    "TeamConfig",
    "TierConfig",
    "TlsConfig",
    "UpstreamConfig",
    "UsersConfig",
    "alias_target",
    "changed_settings",
    "check_file",
    "is_loopback",
    "json_schema",
    "load_change",
    "load_data",
    "load_file",
    "load_own",
    "picodollars",
    "profile",
    "profile_at",
    "profile_of_owner",
    "profiles",
    "settings",
    "spelled",
    "unserved_models",
    "wildcard_matches",
]
