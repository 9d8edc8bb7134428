"""What a reply says of how it came about: its deployment, how many attempts there were, and the model."""

from functools import lru_cache
from urllib.parse import quote

from sluicegate._core import Route
from sluicegate.routing import Deployment, Model

Headers = list[tuple[bytes, bytes]]


def attempt_headers(model: Model, deployment: Deployment, route: Route, attempts: int) -> Headers:
    """Of an attempt by `route`. Where clients are to see the public name only, they do here, too."""
    named = route.model and deployment.shows_upstream_model
    shown = f"{deployment.upstream}/{route.model}" if named else deployment.upstream
    return _headers(shown, model.name, attempts)


# Never changed by who gets it. Names that wildcards match are clients' own, so there may be many.
@lru_cache(maxsize=4096)
def _headers(deployment: str, model: str, attempts: int) -> Headers:
    headers = [
        (b"x-sluicegate-deployment", _value(deployment)),
        (b"x-sluicegate-attempts", b"%d" % attempts),
    ]
    if model:
        headers.append((b"x-sluicegate-model", _value(model)))
    return headers


def _value(name: str) -> bytes:
    """`name` as a header's value: what is no visible ASCII is spelled as in a URL."""
    return quote(name, safe="!#$&'()*+,/:;=?@[]~ ").encode("ascii")
