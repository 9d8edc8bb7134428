"""A streaming gateway for LLM traffic: every byte arrives, every event is right, every token is billed.

The names below are loaded when they are first used, so importing the package costs next to nothing.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sluicegate._core import (
        ChatToResponses,
        HarmonyDecoder,
        ResponsesToChat,
        ServerSentEvent,
        SSEDecoder,
        SSESplitter,
        Usage,
        UsageMeter,
        __version__,
        fold_chat,
        unfold_chat,
    )
    from sluicegate.config import Config, load_data, load_file
    from sluicegate.errors import (
        ConfigurationError,
        ConfigurationFault,
        DocumentTooLarge,
        Error,
        EventTooLarge,
        InvalidJSON,
        InvalidRequest,
        LimitExceeded,
        ParseError,
        RelayClosed,
        TooDeep,
    )
    from sluicegate.pricing import Cost, PricePolicy, UsageLike
    from sluicegate.streams import aiter_events

__all__ = [
    "ChatToResponses",
    "Config",
    "ConfigurationError",
    "ConfigurationFault",
    "Cost",
    "DocumentTooLarge",
    "Error",
    "EventTooLarge",
    "HarmonyDecoder",
    "InvalidJSON",
    "InvalidRequest",
    "LimitExceeded",
    "ParseError",
    "PricePolicy",
    "RelayClosed",
    "ResponsesToChat",
    "SSEDecoder",
    "SSESplitter",
    "ServerSentEvent",
    "TooDeep",
    "Usage",
    "UsageLike",
    "UsageMeter",
    "__version__",
    "aiter_events",
    "fold_chat",
    "load_data",
    "load_file",
    "unfold_chat",
]

_HOMES = {
    "sluicegate._core": (
        "ChatToResponses",
        "HarmonyDecoder",
        "ResponsesToChat",
        "SSEDecoder",
        "SSESplitter",
        "ServerSentEvent",
        "Usage",
        "UsageMeter",
        "__version__",
        "fold_chat",
        "unfold_chat",
    ),
    "sluicegate.config": ("Config", "load_data", "load_file"),
    "sluicegate.errors": (
        "ConfigurationError",
        "ConfigurationFault",
        "DocumentTooLarge",
        "Error",
        "EventTooLarge",
        "InvalidJSON",
        "InvalidRequest",
        "LimitExceeded",
        "ParseError",
        "RelayClosed",
        "TooDeep",
    ),
    "sluicegate.pricing": ("Cost", "PricePolicy", "UsageLike"),
    "sluicegate.streams": ("aiter_events",),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
