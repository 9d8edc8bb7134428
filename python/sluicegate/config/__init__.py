"""Configuration: its model, reading it from a file and the environment, and checking it."""

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
    TierConfig,
    UpstreamConfig,
)

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
    "RouteConfig",
    "ServerConfig",
    "TierConfig",
    "UpstreamConfig",
]
