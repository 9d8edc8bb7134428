"""Keys of the database beside those of the configuration: who they are, and what they may."""

import hashlib
from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.holding import held
from sluicegate._core import Estimates, Excess, Lease
from sluicegate.admission import Caller, Counters, Keyring, Limiter
from sluicegate.config import Config, load_data
from sluicegate.gateway.admission import KEYS_UNAVAILABLE, UNKNOWN_KEY, Admission, Refusal
from sluicegate.gateway.notices import Notices
from sluicegate.gateway.prices import Prices
from sluicegate.identity import NOTHING, CallerFields, KeyFields, KnownCaller, KnownKey, Snapshot, Terms
from sluicegate.pricing import policy_for
from sluicegate.routing import Model, ModelTable
from sluicegate.telemetry import Log

LAB = "cal_0123456789abcdef"


def configured(**more: Any) -> Config:
    data: dict[str, Any] = {
        "upstreams": {"local": {"base_url": "http://127.0.0.1:1/v1"}},
        "models": {"m": "local", "llama-8b": "local", "llama-70b": "local", "openai/*": "local/*"},
        "aliases": {"gpt-4o": "llama-70b", "llama-best": "m"},
        "limits": {"standard": {"requests": "2/day"}, "shared": {"requests": "3/day"}},
        "teams": {"blue": {"limits": "shared"}},
        "callers": [{"name": "search", "id": "s-1", "models": ["llama-*"], "limits": "standard"}],
        "access": "keys",
    }
    return load_data(data | more, {})


def digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()


def terms(said: CallerFields | KeyFields, team: str | None = None) -> Terms:
    endpoints = None if said.endpoints is None else frozenset(said.endpoints)
    return Terms(said.limits, said.models, endpoints, team)


def stored(*keys: KnownKey, **fields: Any) -> Snapshot:
    said = CallerFields.model_validate({"name": "lab", **fields})
    caller = KnownCaller(LAB, said.name, said.disabled, terms(said, said.team))
    counts = Counter([caller.terms, *(key.terms for key in keys)])
    return Snapshot(
        "here", 1, {LAB: caller}, {key.id: key for key in keys}, {key.digest: key for key in keys}, counts
    )


def key(id: str, caller: str = LAB, counted_as: str | None = None, **fields: Any) -> KnownKey:
    said = KeyFields.model_validate(fields)
    expires = None if said.expires is None else said.expires.timestamp()
    return KnownKey(id, caller, digest(id), expires, counted_as or id, terms(said))


def admission(
    snapshot: Snapshot | None,
    counters: Counters | None = None,
    now: float = 1000.0,
    config: Config | None = None,
    **more: Any,
) -> Admission:
    config = config or configured(**more)
    ring = Keyring(config, snapshot)
    limiter = Limiter(config, counters or Counters(UTC), Estimates(), ring.own_limits)
    prices = Prices(policy_for(config), "none", Notices(Log(level="error")))
    return Admission(ring, ModelTable(config), limiter, prices, lambda: now)


def identified(found: Caller | Refusal) -> Caller:
    assert isinstance(found, Caller), found
    return found


def test_a_key_of_the_database_is_known_by_its_callers_id() -> None:
    snapshot = stored(key("one"), key("two", "s-1"), team="blue")
    here = admission(snapshot)
    one = identified(here.identify(digest("one"), True))
    assert (one.name, one.owner, one.key_id, one.team) == ("lab", f"id:{LAB}", "one", "blue")
    two = identified(here.identify(digest("two"), True))
    assert (two.name, two.owner, two.key_id) == ("search", "id:s-1", "two")
    assert here.digests == digest("one") + digest("two")
    assert here.identify(digest("three"), True) is UNKNOWN_KEY
    assert here.identify(None, False) == Refusal("missing_key")


def test_keys_of_the_configuration_go_on_beside_them() -> None:
    keys = [{"name": "search", "key": "sk-1"}, {"name": "alone", "key": "sk-2"}]
    here = admission(stored(key("one"), key("two", "s-1")), keys=keys, access=None)
    names = {text: identified(here.identify(digest(text), True)).owner for text in ("sk-1", "one", "two")}
    assert names == {"sk-1": "id:s-1", "one": f"id:{LAB}", "two": "id:s-1"}
    assert here.owners.keys() == {"search", "alone"}, "a name of the database stands for no responses of old"


