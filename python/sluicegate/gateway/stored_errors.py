"""Errors about stored and background responses, in OpenAI's words where it has some."""

from sluicegate.gateway.errors import ErrorReply, error_reply


def response_not_found(id: str) -> ErrorReply:
    return error_reply(404, f"Response with id '{id[:256]}' not found.", code="response_not_found")


def previous_response_not_found(id: str) -> ErrorReply:
    return error_reply(
        400,
        f"Previous response with id '{id[:256]}' not found.",
        code="previous_response_not_found",
        param="previous_response_id",
    )


def previous_response_not_finished(id: str, status: str) -> ErrorReply:
    return error_reply(
        400,
        f"Previous response with id '{id[:256]}' is {status}: it can be continued when it has ended.",
        code="previous_response_not_finished",
        param="previous_response_id",
    )


def conversation_too_long(id: str) -> ErrorReply:
    return error_reply(
        400,
        f"The conversation up to the response with id '{id[:256]}' is too large to be continued.",
        code="invalid_value",
        param="previous_response_id",
    )


def too_many_references(limit: int) -> ErrorReply:
    return error_reply(
        400, f"`input` refers to more than {limit} items.", code="invalid_value", param="input"
    )


def references_too_large() -> ErrorReply:
    return error_reply(
        400,
        "The responses that have the items that `input` refers to are too large to be looked through.",
        code="invalid_value",
        param="input",
    )


def item_not_found(id: str) -> ErrorReply:
    return error_reply(404, f"Item with id '{id[:256]}' not found.", code="item_not_found", param="input")


def unstorable(param: str) -> ErrorReply:
    return error_reply(
        400,
        f"'{param}' is not text that can be stored: it has half of a surrogate pair, or NUL.",
        code="invalid_value",
        param=param,
    )


def not_stored() -> ErrorReply:
    return error_reply(
        400, "The store of responses does not take what is in this request.", code="not_storable"
    )


def background_needs_store() -> ErrorReply:
    return error_reply(
        400,
        "A background response is stored: `store` cannot be false with `background`.",
        code="invalid_value",
        param="background",
    )


def background_not_here() -> ErrorReply:
    return error_reply(
        400,
        "This gateway keeps no responses, and so runs none in the background.",
        code="unsupported_value",
        param="background",
    )


def not_cancellable() -> ErrorReply:
    return error_reply(
        400,
        "Cannot cancel a synchronous response: only those with `background` can be cancelled.",
        code="not_cancellable",
    )


def queue_full() -> ErrorReply:
    return error_reply(
        429,
        "Too many background responses are waiting.",
        type="rate_limit_error",
        code="queue_full",
        headers=((b"retry-after", b"10"),),
    )


def store_unavailable() -> ErrorReply:
    return error_reply(
        503,
        "The store of responses is not available.",
        type="server_error",
        code="store_unavailable",
        headers=((b"retry-after", b"5"),),
    )


def store_busy() -> ErrorReply:
    return error_reply(
        503,
        "The store of responses is slower than what is to be kept: nothing new is taken on.",
        type="server_error",
        code="store_busy",
        headers=((b"retry-after", b"5"),),
    )


def loading_busy() -> ErrorReply:
    return error_reply(
        503,
        "As much of stored responses is loaded as may be, by this caller or by all: try again soon.",
        type="server_error",
        code="loading_busy",
        headers=((b"retry-after", b"5"),),
    )


def bad_parameter(name: str, wanted: str) -> ErrorReply:
    return error_reply(400, f"`{name}` must be {wanted}.", code="invalid_value", param=name)
