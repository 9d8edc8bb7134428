"""Keys of the database beside those of the configuration: who they are, and what they may."""

import hashlib
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from harness.holding import held
from sluicegate._core import Estimates, Excess, Lease
from sluicegate.admission import Caller, Counters, Keyring, Limiter, Steps
from sluicegate.config import Config, load_data
from sluicegate.gateway.admission import Admission
from sluicegate.gateway.notices import Notices
from sluicegate.gateway.prices import Prices
from sluicegate.gateway.rights import KEYS_UNAVAILABLE, RUN, UNKNOWN_KEY, Refusal
from sluicegate.identity import (
    NOTHING,
    CallerFields,
    KeyFields,
    KnownCaller,
    KnownKey,
    Snapshot,
    Terms,
    configured_key_id,
)
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


def who(here: Admission, key: bytes | None, action: str = "chat_completions") -> Caller | Refusal:
    return here.rights.authorize(here.rights.by_key(key, key is not None), action)


def identified(found: Caller | Refusal) -> Caller:
    assert isinstance(found, Caller), found
    return found


def test_a_key_of_the_database_is_known_by_its_callers_id() -> None:
    snapshot = stored(key("one"), key("two", "s-1"), team="blue")
    here = admission(snapshot)
    one = identified(who(here, digest("one")))
    assert (one.name, one.owner, one.key_id, one.team) == ("lab", f"id:{LAB}", "one", "blue")
    two = identified(who(here, digest("two")))
    assert (two.name, two.owner, two.key_id) == ("search", "id:s-1", "two")
    assert here.digests == digest("one") + digest("two")
    assert who(here, digest("three")) is UNKNOWN_KEY
    assert who(here, None) == Refusal("missing_key")


def test_keys_of_the_configuration_go_on_beside_them() -> None:
    keys = [{"name": "search", "key": "sk-1"}, {"name": "alone", "key": "sk-2"}]
    here = admission(stored(key("one"), key("two", "s-1")), keys=keys, access=None)
    names = {text: identified(who(here, digest(text))).owner for text in ("sk-1", "one", "two")}
    assert names == {"sk-1": "id:s-1", "one": f"id:{LAB}", "two": "id:s-1"}
    assert here.owners.keys() == {"search", "alone"}, "a name of the database stands for no responses of old"


def test_a_gateway_that_is_open_asks_for_no_key_whatever_the_database_has() -> None:
    for snapshot in (stored(key("one")), None):
        here = admission(snapshot, access="open")
        assert here.digests is None
        assert who(here, None) == Caller(None)


def test_without_any_key_nobody_may_call_where_keys_are_needed() -> None:
    here = admission(NOTHING)
    assert here.digests == b""
    assert who(here, digest("one")) is UNKNOWN_KEY


def test_a_key_that_may_be_good_is_not_called_wrong() -> None:
    here = admission(None, keys=[{"name": "search", "key": "sk-1"}])
    assert identified(who(here, digest("sk-1"))).name == "search"
    assert who(here, digest("one")) is KEYS_UNAVAILABLE
    assert who(here, None) == Refusal("missing_key")


def test_a_key_of_a_caller_who_is_gone_from_the_configuration_is_unknown() -> None:
    assert who(admission(stored(key("one", "s-2"))), digest("one")) is UNKNOWN_KEY


def test_a_key_ends_at_its_time() -> None:
    ends = datetime.fromtimestamp(2000, UTC)
    snapshot = stored(key("one", expires=ends))
    assert identified(who(admission(snapshot, now=1999.9), digest("one")))
    assert who(admission(snapshot, now=2000.0), digest("one")) == Refusal("expired_key")


def test_a_disabled_caller_may_not_call_with_any_key() -> None:
    here = admission(stored(key("one"), key("two"), disabled=True))
    assert {who(here, digest(text)) for text in ("one", "two")} == {Refusal("caller_disabled")}


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
    found = here.rights.model(identified(who(here, digest("one"))), name)
    assert isinstance(found, Model) if allowed else found == Refusal("model_not_allowed", name)


def test_a_key_narrows_what_its_caller_may_call() -> None:
    snapshot = stored(key("one", endpoints=["chat_completions", "responses"]), endpoints=["chat_completions"])
    here = admission(snapshot)
    assert identified(who(here, digest("one"), "chat_completions"))
    for endpoint in ("responses", "embeddings"):
        refused = who(here, digest("one"), endpoint)
        assert refused == Refusal("endpoint_not_allowed", endpoint)


