"""What each error code of the gateway means, what usually causes it, and what to do: data, for `explain`.

A code is what stands in `error.code` of a reply, in its header `x-sluicegate-error`, and in the `code` and
`fault` of log lines. Codes that an upstream made up are its own, and are not here.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Entry(NamedTuple):
    """One code. `statuses`: the HTTP statuses it comes with; empty: it comes inside of a stream only."""

    statuses: str
    meaning: str
    causes: tuple[str, ...]
    remedies: tuple[str, ...]


_LOOK = "Look at the request's line in the log: `upstream`, `tries` and `fault` say where it failed."

CATALOGUE: Mapping[str, Entry] = {
    # === who asks, and for what ===
    "invalid_api_key": Entry(
        "401",
        "The request has no key, or none that is known here.",
        (
            "The client sends no `Authorization: Bearer KEY`.",
            "The client sends the upstream's key in place of one of the gateway's.",
            "The key was changed and the configuration reloaded, or it was revoked.",
        ),
        (
            "Give the client a key that stands in `keys`, or one that `sluicegate keys create` makes.",
            "`access: open` serves anyone, without keys.",
        ),
    ),
    "expired_api_key": Entry(
        "401",
        "The key was valid until the time in its `expires`.",
        ("The key's time is over.",),
        ("Give the client a new key, or set a later `expires`.",),
    ),
    "revoked_api_key": Entry(
        "of a background response",
        "The key that the response was asked for with was revoked before it ran.",
        ("An operator has revoked the key. What had not begun by then is not done.",),
        ("Ask again with another key.",),
    ),
    "removed_api_key": Entry(
        "of a background response",
        "The key that the response was asked for with, or its caller, is not in the configuration any more.",
        (
            "The key, or the caller, was taken out, and the configuration reloaded.",
            "The key was replaced by another one in the file. The file does not say that one goes on for "
            "the other.",
        ),
        (
            "Ask again with another key.",
            "Keep an old key beside its successor until the queue is empty, or use `sluicegate keys rotate`.",
        ),
    ),
    "caller_disabled": Entry(
        "403",
        "The caller of this key is `disabled`.",
        (
            "An operator has switched the caller off.",
            "It has limits, or a team, that the configuration lacks: `limits_missing` in the log.",
        ),
        (
            "Take `disabled` out of its entry in `callers`, or run `sluicegate callers enable`.",
            "Bring the limits or the team back, or give the caller others.",
        ),
    ),
    "model_not_allowed": Entry(
        "403",
        "There is such a model, and this key may not use it.",
        ("`models` of the key, or of its caller, does not name the model.",),
        ("Add the model, or the start of its name with a `*`.",),
    ),
    "endpoint_not_allowed": Entry(
        "403",
        "This key may not call this endpoint.",
        ("`endpoints` of the key, or of its caller, does not name it.",),
        ("Add the endpoint: its name is `endpoint` of the log line.",),
    ),
    "model_unpriced": Entry(
        "403",
        "The price of the model is not known, and the caller's limits refuse such models.",
        ("The limits say `unpriced: refuse`, and neither `prices` nor genai-prices knows the model.",),
        ("Give the model a price in `prices`, or say `unpriced: allow`.",),
    ),
    "limit_exceeded": Entry(
        "429",
        "A limit of this gateway (requests, tokens or requests under way) is reached; the message names it.",
        (
            "The caller, its key, its team, or the user sends more than its limits let pass.",
            "The request alone is larger than a limit of tokens: then no time helps, and "
            "`x-should-retry: false` says so.",
        ),
        ("Wait for as long as `retry-after` says.", "Raise the limit in `limits`."),
    ),
    "budget_exceeded": Entry(
        "429, 402 for clients of the Messages API",
        "A budget of this gateway is used up; the message names it and says when it begins anew.",
        ("What the caller's requests cost since the window began has reached the limit of `cost`.",),
        ("Wait for the next window, or raise `cost` in `limits`.",),
    ),
    "missing_model": Entry(
        "400",
        "The request names no model.",
        ("The member `model` is missing or empty.",),
        ("Name one of the models that `GET /v1/models` lists.",),
    ),
    "model_not_found": Entry(
        "404",
        "No such model is served here.",
        (
            "The name differs from what `GET /v1/models` lists.",
            "An upstream with `discover` has not answered for longer than `stale_after`.",
            "The upstream lists the model under another name, or `exclude` takes it out.",
        ),
        (
            "Compare the name with `GET /v1/models`.",
            "`sluicegate check --connect` shows which upstreams answer, and with which models.",
        ),
    ),
    "invalid_body": Entry(
        "400",
        "The request's body is not JSON, or a member that the gateway reads has a type it cannot have; or it "
        "is no form, where the endpoint takes forms, or one that could be read in two ways.",
        ("The message says what is wrong, and of JSON at which byte.",),
        ("Send one JSON object in UTF-8, or multipart/form-data with one `model`.",),
    ),
    "invalid_value": Entry(
        "400",
        "A parameter has a value that it cannot have; `error.param` names it.",
        ("`background: true` together with `store: false`.", "A cursor or a limit that is no such thing."),
        ("The message says what the parameter may be.",),
    ),
    "unsupported_value": Entry(
        "400",
        "A background response is asked for where there can be none.",
        (
            "`responses.store` is false, and so nothing is kept.",
            "The model takes each client's own credentials (`forward_authorization`), which are not kept.",
        ),
        ("Ask without `background`.", "Turn the store on, or give the upstream an `api_key`."),
    ),
    "tokens_not_counted": Entry(
        "404",
        "Nobody counts the input tokens of this model: clients then estimate them.",
        (
            "None of the model's upstreams has the Messages API, nor `messages.count_tokens: estimate`.",
            "The upstream has the Messages API, but not `/messages/count_tokens`.",
            "`messages.count_tokens: off` is set.",
        ),
        ("Say `messages.count_tokens: estimate` if a client needs a number, though a rough one.",),
    ),
    "unknown_url": Entry(
        "404",
        "There is nothing at this path.",
        ("The client's base URL lacks `/v1`, or has it twice.", "The endpoint is not served here."),
        ("Give the client `http://HOST:PORT/v1` as its base URL.",),
    ),
    "method_not_allowed": Entry(
        "405",
        "The path is right, the method is not.",
        ("A GET of an endpoint that takes POST.",),
        ("The header `allow` of the reply lists the methods.",),
    ),
    "metrics_not_public": Entry(
        "403",
        "`/metrics` names models, upstreams and cost, and is not shown where other machines can connect.",
        (
            "`server.host` is no loopback address, and `server.metrics` does not say `public`.",
            "There is `admin`, whose listener has them.",
        ),
        (
            "Ask the admin API's listener, with a token.",
            "Say `server: {metrics: public}` where whoever can connect may read them, and restart.",
        ),
    ),
    # === the request as HTTP ===
    "request_too_large": Entry(
        "413",
        "The body is larger than `server.max_body_bytes`.",
        ("Images or documents inside of the request.",),
        ("Send less, or raise `server.max_body_bytes` and restart.",),
    ),
    "malformed_request": Entry(
        "400",
        "The request breaks HTTP's rules, or ended before its body was whole.",
        ("The client left while it was sending.", "Two lengths, or a length and a transfer coding."),
        ("Look at the client, and at proxies between it and the gateway.",),
    ),
    "url_too_long": Entry(
        "414",
        "The URL is longer than `server.bounds.url_bytes`.",
        ("A prompt in the URL.",),
        ("Put it into the body.",),
    ),
    "headers_too_large": Entry(
        "431",
        "The headers are more, or larger, than `server.bounds` allows.",
        ("Large cookies of other services on the same host.",),
        ("Send fewer, or raise `server.bounds.head_bytes` or `server.bounds.headers`.",),
    ),
    "not_implemented": Entry(
        "501",
        "The request uses a part of HTTP that is not for servers like this one.",
        ("CONNECT, or a transfer coding other than `chunked`.",),
        ("Take the gateway out of the client's proxy settings: it is a base URL.",),
    ),
    "request_timeout": Entry(
        "408",
        "The client stopped sending its body.",
        ("A network that lost the client.", "A client that waits for something between two parts."),
        ("Send the body at once, or raise `server.bounds.body_pause_seconds`.",),
    ),
    # === the gateway's own state ===
    "overloaded": Entry(
        "503",
        "There are as many requests under way as `server.bounds.requests` allows, or their bodies take as "
        "much memory as `server.bounds.all_bodies_bytes` allows.",
        ("More clients than this machine is sized for.", "Upstreams that have become slow."),
        ("Wait for the seconds of `retry-after`.", "Raise the bound, or add a machine."),
    ),
    "all_busy": Entry(
        "503",
        "Every deployment of the model has as many streams as its `max_streams` allows.",
        ("More clients at once than the servers are sized for.", "Streams that take long to end."),
        ("Wait for the seconds of `retry-after`.", "Add a deployment, or one in a higher tier."),
    ),
    "all_taken_off": Entry(
        "503",
        "Every deployment of the model has been taken off by an operator.",
        ("Maintenance: somebody has called `eject` of the admin API for each.",),
        ("Put one back with `restore` of the admin API; its audit says who took it off.",),
    ),
    "all_resting": Entry(
        "429 or 503",
        "Every deployment of the model has asked to be left alone for a while, with 429 or with 503.",
        ("The account's limits at the upstream are used up.", "Servers that are too busy."),
        (
            "Wait for the seconds of `retry-after`. Where they are more than two minutes, "
            "`x-should-retry: false` says that no SDK is to do so by itself.",
            "Add a deployment, or one in a higher tier.",
        ),
    ),
    "limits_unavailable": Entry(
        "503",
        "The server of `storage.counters` does not answer, and `storage.counters_lost` is `refuse`.",
        ("Redis is down, or too slow.", "The network between it and the gateway."),
        (
            "Look for `counters_lost` in the log, which has the reason.",
            "`storage.counters_lost: local` lets each gateway keep to its share of the limits.",
        ),
    ),
    "ledger_full": Entry(
        "503",
        "The ledger's journal has no room for another request, and `ledger.when_full` is `refuse`.",
        (
            "The ledger's database has not been there for a long time.",
            "The disk of `storage.directory` is full.",
        ),
        (
            "Look for `ledger_failed` and `ledger_full` in the log.",
            "Make room on the disk, or raise `ledger.journal_bytes`.",
            "`ledger.when_full: drop` serves such requests without a row.",
        ),
    ),
    "ledger_not_synced": Entry(
        "503",
        "`ledger.sync` is `always`, and the request's entry in the ledger cannot be written to the disk.",
        ("The disk of `storage.directory` is broken, or is a file system that refuses to be written to.",),
        (
            "Look for `journal_failed` in the log, which has the reason.",
            "Look at the system's own log (`dmesg`), and move `storage.directory` to another disk.",
        ),
    ),
    "keys_unavailable": Entry(
        "503",
        "The key is not in the configuration, and the database of keys could not be read so far.",
        ("PostgreSQL does not answer, and there is no copy of its keys in `storage.directory`.",),
        ("Look for `keys_lost` in the log.", "Try again: the database is asked each second."),
    ),
    "undecided": Entry(
        "503",
        "The gateway did not decide within 15 seconds where the request should go.",
        ("The machine has no processor time left.", "A price policy of your own that blocks."),
        ("Look at the machine's load.", "See that code of your own returns at once."),
    ),
    "application_unavailable": Entry(
        "503",
        "The part that serves models, stored responses and metrics does not answer.",
        ("The process is ending.", "The machine has run out of open files."),
        ("Look for `died` in the log.", "Raise the limit of open files."),
    ),
    "shutdown": Entry(
        "503",
        "The gateway is stopping, and takes nothing new.",
        ("It was told to stop, or is being replaced.",),
        ("Try again: another process may answer by then.",),
    ),
    "internal": Entry(
        "500",
        "The gateway itself failed.",
        ("A fault in the gateway, or in code of your own that it calls.",),
        ("Look for `unhandled` in the log, and report it with that line.",),
    ),
    # === stored and background responses ===
    "response_not_found": Entry(
        "404",
        "No response with this id is kept for this key.",
        (
            "It was made with another key, with `store: false`, or by an upstream itself.",
            "It was deleted, or is older than `responses.retention_seconds`.",
        ),
        ("Ask with the key that made it.", "Raise `responses.retention_seconds`."),
    ),
    "previous_response_not_found": Entry(
        "400",
        "The response that `previous_response_id` names is not kept for this key.",
        ("As for `response_not_found`.",),
        ("Send the conversation itself as `input`.",),
    ),
    "previous_response_not_finished": Entry(
        "400",
        "The response that `previous_response_id` names is still under way, or did not end well.",
        ("A background response that is still running.",),
        ("Wait until its status is `completed` or `incomplete`.",),
    ),
    "item_not_found": Entry(
        "404",
        "`input` refers to an item that is not kept for this key.",
        ("An `item_reference` to an item of a response that has been deleted.",),
        ("Send the item itself.",),
    ),
    "not_cancellable": Entry(
        "400",
        "Only background responses can be cancelled.",
        ("A response that was not made with `background: true`.",),
        ("Close the connection to end a response that is not in the background.",),
    ),
    "queue_full": Entry(
        "429",
        "As many background responses are waiting as `responses.max_queued` allows.",
        ("Upstreams that are slower than what is asked of them.",),
        ("Wait for the seconds of `retry-after`.", "Raise `responses.concurrency` if upstreams can take it."),
    ),
    "not_storable": Entry(
        "400",
        "The store of responses does not take what is in this request.",
        ("Text that is no text: half of a surrogate pair, or the character NUL.",),
        ("Take it out of the request, or ask with `store: false`.",),
    ),
    "store_busy": Entry(
        "503",
        "The store of responses is slower than what is to be kept, so nothing new is taken on.",
        ("A slow disk or database.", "More background responses than it is sized for."),
        ("Wait for the seconds of `retry-after`.", "Raise `responses.max_waiting_bytes` for short bursts."),
    ),
    "loading_busy": Entry(
        "503",
        "As much of stored responses is loaded as may be, and no room for more was given back in time.",
        ("Many requests continue, or list, conversations of megabytes at once.",),
        ("Wait for the seconds of `retry-after`.", "Raise `responses.max_loaded_bytes`."),
    ),
    "store_unavailable": Entry(
        "503",
        "The store of responses cannot be read or written.",
        ("The disk is full.", "The database does not answer.", "The file belongs to another user."),
        ("Look for the store's failures in the log.", "`sluicegate check` looks at the file's place."),
    ),
    # === upstreams: faults of attempts ===
    "upstream_authentication": Entry(
        "502",
        "The upstream refused the gateway's own key (401, 402 or 403).",
        ("The `api_key` is wrong or has expired.", "The account has no credit."),
        ("Set the upstream's `api_key`, and try with `sluicegate check --connect`.",),
    ),
    "connect": Entry(
        "502",
        "There was no connection to the upstream.",
        ("It is not running, or listens elsewhere.", "Its name cannot be resolved.", "TLS failed."),
        ("`sluicegate check --connect` asks each upstream.", "See that `base_url` has the right port."),
    ),
    "connect_timeout": Entry(
        "504",
        "The upstream did not accept a connection within `deadlines.connect`.",
        ("A firewall drops the packets.", "The machine is gone."),
        ("Try `base_url` with curl from the gateway's machine.",),
    ),
    "reset": Entry(
        "502",
        "The upstream cut the connection.",
        ("It crashed, or was restarted.", "A balancer closed it as idle."),
        ("Look at the upstream's own log.", "Lower `pool_idle_seconds` below the upstream's keep-alive."),
    ),
    "protocol": Entry(
        "502",
        "The upstream did not answer in HTTP, or with neither JSON nor an event stream.",
        (
            "`base_url` lacks `/v1`, or names another path: the reply is a page.",
            "`https` where the server speaks `http`, or the other way round.",
            "`http2` where it has none.",
        ),
        ("Compare `base_url` and `http2` with the server's settings; `sluicegate check --connect` asks it.",),
    ),
    "first_byte_timeout": Entry(
        "504",
        "The upstream did not begin to answer within `deadlines.first_byte`.",
        ("A long queue in front of the model.", "A very long prompt."),
        ("Raise the deadline, or add an upstream as the next route.",),
    ),
    "first_token_timeout": Entry(
        "504",
        "The reply began, and no token came within `deadlines.first_token`.",
        ("The model is loading.", "A very long prompt."),
        ("Raise the deadline, or add an upstream as the next route.",),
    ),
    "between_tokens_timeout": Entry(
        "504",
        "A stream stood still for longer than `deadlines.between_tokens`.",
        ("The upstream hangs, or has too many streams.",),
        ("Look at the upstream.", "Raise the deadline for models that pause."),
    ),
    "total_timeout": Entry(
        "504",
        "The request took longer than `deadlines.total`.",
        ("A very long reply.",),
        ("Raise the deadline, or bound the reply with `max_tokens`.",),
    ),
    "client_timeout": Entry(
        "504",
        "The reply was not complete within the seconds that the client's `x-sluicegate-timeout` says.",
        (
            "The client waits for less time than the reply takes.",
            "A background response waited too long in the queue.",
        ),
        ("Send a larger number, or none: `deadlines.total` holds then.",),
    ),
    "status": Entry(
        "the upstream's",
        "The upstream answered with an error status; what it said is passed on.",
        ("The message is the upstream's own.",),
        (_LOOK,),
    ),
    "empty": Entry(
        "502",
        "The upstream's reply ended without any output.",
        ("The prompt is longer than the context, with servers that do not say so.", "It crashed."),
        ("Look at the upstream's own log.",),
    ),
    "truncated": Entry(
        "502",
        "The upstream's reply ended in the middle.",
        ("It crashed, or ran out of memory.",),
        ("Look at the upstream's own log.", "Clients that stream have seen a part: they may ask again."),
    ),
    "in_band_error": Entry(
        "502",
        "The upstream reported an error inside of its reply, under status 200.",
        ("The model's engine failed after the reply had begun.",),
        (_LOOK, "Look at the upstream's own log."),
    ),
    "too_large": Entry(
        "502",
        "The upstream sent an event or a reply that is larger than the gateway holds.",
        ("Images or audio in the reply.",),
        ("Raise `server.max_event_bytes` or `server.max_reply_bytes`.",),
    ),
    "decode": Entry(
        "502",
        "The upstream's reply is not what its content type says.",
        ("A page of a balancer in place of JSON.", "Broken compression."),
        ("Ask the upstream itself with curl, and compare.",),
    ),
    "untranslatable": Entry(
        "400",
        "The request asks for something that the upstream's API cannot express; `error.param` names it.",
        ("A hosted tool, or an input of a kind that Chat Completions does not have.",),
        ("Leave it out, or use a model whose upstream has `api: responses` or `both`.",),
    ),
}
"""By code."""
