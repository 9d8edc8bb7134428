"""Who may call."""

import pickle

import pytest

from sluicegate.config import KeyConfig
from sluicegate.gateway.keys import Keyring

KEYS = [KeyConfig.model_validate({"name": f"client-{n}", "key": f"sk-{n}"}) for n in range(3)]


@pytest.mark.parametrize("scheme", [b"Bearer", b"bearer", b"BEARER"])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_each_key_is_known_by_its_name(scheme: bytes, number: int) -> None:
    client = Keyring(KEYS).client(scheme + b" sk-%d" % number)
    assert client is not None
    assert client.name == f"client-{number}"


@pytest.mark.parametrize(
    "header",
    [None, b"", b"Bearer", b"Bearer ", b"sk-1", b"Basic sk-1", b"Bearer sk-", b"Bearer sk-11", b"Bearer \xff",
     b"Bearersk-1", b"Bearer sk-1 sk-2"],
)  # fmt: skip
def test_anything_else_is_nobody(header: bytes | None) -> None:
    assert Keyring(KEYS).client(header) is None


@pytest.mark.parametrize("header", [None, b"Bearer whatever"])
def test_without_keys_it_is_anyone(header: bytes | None) -> None:
    client = Keyring([]).client(header)
    assert client is not None
    assert client.name is None


def test_every_key_is_compared_whichever_matches(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[bytes] = []

    def compare(a: bytes, b: bytes) -> bool:
        compared.append(a)
        return a == b

    monkeypatch.setattr("sluicegate.gateway.keys.hmac.compare_digest", compare)
    ring = Keyring(KEYS)
    for header in (b"Bearer sk-0", b"Bearer sk-2", b"Bearer none", b"Basic sk-0"):
        compared.clear()
        ring.client(header)
        assert len(compared) == len(KEYS)


def test_the_keyring_keeps_no_key() -> None:
    assert b"sk-1" not in pickle.dumps(Keyring(KEYS))
