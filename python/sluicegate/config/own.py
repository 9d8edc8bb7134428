"""What a configuration names of the user's own Python: `package.module:name`."""

import inspect
from importlib import import_module
from typing import Annotated, Any

from pydantic import AfterValidator

from sluicegate.config.quantities import fault


def load_own(path: str) -> Any:
    """What `path` names. Raises whatever importing it raises, and `AttributeError` where it is not there."""
    module, _, name = path.partition(":")
    return getattr(import_module(module), name)


def import_own(path: str) -> Any:
    """The same while a configuration is read: what goes wrong is its fault."""
    try:
        return load_own(path)
    except Exception as error:
        raise fault(
            "own",
            f"names `{path}`, which cannot be imported: {type(error).__name__}: {error}",
            "it has to be installed, or in a folder of PYTHONPATH",
        ) from None


def _price_function(path: str) -> str:
    found = import_own(path)
    if not callable(found) or inspect.isclass(found):
        raise fault("own", f"names `{path}`, which is no function", "see docs/prices.md")
    try:
        inspect.signature(found).bind("model", "upstream_model", None)
    except TypeError as error:
        raise fault("own", f"names `{path}`, which cannot be asked: {error}", "see docs/prices.md") from None
    return path


PriceFunction = Annotated[str, AfterValidator(_price_function)]
