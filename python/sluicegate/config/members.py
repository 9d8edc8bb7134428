"""How the members of requests differ that a server is sent, whoever wrote them."""

import json
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from sluicegate.config.quantities import Words, fault
from sluicegate.config.section import Section
from sluicegate.config.values import Name

_MOST = 64


def _json(members: Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        json.dumps(dict(members), allow_nan=False)
    except (TypeError, ValueError):
        raise fault("json", "has a value that JSON has not", "put it into quotes") from None
    return members


Added = Annotated[
    Mapping[Name, Any],
    AfterValidator(_json),
    Field(max_length=_MOST),
    Words("mapping of names to JSON", lambda value: json.dumps(dict(value))),
]


class MembersConfig(Section):
    """Members of the requests to one API that the server wants otherwise, forwarded and translated ones."""

    omit: tuple[Name, ...] = Field(
        default=(),
        max_length=_MOST,
        description="Members of requests that the server refuses, and that are not sent to it "
        "(`prompt_cache_key`, for example).",
    )
    rename: Mapping[Name, Name] = Field(
        default={},
        max_length=_MOST,
        description="Members that it calls otherwise (`seed: random_seed`); where a request has both, the "
        "first is not sent.",
    )
    add: Added = Field(
        default={},
        description="Members that requests are given which have none of that name; with `omit`, all are.",
    )
