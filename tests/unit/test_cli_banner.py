"""What a person is told when the gateway listens."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest

from sluicegate.cli.banner import banner
from sluicegate.config import load_data
from sluicegate.discovery import Listing, NoListing, merge
from sluicegate.server.running import Ready

URL = "http://127.0.0.1:8080"
Answers = dict[str, Listing | NoListing]


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("STATE_DIRECTORY", raising=False)
    return tmp_path


def told(answers: Answers, url: str = URL, **data: Any) -> str:
    base_urls = {"openai": "https://api.openai.com/v1"}
    upstreams = {
        name: {"base_url": base_urls.get(name, f"http://{name}:8000/v1"), "discover": True}
        for name in answers
    }
    config = load_data({"upstreams": upstreams, **data}, {})
    listings = {name: answer for name, answer in answers.items() if isinstance(answer, Listing)}
    return banner(Ready(url, merge(config, listings).config, answers))


def body(text: str) -> dict[str, Any]:
    words = shlex.split(text[text.index("curl") :].replace("\\\n", " "))
    return dict(json.loads(words[words.index("-d") + 1]))


def listing(name: str, *models: str, owner: str = "") -> Listing:
    return Listing(f"http://{name}:8000/v1", models, owner)


def test_models_and_what_was_set_are_told(state: Path) -> None:
    text = told(
        {
            "a": listing("a", "embed-1", "it's", *"bcdef", owner="vllm"),
            "b": listing("b", "x", owner="llamacpp"),
        }
    )
    assert "  models     embed-1, it's, b, c, d and 3 more\n" in text
    assert "  upstreams  a: http://a:8000/v1 (7 models; profile: vllm)\n" in text
    assert "             b: http://b:8000/v1 (1 model; profile: llama_cpp)\n" in text
    assert f"kept for 30 days in {state / 'sluicegate' / 'responses.db'}," in text
    # A model that may chat, and a name that a shell would break.
    assert body(text)["model"] == "it's"


def test_who_does_not_answer_is_told() -> None:
    text = told(
        {
            "a": NoListing("unreachable", "refused the connection"),
            "openai": NoListing("unauthorized", "wants a key, or another one (401)"),
            "b": NoListing("no_list", "answered 404 to GET /models"),
        }
    )
    assert "models     none are known yet: any name is forwarded" in text
    assert "(refused the connection: it is asked again every 5 s)" in text
    assert "(401): add `--key-env OPENAI_API_KEY` after its --upstream, or `api_key` in a file)" in text
    assert "(answered 404 to GET /models)" in text
    assert "in place of MODEL" in text
    assert body(text)["model"] == "MODEL"


def test_a_key_is_asked_for_and_never_shown() -> None:
    text = told({"a": listing("a", "x")}, keys=[{"name": "me", "key": "sekrit"}])
    assert "in place of KEY" in text
    assert "-H 'authorization: Bearer KEY'" in text
    assert "sekrit" not in text


@pytest.mark.parametrize(
    ("responses", "said"),
    [
        ({"store": False}, "prompts    are not kept"),
        ({"retention_seconds": 7200}, "are kept for 2 hours in "),
        ({"retention_seconds": 90}, "are kept for 90 seconds in "),
        ({"url": "postgresql://u:sekrit@h/d"}, "are kept for 30 days in PostgreSQL,"),
        ({"path": "/dev/null/x"}, "cannot be kept: responses.path is below /dev/null"),
    ],
)
def test_what_is_kept_of_prompts(responses: dict[str, Any], said: str) -> None:
    text = told({"a": listing("a", "x")}, responses=responses)
    assert said in text
    assert "sekrit" not in text


@pytest.mark.parametrize(
    ("url", "called"),
    [("http://0.0.0.0:80", "http://127.0.0.1:80/v1/"), ("https://[::]:80", "https://[::1]:80/v1/")],
)
def test_what_is_called_is_an_address(url: str, called: str) -> None:
    assert f"curl -N {called}chat/completions " in told({"a": listing("a", "x")}, url)
