"""What the admin API is asked, held within bounds and checked."""

import asyncio
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import ClientDisconnect, Request

from sluicegate.admin.answers import Answered

MOST_BODY_BYTES = 64 * 1024
BODY_SECONDS = 10.0
MOST_URL_BYTES = 8 * 1024

MOST_ON_A_PAGE = 1000


class Asked(BaseModel):
    """Parameters, or a body: nothing unknown is accepted, and nothing converted but texts of a URL."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class AskedBody(Asked):
    model_config = ConfigDict(strict=True)


def _plain(value: str) -> str:
    if not value.isprintable():
        raise ValueError("has unprintable characters in it")
    return value


Text = Annotated[str, Field(min_length=1, max_length=512), AfterValidator(_plain)]
PageSize = Annotated[int, Field(ge=1, le=MOST_ON_A_PAGE)]


class Paged(Asked):
    """Any list."""

    limit: PageSize = 100


_Model = TypeVar("_Model", bound=BaseModel)


def parameters(request: Request, model: type[_Model]) -> _Model:
    """The URL's parameters. Raises `Answered`."""
    items = request.query_params.multi_items()
    given: dict[str, Any] = dict(items)
    if len(given) != len(items):
        twice = next(name for name in given if len(request.query_params.getlist(name)) > 1)
        message = f"`{twice[:64]}` is given more than once."
        raise Answered(400, "invalid_parameter", message, param=twice[:64])
    try:
        return model.model_validate(given)
    except ValidationError as error:
        raise _wrong(error, "invalid_parameter") from None


async def body(request: Request, model: type[_Model], *, optional: bool = False) -> _Model:
    """The request's JSON; `optional`: without a body, `model` as it is by default. Raises `Answered`."""
    if optional and request.headers.get("content-type") is None:
        await no_body(request)
        return model()
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json":
        raise Answered(415, "invalid_body", "The body has to be JSON: `content-type: application/json`.")
    try:
        return model.model_validate_json(await _whole(request))
    except ValidationError as error:
        raise _wrong(error, "invalid_body") from None


async def no_body(request: Request) -> None:
    """The request has no body, or an empty one. Raises `Answered`."""
    if (await _whole(request)).strip() not in (b"", b"{}"):
        raise Answered(400, "invalid_body", "This takes no body.")


async def _whole(request: Request) -> bytes:
    parts: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for part in request.stream():
                size += len(part)
                if size > MOST_BODY_BYTES:
                    message = f"The body is larger than the {MOST_BODY_BYTES} bytes that are taken."
                    raise Answered(413, "request_too_large", message)
                parts.append(part)
    except TimeoutError:
        raise Answered(408, "body_too_slow", "The body did not come in time.") from None
    except ClientDisconnect:
        raise Answered(400, "invalid_body", "The body ended too soon.") from None
    return b"".join(parts)


def _wrong(error: ValidationError, code: str) -> Answered:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(step) for step in first["loc"])[:128]
    message = first["msg"].removeprefix("Value error, ")
    if first["type"] == "extra_forbidden":
        message = "is not known here"
    return Answered(400, code, f"`{place}`: {message}." if place else f"{message}.", param=place or None)
