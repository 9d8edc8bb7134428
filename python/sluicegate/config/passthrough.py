"""Paths of the operator's own, which are forwarded to upstreams as the gateway's endpoints are."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from sluicegate.config.models import unknown_upstream
from sluicegate.config.quantities import fault, raise_all
from sluicegate.config.section import Section
from sluicegate.config.values import Name, RoutePart

MOST = 100
"""Each is looked at for every request that is for none of the gateway's own endpoints."""

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
ModelPlace = Literal["json", "form", "path"]

_ALL: tuple[Method, ...] = ("GET", "POST", "PUT", "PATCH", "DELETE")
_WITH_BODY: tuple[Method, ...] = ("POST", "PUT", "PATCH")

_MODEL = "{model}"
# RFC 3986, section 3.3, without what is escaped: as `rust/front/src/passthrough.rs` has it.
_TEXT = r"[A-Za-z0-9\-._~!$&'()+,;=:@]"
_PATH = re.compile(rf"(/({_TEXT}+|{_TEXT}*\{{model\}}{_TEXT}*))+(/\*)?")

POSTED = (
    "/v1/chat/completions",
    "/v1/completions",
    "/v1/embeddings",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/v1/audio/speech",
    "/v1/audio/transcriptions",
    "/v1/audio/translations",
    "/v1/images/generations",
    "/v1/images/edits",
    "/v1/images/variations",
    "/v1/moderations",
    "/v1/rerank",
    "/rerank",
    "/v2/rerank",
    "/v1/score",
    "/score",
    "/tokenize",
    "/detokenize",
)
"""What the gateway itself has for POST."""

WHOLE = ("/v1/responses/*", "/v1/models/*", "/health", "/healthz", "/readyz", "/metrics")
"""What it has for any method."""

RESERVED_NAMES = frozenset(
    {
        "chat_completions", "completions", "embeddings", "responses", "messages", "count_tokens", "speech",
        "transcriptions", "translations", "image_generations", "image_edits", "image_variations",
        "moderations", "rerank", "score", "tokenize", "detokenize", "models", "get_response",
        "delete_response", "cancel_response", "list_input_items", "other",
    }
)  # fmt: skip
"""What logs, metrics and rights call the gateway's own endpoints."""


def _path(value: str) -> str:
    steps = {segment.partition(";")[0] for segment in value.split("/")} & {".", ".."}
    if not _PATH.fullmatch(value) or value.count(_MODEL) > 1 or steps:
        raise fault(
            "path",
            "is no path that can be forwarded",
            "such as /v1/files, /v1/files/* with everything below it, or /v1/engines/{model}/embeddings",
        )
    return value


def _name(value: str) -> str:
    if value in RESERVED_NAMES:
        raise fault("name", "is the name of an endpoint of the gateway's own", "give it another one")
    return value