@pytest.mark.parametrize(
    ("fields", "missing"),
    [({"limits": "gold"}, "limits gold"), ({"team": "red"}, "team red")],
)
def test_who_has_limits_that_are_not_there_may_not_call(fields: dict[str, Any], missing: str) -> None:
    here = admission(stored(key("one"), key("two", "s-1"), **fields))
    assert here.missing == {missing}
    assert who(here, digest("one")) == Refusal("caller_disabled")
    assert identified(who(here, digest("two")))


def test_a_key_whose_limits_are_not_there_ends_alone() -> None:
    here = admission(stored(key("one", limits="gold"), key("two")))
    assert who(here, digest("one")) == Refusal("caller_disabled")
    assert identified(who(here, digest("two")))


# === work without a request of its own ===

FILE_KEYS = [{"name": "search", "key": "sk-1"}, {"name": "alone", "key": "sk-2"}]
LAB_OWNER = f"id:{LAB}"
# As the gateway makes the ids of its database's keys.
ONE, TWO = "one000000000", "two000000000"


def holder(here: Admission, owner: str, key_id: str | None) -> tuple[str | None, Caller | Refusal]:
    """Whose name the record has, and whether the work may be done."""
    found = here.rights.by_work(owner, key_id)
    return found.caller.name, here.rights.authorize(found, RUN)


def test_work_is_done_with_the_key_that_it_was_asked_for_with() -> None:
    here = admission(stored(key(ONE, models=["llama-*"]), key(TWO)))
    name, caller = holder(here, LAB_OWNER, ONE)
    assert (name, identified(caller).key_id) == ("lab", ONE)
    assert identified(caller).models == (("llama-*",),)


def test_work_of_a_key_that_is_revoked_or_removed_is_not_done_and_names_its_caller() -> None:
    here = admission(stored(key(TWO)), keys=FILE_KEYS)
    assert holder(here, LAB_OWNER, ONE) == ("lab", Refusal("revoked_key"))
    mark = configured_key_id(digest("sk-gone"))
    assert holder(here, "id:s-1", mark) == ("search", Refusal("removed_key"))
    # A key that was a caller by itself leaves no name, and neither does a caller that is gone.
    assert holder(here, f"key:{mark}", mark) == (None, Refusal("removed_key"))
    assert holder(here, "id:gone", ONE) == (None, Refusal("revoked_key"))
    assert holder(here, "id:gone", None) == (None, Refusal("removed_key"))
    # The key is good, and its caller is another one now.
    assert holder(here, "id:s-1", TWO) == ("search", Refusal("removed_key"))
    no_caller = admission(stored(key(ONE, "s-1")), callers=[], limits={}, teams={})
    assert holder(no_caller, "id:s-1", ONE) == (None, Refusal("removed_key"))


def test_a_key_that_is_a_caller_by_itself_does_its_work() -> None:
    here = admission(NOTHING, keys=FILE_KEYS)
    mark = configured_key_id(digest("sk-2"))
    assert holder(here, f"key:{mark}", mark)[0] == "alone"
    assert identified(holder(here, f"key:{mark}", mark)[1])


def test_work_of_a_replaced_key_goes_on_with_the_one_that_replaces_it_unless_it_is_revoked() -> None:
    old = key(ONE, expires=datetime.fromtimestamp(2000.0, UTC))
    new = key(TWO, counted_as=ONE)
    snapshot = replace(stored(old, new), counted_as={TWO: ONE})
    for now, id in ((1999.0, ONE), (2000.0, TWO)):
        assert identified(holder(admission(snapshot, now=now), LAB_OWNER, ONE)[1]).key_id == id
    late = replace(stored(old, key(TWO, counted_as=ONE, expires=datetime.fromtimestamp(2500.0, UTC))))
    late = replace(late, counted_as={TWO: ONE})
    assert holder(admission(late, now=3000.0), LAB_OWNER, ONE) == ("lab", Refusal("expired_key"))
    revoked = replace(stored(new), counted_as={TWO: ONE})
    assert holder(admission(revoked), LAB_OWNER, ONE) == ("lab", Refusal("revoked_key"))
    alone = admission(stored(old), now=2000.0)
    assert holder(alone, LAB_OWNER, ONE) == ("lab", Refusal("expired_key"))


