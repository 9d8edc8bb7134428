"""The table of all settings: what it says of each, and that the committed one is up to date."""

import importlib.util
import json
import re
from pathlib import Path

import pytest

from sluicegate.config import Config, Section, json_schema, load_data, settings
from sluicegate.config.quantities import SIZE, TIME

DOCS = Path(__file__).parents[2] / "docs"


def page(name: str) -> str:
    spec = importlib.util.spec_from_file_location("docs_generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = getattr(module, name)()
    assert isinstance(text, str)
    return text


def test_the_committed_pages_are_the_models() -> None:
    for name, made in (("settings", page("page")), ("profiles", page("profiles_page"))):
        assert (DOCS / f"{name}.md").read_text(encoding="utf-8") == made, "run `python -m docs.generate`"


def test_every_setting_is_described_in_a_sentence() -> None:
    for setting in settings():
        assert len(setting.text.split()) >= 3, setting.path


def test_settings_are_those_of_the_model() -> None:
    found = {setting.path: setting for setting in settings()}
    assert len(found) > 100
    drain = found["server.drain_seconds"]
    assert (drain.type, drain.default, drain.unit) == ("time", "30s", "seconds")
    size = found["server.max_body_bytes"]
    assert (size.type, size.default, size.unit) == ("size", "64MiB", "bytes")
    assert found["upstreams.NAME.base_url"].default is None
    assert found["models.NAME.routes[].upstream"].type == "text"
    assert found["prices.NAME.tiers[].above"].unit == "tokens"
    assert found["keys[].key"].type == "text (secret)"
    assert found["server.http"].type == "http1 or auto"


def test_a_default_is_what_a_file_may_say() -> None:
    """Of the sections that need nothing else."""
    for name in ("server", "cost", "responses"):
        for setting in settings(Config.model_fields[name].annotation, name):  # type: ignore[arg-type]
            if not setting.default or " " in setting.default or setting.path.startswith("server.tls."):
                continue
            value = (
                json.loads(setting.default) if setting.default in ("null", '""', "true", "false") else None
            )
            data: object = setting.default if value is None and setting.default != "null" else value
            for step in reversed(setting.path.split(".")):
                data = {step: data}
            loaded: object = load_data({**MINIMAL, **data})  # type: ignore[dict-item]
            default: object = load_data(MINIMAL)
            for step in setting.path.split("."):
                assert isinstance(loaded, Section)
                assert isinstance(default, Section)
                loaded, default = getattr(loaded, step), getattr(default, step)
            assert loaded == default, setting.path


MINIMAL = {"upstreams": {"local": {"base_url": "http://h/v1"}}, "models": {"tiny": "local"}}


# === units ===


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("30s", 30.0), ("500ms", 0.5), ("1.5 m", 90.0), ("2H", 7200.0), ("7d", 604800.0), ("-1s", -1.0),
        ("30", "30"), (3, 3),
    ],
)  # fmt: skip
def test_a_time_is_read_with_its_unit(value: object, seconds: object) -> None:
    assert TIME.read(value) == seconds


@pytest.mark.parametrize("value", ["s", "30 s s", "1h30m", "30MB", "", "1" * 30 + "s", "3e1s", "never", "٣s"])
def test_what_is_no_time_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="should be a time"):
        TIME.read(value)


@pytest.mark.parametrize(
    ("value", "size"),
    [
        ("64MB", 64_000_000), ("64MiB", 67108864), ("1.5kib", 1536), ("12B", 12), ("1 GiB", 2**30),
        ("65536", "65536"),
    ],
)  # fmt: skip
def test_a_size_is_read_with_its_unit(value: str, size: object) -> None:
    assert SIZE.read(value) == size


def test_a_size_is_whole() -> None:
    with pytest.raises(ValueError, match="whole number of bytes"):
        SIZE.read("1.0005kB")


@pytest.mark.parametrize("quantity", [TIME, SIZE])
@pytest.mark.parametrize("value", [1, 30, 60, 90, 1000, 1024, 65536, 86400, 1_000_000, 12_345, 2**40])
def test_what_is_spelt_is_read_back(quantity: object, value: int) -> None:
    assert quantity in (TIME, SIZE)
    reader = TIME if quantity is TIME else SIZE
    assert reader.read(reader.spell(value)) == value


def test_the_schema_lets_units_through() -> None:
    server = json_schema()["$defs"]["ServerConfig"]["properties"]
    for name, good, bad in (("drain_seconds", "30s", "30MB"), ("max_body_bytes", "64MiB", "64s")):
        patterns = [form["pattern"] for form in server[name]["anyOf"] if "pattern" in form]
        assert any(re.search(pattern, good) for pattern in patterns)
        assert not any(re.search(pattern, bad) for pattern in patterns)