class PassthroughConfig(Section):
    """A path that is forwarded. It names its `upstream`, or says where its `model` is named."""

    path: Annotated[str, AfterValidator(_path), Field(max_length=512)] = Field(
        description="The path. With `/*` at its end: it and everything below it. `{model}` stands for a "
        "model's name, in one segment or a part of one."
    )
    name: Annotated[Name, Field(max_length=64), AfterValidator(_name)] = Field(
        default="passthrough",
        description="What logs, metrics and the `endpoints` of callers and keys call it. Several may share "
        "one.",
    )
    upstream: RoutePart | None = Field(
        default=None, description="The upstream that its requests go to, whatever is in them."
    )
    model: ModelPlace | None = Field(
        default=None,
        description="Where a request names its model, which is routed as `models` says. json: the member "
        "`model` of the body; form: the field `model` of the form; path: the `{model}` of `path`.",
    )
    methods: tuple[Method, ...] | None = Field(
        default=None,
        description="Which methods are forwarded; null: POST where the body names the model, otherwise all.",
    )

    @field_validator("upstream")
    @classmethod
    def _configured(cls, upstream: str | None, info: ValidationInfo) -> str | None:
        known = info.context.get("upstreams") if info.context else None
        unknown = None if known is None or upstream is None else unknown_upstream(upstream, known)
        if unknown is not None:
            raise unknown
        return upstream

    @field_validator("methods")
    @classmethod
    def _some(cls, methods: tuple[Method, ...] | None) -> tuple[Method, ...] | None:
        if methods is not None and not methods:
            raise fault("methods", "is empty", "leave it out for the usual ones")
        return methods

    @model_validator(mode="after")
    def _leads_to_one_place(self) -> Self:
        raise_all("PassthroughConfig", self._faults())
        return self

    def _faults(self) -> Iterator[PydanticCustomError]:
        if (self.upstream is None) == (self.model is None):
            yield fault(
                "passthrough",
                "has neither `upstream` nor `model`"
                if self.upstream is None
                else "has both `upstream` and `model`",
                "`upstream: NAME`, or `model: json`, `form` or `path` to route it by `models`",
                lacks=("upstream", "model") if self.upstream is None else (),
            )
        if (_MODEL in self.path) != (self.model == "path"):
            yield fault(
                "passthrough",
                "has a `{model}` in its path, and does not say `model: path`"
                if _MODEL in self.path
                else "says `model: path`, and has no `{model}` in its path",
                "such as {path: '/v1/engines/{model}/embeddings', model: path}",
                lacks=("path", "model"),
            )
        if self.model in ("json", "form") and not set(self.taken).issubset(_WITH_BODY):
            yield fault(
                "passthrough",
                "has a method without a body, which cannot name a model",
                "take it out",
                at=("methods",),
                lacks=(),
            )

    @property
    def taken(self) -> tuple[Method, ...]:
        """The methods that are forwarded."""
        if self.methods is not None:
            return tuple(dict.fromkeys(self.methods))
        return ("POST",) if self.model in ("json", "form") else _ALL


def passthrough_faults(paths: Sequence[PassthroughConfig]) -> Iterator[PydanticCustomError]:
    """Where a path of `paths` is the gateway's own, or would never be asked."""
    if len(paths) > MOST:
        message, hint = f"has more than {MOST} paths", "a path with /* stands for many"
        yield fault("passthrough", message, hint, at=("passthrough",), lacks=())
        return
    for index, path in enumerate(paths):
        at = ("passthrough", index, "path")
        own = [whole for whole in WHOLE if _meet(path.path, whole)]
        if "POST" in path.taken:
            own += [posted for posted in POSTED if _meet(path.path, posted)]
        if own:
            yield fault(
                "passthrough",
                f"is `{path.path}`, which takes the gateway's own {own[0].removesuffix('/*')}",
                "name a path that it does not have"
                if own[0] in WHOLE
                else "name a path that it does not have, or leave POST out of `methods`",
                at=at,
                lacks=(),
            )
        before = next(
            (
                each
                for each in paths[:index]
                if _covers(each.path, path.path) and set(path.taken).issubset(each.taken)
            ),
            None,
        )
        if before is not None:
            message = f"is `{path.path}` behind `{before.path}`, which takes all of its requests"
            yield fault("passthrough", message, "put it first, or take it out", at=at, lacks=())


def _segments(path: str) -> tuple[list[str], bool]:
    """The segments of `path`, and whether anything may follow them."""
    below = path.endswith("/*")
    return path.removesuffix("/*").split("/")[1:], below


def _meet(one: str, other: str) -> bool:
    """Whether some path is meant by both."""
    (left, left_below), (right, right_below) = _segments(one), _segments(other)
    if (len(left) < len(right) and not left_below) or (len(right) < len(left) and not right_below):
        return False
    return all(_may_be(a, b) or _may_be(b, a) for a, b in zip(left, right, strict=False))


def _covers(one: str, other: str) -> bool:
    """Whether each path that `other` means is meant by `one`, too."""
    (wide, wide_below), (narrow, narrow_below) = _segments(one), _segments(other)
    if len(narrow) < len(wide) or (not wide_below and (narrow_below or len(narrow) > len(wide))):
        return False
    return all(_may_be(a, b) for a, b in zip(wide, narrow, strict=False))


def _may_be(pattern: str, segment: str) -> bool:
    """Whether `pattern` means the segment, which may have a `{model}` itself."""
    before, model, behind = pattern.partition(_MODEL)
    if not model:
        return pattern == segment
    return (
        len(segment) > len(before) + len(behind) and segment.startswith(before) and segment.endswith(behind)
    )