def test_a_gateway_that_is_open_asks_for_no_key_whatever_the_database_has() -> None:
    for snapshot in (stored(key("one")), None):
        here = admission(snapshot, access="open")
        assert here.digests is None
        assert here.identify(None, False) == Caller(None)


def test_without_any_key_nobody_may_call_where_keys_are_needed() -> None:
    here = admission(NOTHING)
    assert here.digests == b""
    assert here.identify(digest("one"), True) is UNKNOWN_KEY


def test_a_key_that_may_be_good_is_not_called_wrong() -> None:
    here = admission(None, keys=[{"name": "search", "key": "sk-1"}])
    assert identified(here.identify(digest("sk-1"), True)).name == "search"
    assert here.identify(digest("one"), True) is KEYS_UNAVAILABLE
    assert here.identify(None, False) == Refusal("missing_key")


def test_a_key_of_a_caller_who_is_gone_from_the_configuration_is_unknown() -> None:
    assert admission(stored(key("one", "s-2"))).identify(digest("one"), True) is UNKNOWN_KEY


def test_a_key_ends_at_its_time() -> None:
    ends = datetime.fromtimestamp(2000, UTC)
    snapshot = stored(key("one", expires=ends))
    assert identified(admission(snapshot, now=1999.9).identify(digest("one"), True))
    assert admission(snapshot, now=2000.0).identify(digest("one"), True) == Refusal("expired_key")


def test_a_disabled_caller_may_not_call_with_any_key() -> None:
    here = admission(stored(key("one"), key("two"), disabled=True))
    assert {here.identify(digest(text), True) for text in ("one", "two")} == {Refusal("caller_disabled")}


@pytest.mark.parametrize(
    ("name", "of_caller", "of_key", "allowed"),
    [
        ("llama-8b", ["llama-*"], None, True),
        ("m", ["llama-*"], None, False),
        ("m", ["llama-*"], ["m"], False),
        ("llama-8b", ["llama-*"], ["llama-8b"], True),
        ("llama-70b", ["llama-*"], ["llama-8b"], False),
        ("llama-8b", None, ["llama-70b"], False),
        # What counts is the model that an alias stands for, and not the name that was asked for.
        ("gpt-4o", ["llama-*"], None, True),
        ("gpt-4o", ["gpt-4o"], None, False),
        ("llama-best", ["llama-*"], None, False),
        ("llama-best", ["m"], None, True),
        ("openai/o3", ["openai/o3"], None, True),
        ("openai/o4", ["openai/o3"], None, False),
        ("openai/o4", ["openai/*"], ["openai/o4"], True),
        ("m", [], None, False),
        ("m", None, [], False),
    ],
)
def test_a_key_narrows_what_its_caller_may_use(
    name: str, of_caller: list[str] | None, of_key: list[str] | None, allowed: bool
) -> None:
    here = admission(stored(key("one", models=of_key), models=of_caller))
    found = here.model(identified(here.identify(digest("one"), True)), name)
    assert isinstance(found, Model) if allowed else found == Refusal("model_not_allowed", name)


def test_a_key_narrows_what_its_caller_may_call() -> None:
    snapshot = stored(key("one", endpoints=["chat_completions", "responses"]), endpoints=["chat_completions"])
    here = admission(snapshot)
    assert identified(here.identify(digest("one"), True, "chat_completions"))
    for endpoint in ("responses", "embeddings"):
        refused = here.identify(digest("one"), True, endpoint)
        assert refused == Refusal("endpoint_not_allowed", endpoint)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [({"limits": "gold"}, "limits gold"), ({"team": "red"}, "team red")],
)
def test_who_has_limits_that_are_not_there_may_not_call(fields: dict[str, Any], missing: str) -> None:
    here = admission(stored(key("one"), key("two", "s-1"), **fields))
    assert here.missing == {missing}
    assert here.identify(digest("one"), True) == Refusal("caller_disabled")
    assert identified(here.identify(digest("two"), True))


def test_a_key_whose_limits_are_not_there_ends_alone() -> None:
    here = admission(stored(key("one", limits="gold"), key("two")))
    assert here.identify(digest("one"), True) == Refusal("caller_disabled")
    assert identified(here.identify(digest("two"), True))


# === limits ===


def asked(here: Admission, caller: Caller) -> Lease | Excess:
    return held(here.limiter, caller, 10, 10)


def admitted(here: Admission, text: str) -> bool:
    found = asked(here, identified(here.identify(digest(text), True)))
    if isinstance(found, Lease):
        found.ended(10, 10, 0, failed=False)
    return not isinstance(found, Excess)


