"""Configuration: its model, reading it from a file and the environment, and checking it."""

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
    UpstreamConfig,
)
from sluicegate.config.schema import json_schema

__all__ = [
    "Api",
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
    "ServerConfig",
    "StoreConfig",
    "TierConfig",
    "UpstreamConfig",
    "check_file",
    "json_schema",
    "load_data",
    "load_file",
]
