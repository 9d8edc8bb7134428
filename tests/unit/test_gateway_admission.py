"""Who may call, and what."""

import hashlib
import pickle
from datetime import UTC
from typing import Any

import pytest

from fakes.facts import Facts
from sluicegate._core import Estimates, Lease
from sluicegate.admission import Caller, Counters, Keyring, Limiter, key_digest
from sluicegate.config import Config, load_data
from sluicegate.gateway.admission import Admission
from sluicegate.gateway.errors import refused
from sluicegate.gateway.notices import Notices
from sluicegate.gateway.prices import Prices
from sluicegate.gateway.rights import MISSING_KEY, MISSING_MODEL, UNKNOWN_KEY, Refusal
from sluicegate.pricing import policy_for
from sluicegate.routing import Model, ModelTable
from sluicegate.telemetry import Log

UPSTREAMS = {"local": {"base_url": "http://127.0.0.1:1/v1"}}


def configured(keys: list[dict[str, Any]], **more: Any) -> Config:
    data = {"upstreams": UPSTREAMS, "models": {"m": "local", "llama-8b": "local"}, **more}
    return load_data(data | ({"keys": keys} if keys else {}), {})


KEYS = [{"name": f"client-{n}", "key": f"sk-{n}"} for n in range(3)]
TABLE = ModelTable(configured([]))


def admission(keys: list[dict[str, Any]], now: float = 0.0, **more: Any) -> Admission:
    config = configured(keys, **more)
    limiter = Limiter(config, Counters(UTC), Estimates())
    prices = Prices(policy_for(config), "none", Notices(Log(level="error")))
    return Admission(Keyring(config), ModelTable(config), limiter, prices, lambda: now)


def digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


def who(here: Admission, key: bytes | None, *, presented: bool) -> Caller | Refusal:
    return here.rights.authorize(here.rights.by_key(key, presented), "chat_completions")


@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_key_is_known_by_its_name(number: int) -> None:
    found = who(admission(KEYS), digest(b"sk-%d" % number), presented=True)
    assert isinstance(found, Caller)
    assert found.name == f"client-{number}"


@pytest.mark.parametrize("presented", [digest(b"sk-11"), b"", b"sk-1", digest(b"sk-1")[:-1], None])
def test_an_unknown_key_is_refused(presented: bytes | None) -> None:
    assert who(admission(KEYS), presented, presented=True) is UNKNOWN_KEY


def test_no_key_at_all_is_told_apart() -> None:
    assert who(admission(KEYS), None, presented=False) is MISSING_KEY
    texts = {refused(refusal).body for refusal in (MISSING_KEY, UNKNOWN_KEY)}
    assert len(texts) == 2
    for refusal in (MISSING_KEY, UNKNOWN_KEY):
        reply = refused(refusal)
        assert (reply.status, reply.code) == (401, "invalid_api_key")
        assert (b"www-authenticate", b"Bearer") in reply.headers


@pytest.mark.parametrize("presented", [None, digest(b"whatever")])
def test_without_keys_it_is_anyone(presented: bytes | None) -> None:
    assert who(admission([]), presented, presented=presented is not None) == Caller(None)


def test_the_front_knows_the_digests_of_all_keys() -> None:
    assert admission(KEYS).digests == b"".join(digest(b"sk-%d" % number) for number in range(3))
    assert admission([]).digests is None


def test_what_was_found_is_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[bytes, bytes]] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append((a, b))
        return False

    monkeypatch.setattr("sluicegate.admission.keyring.hmac.compare_digest", compare)
    assert who(admission(KEYS), digest(b"sk-1"), presented=True) is UNKNOWN_KEY
    assert compared == [(digest(b"sk-1"), digest(b"sk-1"))]


def test_an_owner_is_a_key_or_an_id_and_no_name() -> None:
    def owner(**key: str) -> str:
        [found] = Keyring(configured([key])).owners.values()
        return found

    one = owner(name="one", key="sk-1")
    assert owner(name="another", key="sk-1") == one
    assert owner(name="one", key="sk-2") != one
    assert owner(name="one", key="sk-1", id="team") == owner(name="two", key="sk-2", id="team") != one
    assert owner(name="one", key="sk-1", id=one) != one
    assert digest(b"sk-1").hex() not in one