def test_a_named_set_its_own_and_the_teams_limits_hold() -> None:
    named = admission(stored(key("one"), limits="standard"))
    assert [admitted(named, "one") for _ in range(3)] == [True, True, False]
    own = admission(stored(key("one"), limits={"requests": "1/day"}))
    assert [admitted(own, "one") for _ in range(2)] == [True, False]
    team = admission(stored(key("one"), team="blue"))
    assert [admitted(team, "one") for _ in range(4)] == [True, True, True, False]


def test_a_keys_own_limits_are_the_keys_alone() -> None:
    here = admission(stored(key("one", limits={"requests": "1/day"}), key("two"), limits="standard"))
    assert [admitted(here, "one") for _ in range(2)] == [True, False]
    assert [admitted(here, "two") for _ in range(2)] == [True, False]


def test_a_key_that_replaces_another_goes_on_with_what_that_has_used() -> None:
    limits = {"requests": "3/day"}
    new = key("two", counted_as="one", limits=limits)
    here = admission(stored(key("one", limits=limits), new))
    assert [admitted(here, text) for text in ("one", "two", "one", "two")] == [True, True, True, False]
    assert identified(here.identify(digest("two"), True)).key_id == "two"


def test_whoever_has_limits_is_found_once_for_all_keys_that_add_none() -> None:
    keys = [{"name": "search", "key": "sk-1"}, {"name": "alone", "key": "sk-2", "limits": "standard"}]
    own = key("own", limits={"requests": "1/day"})
    others = [key(str(number)) for number in range(10)]
    ring = Keyring(configured(keys=keys), stored(own, *others, key("two", "s-1"), limits="standard"))
    assert sorted((caller.name or "", len(caller.limits)) for caller in ring.callers) == [
        ("alone", 1), ("lab", 1), ("lab", 2), ("search", 1),
    ]  # fmt: skip
    for name in (LAB, "lab", f"id:{LAB}"):
        assert sorted(len(caller.limits) for caller in ring.of_caller(name)) == [1, 2]
    for name in ("s-1", "search"):
        [search] = ring.of_caller(name)
        assert search.owner == "id:s-1"
    assert ring.of_caller("nobody") == []
    assert ring.own_limits == [own.terms.limits]


def test_the_keys_of_the_configuration_stay_beside_others_of_the_database() -> None:
    keys = [{"name": "search", "key": "sk-1"}]
    before = Keyring(configured(keys=keys), stored(key("one")))
    after = before.beside(stored(key("two")))
    assert before.caller(digest("one")) is not None
    assert after.caller(digest("one")) is None
    assert after.caller(digest("two")) is not None
    assert after.caller(digest("sk-1")) is before.caller(digest("sk-1"))
    assert after.digests == digest("sk-1") + digest("two")


def test_keys_of_one_caller_share_its_limits_wherever_they_are_from() -> None:
    keys = [{"name": "search", "key": "sk-1"}]
    here = admission(stored(key("one", "s-1"), key("two")), keys=keys)
    assert [admitted(here, text) for text in ("sk-1", "one", "sk-1", "one", "two")] == [
        True, True, False, False, True,
    ]  # fmt: skip


def test_what_was_used_counts_on_when_limits_change() -> None:
    counters = Counters(UTC)
    before = admission(stored(key("one"), limits="standard"), counters)
    assert admitted(before, "one")
    renamed = stored(key("one"), key("two"), name="labs", limits={"requests": "3/day"})
    after = admission(renamed, counters)
    assert [admitted(after, text) for text in ("two", "one", "two")] == [True, True, False]


def test_a_caller_has_its_limits_also_for_what_is_done_without_a_request() -> None:
    here = admission(stored(limits="standard"))
    caller = here.owner(f"id:{LAB}")
    assert caller.name == "lab"
    for expected in (True, True, False):
        assert isinstance(asked(here, caller), Lease) is expected
    other = here.owner("id:s-1")
    assert isinstance(asked(here, other), Lease)
    assert not here.limiter.limits(here.owner("id:gone"), "m", None)


def test_own_limits_make_the_engines_estimate_inputs() -> None:
    config = configured(limits={}, teams={}, callers=[])
    assert admission(stored(key("one")), config=config).limiter.is_idle
    own = admission(stored(key("one"), limits={"tokens": "1/day"}), config=config)
    assert own.limiter.wants_input
    assert not own.limiter.is_idle
