"""Configuration: its model, reading it from a file and the environment, and checking it."""

from sluicegate.config.bounds import BoundsConfig
from sluicegate.config.change import NEED_RESTART, load_change
from sluicegate.config.check import Report, check_file, load_data, load_file
from sluicegate.config.model import (
    Api,
    Config,
    CostConfig,
    CostStyle,
    DeadlineConfig,
    Dialect,
    KeyConfig,
    LogConfig,
    ModelConfig,
    PriceConfig,
    RouteConfig,
    ServerConfig,
    StoreConfig,
    TierConfig,
    TlsConfig,
    UpstreamConfig,
)
from sluicegate.config.schema import json_schema
from sluicegate.config.section import Section

__all__ = [
    "NEED_RESTART",
    "Api",
    "BoundsConfig",
    "Config",
    "CostConfig",
    "CostStyle",
    "DeadlineConfig",
    "Dialect",
    "KeyConfig",
    "LogConfig",
    "ModelConfig",
    "PriceConfig",
    "Report",
    "RouteConfig",
    "Section",
    "ServerConfig",
    "StoreConfig",
    "TierConfig",
    "TlsConfig",
    "UpstreamConfig",
    "check_file",
    "json_schema",
    "load_change",
    "load_data",
    "load_file",
]
