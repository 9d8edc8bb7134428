"""Profiles of upstreams: their files, what is made of them, and the recorded streams of such servers."""

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from pydantic import SecretStr

from sluicegate.cli import main
from sluicegate.config import (
    UpstreamConfig,
    json_schema,
    load_data,
    profile,
    profile_at,
    profile_of_owner,
    profiles,
)
from sluicegate.config.check import Report, check_source
from sluicegate.config.source import Source

NAMES = [one.name for one in profiles()]
each = pytest.mark.parametrize("name", NAMES)


def upstream(**settings: Any) -> UpstreamConfig:
    return load_data({"upstreams": {"u": settings}, "models": {"m": "u"}}, {}).upstreams["u"]


def check(**settings: Any) -> Report:
    return check_source(Source({"upstreams": {"u": settings}, "models": {"m": "u"}}), {})


def alone(name: str) -> dict[str, Any]:
    """The least that an upstream of the profile has to say."""
    known = profile(name)
    settings: dict[str, Any] = {"profile": name}
    if known.base_url is None:
        settings["base_url"] = "https://resource.example.com/v1"
    if known.is_hosted:
        settings["api_key"] = "sk"
    return settings


# === the files ===


@each
def test_a_profile_is_a_good_configuration_without_any_warning(name: str) -> None:
    report = check(**alone(name))
    assert (report.faults, report.warnings) == ((), ())


@each
def test_no_profile_has_a_setting_without_effect(name: str) -> None:
    known = profile(name)
    made = UpstreamConfig.model_validate({"base_url": "http://h/v1", **known.settings})
    # A profile may know more than the API that is its default uses.
    assert [setting for setting in made.without_effect if setting != "messages" or name != "vertex"] == []


@each
def test_a_profile_is_described(name: str) -> None:
    known = profile(name)
    text = (Path(__file__).parents[2] / "python/sluicegate/profiles" / f"{name}.yaml").read_text()
    assert text.startswith("# "), "where its facts come from"
    assert known.about.endswith(".")
    assert all(sentence.endswith(".") for sentence in known.deviations)
    assert known.base_url is None or known.address is None
    assert name == "generic" or known.base_url or known.address


def test_each_name_elsewhere_means_one_profile() -> None:
    for names in ([one.owned_by for one in profiles()], [one.litellm for one in profiles()]):
        flat = [name for group in names for name in group]
        assert len(set(flat)) == len(flat)


def test_a_server_is_known_by_its_address_and_by_what_it_calls_itself() -> None:
    found = profile_at("https://api.groq.com/openai/v1")
    assert found is not None
    assert found.name == "groq"
    assert profile_at("https://api.groq.com.example/openai/v1") is None
    assert profile_at("http://127.0.0.1:8000/v1") is None
    assert profile_at("http://[") is None
    found = profile_of_owner("LlamaCpp")
    assert found is not None
    assert found.name == "llama_cpp"
    assert profile_of_owner("") is None


# === an upstream with a profile ===


def test_an_upstreams_own_settings_go_before_its_profiles() -> None:
    made = upstream(profile="mistral", dialect=None, chat={"omit": ["user"]})
    assert made.base_url == "https://api.mistral.ai/v1"
    assert (made.dialect, made.stream_options) == (None, False)
    assert made.chat.omit == ("user",)
    assert made.chat.rename == {"seed": "random_seed"}
    assert made.model_fields_set == {"profile", "dialect", "chat"}


def test_an_upstream_without_a_profile_has_only_its_own_settings() -> None:
    made = upstream(base_url="http://h/v1")
    assert made == upstream(profile="generic", base_url="http://h/v1")
    assert made.profile == "generic"
    assert made == UpstreamConfig(base_url="http://h/v1")


def test_variables_stand_in_a_profiles_upstream_as_elsewhere() -> None:
    data = {"upstreams": {"u": {"profile": "${KIND}", "api_key": "${KEY}"}}, "models": {"m": "u"}}
    made = load_data(data, {"KIND": "groq", "KEY": "sk"}).upstreams["u"]
    assert (made.profile, made.api_key) == ("groq", SecretStr("sk"))