def test_nothing_is_said_of_a_key_before_the_database_could_be_read() -> None:
    here = admission(None, keys=FILE_KEYS)
    assert holder(here, LAB_OWNER, ONE)[1] is KEYS_UNAVAILABLE
    assert identified(holder(here, "id:s-1", configured_key_id(digest("sk-1")))[1])


def test_work_that_was_asked_for_without_a_key_is_not_done_where_one_is_needed() -> None:
    here = admission(NOTHING, keys=FILE_KEYS)
    assert holder(here, "", None) == (None, Refusal("missing_key"))
    anyone = admission(NOTHING, config=configured(access="open", callers=[], limits={}, teams={}))
    assert holder(anyone, "", None) == (None, Caller(None))
    # What a key has asked for is done by anyone, too, where anyone may ask, and stays that key's own.
    mark = configured_key_id(digest("sk-2"))
    assert identified(holder(anyone, f"key:{mark}", mark)[1]).owner == f"key:{mark}"


# === limits ===


def asked(here: Admission, caller: Caller) -> Lease | Excess:
    return held(here.limiter, caller, 10, 10)


def admitted(here: Admission, text: str) -> bool:
    found = asked(here, identified(who(here, digest(text))))
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
    assert identified(who(here, digest("two"))).key_id == "two"


def steps(work: Steps[list[tuple[str, Caller]]]) -> list[tuple[str, Caller]]:
    """What it comes to, with all of its steps."""
    while True:
        try:
            next(work)
        except StopIteration as ended:
            found: list[tuple[str, Caller]] = ended.value
            return found


def test_keys_with_limits_of_their_own_are_found_page_by_page() -> None:
    limits = {"requests": "1/day"}
    keys = [key(f"k{number:04}", limits=limits) for number in range(2500)]
    others = [key(f"x{number:04}", "s-1", limits=limits) for number in range(2500)]
    ring = Keyring(configured(), stored(*reversed(keys), *others, limits="standard"))
    found = steps(ring.of_caller(LAB, most=1000))
    assert [place for place, _ in found[:3]] == [f" id:{LAB}", "k0000", "k0001"]
    seen = [place for place, _ in found]
    while len(page := steps(ring.of_caller(LAB, seen[-1], 1000))) > 1:
        assert len(page) <= 1000
        seen += [place for place, _ in page[1:]]
    assert seen == [f" id:{LAB}", *(each.id for each in keys)]
    # However many keys there are, a step looks at so many.
    assert sum(1 for _ in ring.of_caller(LAB)) >= 5


def test_whoever_has_limits_is_found_once_for_all_keys_that_add_none() -> None:
    keys = [{"name": "search", "key": "sk-1"}, {"name": "alone", "key": "sk-2", "limits": "standard"}]
    own = key("own", limits={"requests": "1/day"})
    others = [key(str(number)) for number in range(10)]
    ring = Keyring(configured(keys=keys), stored(own, *others, key("two", "s-1"), limits="standard"))
    assert sorted((caller.name or "", len(caller.limits)) for caller in ring.callers) == [
        ("alone", 1), ("lab", 1), ("lab", 2), ("search", 1),
    ]  # fmt: skip
    for name in (LAB, "lab", f"id:{LAB}"):
        assert sorted(len(caller.limits) for _, caller in steps(ring.of_caller(name))) == [1, 2]
    for name in ("s-1", "search"):
        [(_, search)] = steps(ring.of_caller(name))
        assert search.owner == "id:s-1"
    assert steps(ring.of_caller("nobody")) == []
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
    caller = here.rights.by_work(f"id:{LAB}", None).caller
    assert caller.name == "lab"
    for expected in (True, True, False):
        assert isinstance(asked(here, caller), Lease) is expected
    other = here.rights.by_work("id:s-1", None).caller
    assert isinstance(asked(here, other), Lease)
    assert not here.limiter.limits(here.rights.by_work("id:gone", None).caller, "m", None)


def test_own_limits_make_the_engines_estimate_inputs() -> None:
    config = configured(limits={}, teams={}, callers=[])
    assert admission(stored(key("one")), config=config).limiter.is_idle
    own = admission(stored(key("one"), limits={"tokens": "1/day"}), config=config)
    assert own.limiter.wants_input
    assert not own.limiter.is_idle
