"""What the engines are told of the configuration that is served, and then do by themselves."""

from sluicegate._core import Front
from sluicegate.gateway import errors
from sluicegate.gateway.endpoints import TIMEOUT_HEADER
from sluicegate.gateway.errors import ErrorReply
from sluicegate.gateway.forms import in_form
from sluicegate.gateway.rights import CREDENTIALS, MISSING_KEY
from sluicegate.gateway.state import Serving

_Whole = tuple[int, list[tuple[bytes, bytes]], bytes]


def tell_engines(front: Front, serving: Serving) -> None:
    """Tell the engines who may call, where, and what policies want to know."""
    missing, unknown = errors.refused(MISSING_KEY), errors.refused(serving.admission.rights.unknown_key)
    front.callers(serving.admission.digests, _in_forms(missing), _in_forms(unknown))
    config, limiter = serving.config, serving.admission.limiter
    front.passthrough(
        [(path.name, path.path, path.taken, path.model, path.upstream) for path in config.passthrough]
    )
    # The application sees of a request's head what is named here; background responses are taken on there.
    shown = {*config.shown_headers, TIMEOUT_HEADER}
    if limiter.user_header is not None:
        shown.add(limiter.user_header)
    if serving.admission.rights.tells_credentials_apart:
        shown.update(CREDENTIALS)
    front.facts(
        headers=sorted(shown),
        affinity=config.wants_affinity,
        affinity_header=config.routing.affinity_header,
        input_tokens=limiter.wants_input or config.ledger is not None,
    )


def _in_forms(reply: ErrorReply) -> tuple[_Whole, _Whole]:
    # The engines add the request's id.
    anthropic = in_form(reply, "anthropic", None)
    return _whole(reply), _whole(anthropic)


def _whole(reply: ErrorReply) -> _Whole:
    return reply.status, reply.headers, reply.body