def test_an_owner_is_the_caller_who_has_a_key_now() -> None:
    keys = [{"name": "old", "key": "sk-1", "id": "team"}, {"name": "new", "key": "sk-2", "id": "team"}]
    ring = Keyring(configured(keys))
    assert ring.holder("id:team", None, 0.0).caller.name == "old"
    assert ring.holder("id:gone", None, 0.0) == (Caller(None, "id:gone"), "removed_key")
    assert ring.holder("", None, 0.0) == (Caller(None), "missing_key")
    assert Keyring(configured([])).holder("", None, 0.0) == (Caller(None), None)


def test_the_keyring_keeps_no_key() -> None:
    assert b"sk-1" not in pickle.dumps(Keyring(configured(KEYS)))


# === the header ===


def bearer(header: bytes) -> bytes | None:
    found, presented = key_digest({b"authorization": header})
    assert presented
    return found


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER"])
def test_the_digest_is_of_the_token(scheme: bytes) -> None:
    assert bearer(scheme + b" sk-1") == digest(b"sk-1")
    assert bearer(scheme + b"  sk-1 ") == digest(b"sk-1")


@pytest.mark.parametrize("header", [b"", b"sk-1", b"Basic sk-1", b"Bearersk-1"])
def test_what_is_no_bearer_token_has_none(header: bytes) -> None:
    assert key_digest({b"authorization": header}) == (None, True)
    assert key_digest({}) == (None, False)


def test_a_key_may_stand_in_x_api_key_and_a_bearer_token_goes_before_it() -> None:
    key = {b"x-api-key": b" sk-1 "}
    assert key_digest(key) == (digest(b"sk-1"), True)
    assert key_digest({b"authorization": b"Basic eA=="} | key) == (digest(b"sk-1"), True)
    assert key_digest({b"authorization": b"Bearer sk-2"} | key) == (digest(b"sk-2"), True)


@pytest.mark.parametrize(
    "header", [b"Bearer", b"Bearer ", b"Bearer sk-", b"Bearer \xff", b"Bearer sk-1 sk-2"]
)
def test_a_header_with_another_token_is_refused(header: bytes) -> None:
    assert who(admission(KEYS), bearer(header), presented=True) is UNKNOWN_KEY


# === models ===


def test_a_model_is_found_by_its_name_alone() -> None:
    found = admission([]).rights.model(Caller(None), "m")
    assert isinstance(found, Model)
    assert found.name == "m"


@pytest.mark.parametrize("name", [None, ""])
def test_no_model_is_not_an_unknown_one(name: str | None) -> None:
    assert admission([]).rights.model(Caller(None), name) is MISSING_MODEL
    assert refused(MISSING_MODEL).status == 400


@pytest.mark.parametrize("name", ["M", "m ", "other"])
def test_names_are_not_guessed(name: str) -> None:
    refusal = admission([]).rights.model(Caller(None), name)
    assert refusal == Refusal("unknown_model", name)
    assert isinstance(refusal, Refusal)
    assert refused(refusal).status == 404


def test_prices_and_limits_of_a_model_hold_before_its_upstream_has_listed_any() -> None:
    upstreams = {"local": {"base_url": "http://127.0.0.1:1/v1", "discover": True}}
    standard = {"cost": "1/day", "models": {"dear": {"requests": "1/day"}}}
    config = load_data(
        {
            "upstreams": upstreams,
            "prices": {"dear": {"input": "1", "cached_input": "1", "output": "5"}},
            "limits": {"standard": standard},
            "keys": [{"name": "a", "key": "sk-a", "limits": "standard"}],
        },
        {},
    )
    table = ModelTable(config, unlisted=["local"])
    prices = Prices(policy_for(config), "none", Notices(Log(level="error")), named=config.prices)
    keys = Keyring(config)
    asked = Admission(keys, table, Limiter(config, Counters(UTC), Estimates()), prices)
    [caller] = keys.callers
    dear, other = table.find("dear"), table.find("other")
    assert dear is not None
    assert other is not None
    facts: Any = Facts()
    held = [asked.admit(caller, model, facts) for model in (dear, dear, other, other)]
    assert [type(each) for each in held] == [Lease, Refusal, Lease, Lease]
    first, _, unpriced, _ = held
    assert isinstance(first, Lease)
    assert isinstance(unpriced, Lease)
    reserved = [
        [lease.demand.of(limit) for limit in lease.limits if limit.resource == "cost"]
        for lease in (first, unpriced)
    ]
    assert reserved[0][0] > 0
    assert reserved[1] == [0]