@pytest.mark.parametrize(
    ("settings", "fault"),
    [
        ({"profile": "grok"}, "upstreams.u.profile: is no profile [did you mean `groq`?]"),
        ({"profile": "../x"}, "upstreams.u.profile: is no profile [known: anthropic, "),
        (
            {"profile": "azure"},
            "upstreams.u.base_url: is missing [such as https://RESOURCE.openai.azure.com/",
        ),
        ({}, "upstreams.u.base_url: is missing"),
        ({"profile": "groq", "paths": {"chat": "/x"}}, "upstreams.u.paths.chat: has a path that is none"),
        (
            {"profile": "groq", "paths": {"/v1/messages": "/x?y"}},
            'upstreams.u.paths."/v1/messages": has a path that',
        ),
        ({"profile": "groq", "key_header": "host"}, "upstreams.u.key_header: host belongs to"),
        (
            {"profile": "vllm", "messages": {"auth": ""}},
            "is not known here [did you mean `key_header`?]",
        ),
        (
            {"profile": "groq", "chat": {"add": {"x": float("nan")}}},
            "chat.add: has a value that JSON",
        ),
        (
            {"profile": "azure", "base_url": "https://h/v1", "api_key": "a", "headers": {"Api-Key": "b"}},
            "upstreams.u.headers: sets the authorization more than once: api_key, headers",
        ),
    ],
)
def test_what_is_wrong_is_said_once(settings: dict[str, Any], fault: str) -> None:
    (found,) = check(**settings).faults
    assert fault in str(found)


@pytest.mark.parametrize(
    ("settings", "places"),
    [
        ({"profile": "groq", "api_key": "k", "dialect": "groq"}, ["upstreams.u.dialect"]),
        ({"profile": "groq", "api_key": "k", "dialect": "openai"}, []),
        ({"profile": "openai", "api_key": "k", "api": ["chat", "responses"]}, ["upstreams.u.api"]),
        (
            {"profile": "mistral", "api_key": "k", "chat": {"rename": {"seed": "random_seed", "n": "m"}}},
            ["upstreams.u.chat.rename.seed"],
        ),
        ({"profile": "groq", "api_key": "k", "base_url": "https://api.groq.com/openai/v1/"},
         ["upstreams.u.base_url"]),
        ({"profile": "vllm", "streaming": "auto"}, []),
    ],
)  # fmt: skip
def test_a_setting_that_the_profile_has_already_is_warned_of(
    settings: dict[str, Any], places: list[str]
) -> None:
    report = check(**settings)
    assert report.faults == ()
    assert [warning.path for warning in report.warnings] == places
    assert all("says already" in warning.message for warning in report.warnings)


def test_a_hosted_server_without_a_key_is_warned_of() -> None:
    (warning,) = check(profile="groq").warnings
    assert str(warning) == "upstreams.u: has no key, and Groq wants one [`api_key: ${GROQ_API_KEY}`]"
    for settings in ({"forward_authorization": True}, {"headers": {"authorization": "x"}}):
        assert check(profile="groq", **settings).warnings == ()


def test_the_schema_names_all_profiles_and_needs_no_address() -> None:
    schema = json_schema()["$defs"]["UpstreamConfig"]
    assert "base_url" not in schema.get("required", [])
    assert schema["properties"]["profile"]["anyOf"][0] == {"enum": NAMES}


# === the command ===


def test_the_command_lists_profiles() -> None:
    done = CliRunner().invoke(main, ["profiles"])
    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == NAMES
    assert ["groq", "chat", "GROQ_API_KEY", "https://api.groq.com/openai/v1"] in [
        line.split() for line in lines
    ]


@each
def test_the_command_shows_a_profile(name: str) -> None:
    done = CliRunner().invoke(main, ["profiles", name])
    assert done.exit_code == 0
    flat = " ".join(done.stdout.split())
    for sentence in profile(name).deviations:
        assert " ".join(sentence.split()) in flat


def test_the_command_helps_with_a_wrong_name() -> None:
    done = CliRunner().invoke(main, ["profiles", "grok"])
    assert done.exit_code == 2
    assert "Did you mean `groq`?" in done.stderr
