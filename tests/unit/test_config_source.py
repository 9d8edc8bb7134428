"""Reading a file: YAML and TOML, repeated keys, lines, variables."""

from pathlib import Path

import pytest

from sluicegate.config.environment import expand
from sluicegate.config.source import MAX_VALUES, Source, read, spell


def written(tmp_path: Path, text: str | bytes, name: str = "gate.yaml") -> Source:
    file = tmp_path / name
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return read(file)


def messages(source: Source) -> list[str]:
    return [f"{fault.path}: {fault.message}" for fault in source.faults]


# === files ===


def test_yaml_and_toml_give_the_same_data(tmp_path: Path) -> None:
    yaml = written(tmp_path, "server: {port: 1, host: a}\nmodels: {m: [x, y]}\n")
    toml = written(tmp_path, '[server]\nport = 1\nhost = "a"\n[models]\nm = ["x", "y"]\n', "gate.toml")
    assert yaml.faults == toml.faults == []
    assert yaml.data == toml.data == {"server": {"port": 1, "host": "a"}, "models": {"m": ["x", "y"]}}


def test_a_byte_order_mark_is_ignored(tmp_path: Path) -> None:
    assert written(tmp_path, b"\xef\xbb\xbfa: 1").data == {"a": 1}
    assert written(tmp_path, b"\xef\xbb\xbfa = 1", "gate.toml").data == {"a": 1}


def test_an_empty_file_is_an_empty_mapping(tmp_path: Path) -> None:
    assert written(tmp_path, "# nothing\n").data == {}
    assert written(tmp_path, "null\n").data == {}
    assert written(tmp_path, "", "gate.toml").data == {}


@pytest.mark.parametrize("name", ["missing.yaml", "missing.toml", "gate.json", "gate"])
def test_a_file_that_cannot_be_used_is_one_fault(tmp_path: Path, name: str) -> None:
    source = read(tmp_path / name)
    assert source.data is None
    assert len(source.faults) == 1


def test_a_directory_and_bytes_that_are_not_utf8_are_faults(tmp_path: Path) -> None:
    (tmp_path / "folder.yaml").mkdir()
    assert len(read(tmp_path / "folder.yaml").faults) == 1
    assert messages(written(tmp_path, b"a: \xff")) == [": is not UTF-8 (at byte 3)"]


@pytest.mark.parametrize(
    ("name", "text", "line"),
    [
        ("gate.yaml", "a: 1\nb: [1, 2\nc: 3\n", 2),
        ("gate.yaml", "a: 1\n\tb: 2\n", 2),
        ("gate.yaml", "a: 1\n---\nb: 2\n", 2),
        ("gate.yaml", "a: *nowhere\n", 1),
        ("gate.yaml", "a: !!python/object:os.system {}\n", None),
        ("gate.yaml", "a: !command sekrit\n", 1),
        ("gate.yaml", "a: 2024-99-99\n", None),
        ("gate.yaml", "a: \x00\n", None),
        ("gate.toml", "a = 1\nb = [\n", None),
        ("gate.toml", "a = 1\na = 2\n", 2),
        ("gate.toml", "a == 1\n", 1),
    ],
)
def test_text_that_is_not_the_language_is_a_fault_with_its_line(
    tmp_path: Path, name: str, text: str, line: int | None
) -> None:
    source = written(tmp_path, text, name)
    assert source.faults
    if line is not None:
        assert source.faults[0].line == line


@pytest.mark.parametrize("text", ["a: *sk-sekrit-1\n", "a: {b: 'sk-sekrit-1\n", 'a: "\\sk-sekrit-1"\n'])
def test_a_parsers_message_never_quotes_the_file(tmp_path: Path, text: str) -> None:
    source = written(tmp_path, text)
    assert source.faults
    assert not any("sekrit" in str(fault) for fault in source.faults)


# === YAML ===


def test_a_key_that_stands_twice_is_a_fault_with_both_lines(tmp_path: Path) -> None:
    source = written(tmp_path, "a:\n  b: 1\n  c: 2\n\na: 4\n")
    assert [(fault.path, fault.line) for fault in source.faults] == [("a", 5)]
    assert "first on line 1" in source.faults[0].message


def test_nested_repeated_keys_are_found(tmp_path: Path) -> None:
    source = written(tmp_path, "a:\n  - b: 1\n    b: 2\n")
    assert [(fault.path, fault.line) for fault in source.faults] == [("a[0].b", 3)]


def test_keys_are_what_is_written(tmp_path: Path) -> None:
    source = written(tmp_path, "{no: 1, 4: 2, 2024-05-13: 3, 1.0: 4, on: 5}")
    assert list(source.data) == ["no", "4", "2024-05-13", "1.0", "on"]


def test_a_key_that_is_a_list_is_a_fault(tmp_path: Path) -> None:
    assert messages(written(tmp_path, "? [a, b]\n: 1\n")) == [": has a key that is not a name"]


def test_merged_keys_are_overridden_and_not_called_repeated(tmp_path: Path) -> None:
    text = "base: &base {a: 1, b: 2}\none: {<<: *base, b: 3}\ntwo: {<<: *base, c: 4}\nagain: *base\n"
    source = written(tmp_path, text)
    assert source.faults == []
    assert source.data["one"] == {"a": 1, "b": 3}
    assert source.data["two"] == {"a": 1, "b": 2, "c": 4}
    assert source.data["again"] == {"a": 1, "b": 2}


def test_a_merged_mapping_used_twice_is_not_called_repeated(tmp_path: Path) -> None:
    source = written(tmp_path, "base: &base {a: 1}\none: &one {<<: *base, a: 2}\ntwo: *one\n")
    assert source.faults == []
    assert source.data["two"] == {"a": 2}


def test_an_alias_inside_its_own_anchor_is_a_fault(tmp_path: Path) -> None:
    assert messages(written(tmp_path, "a: &a\n  b: *a\n")) == ["a.b: contains itself"]


def test_aliases_cannot_stand_for_more_values_than_the_bound(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    assert messages(written(tmp_path, "\n".join(lines))) == [f": stands for more than {MAX_VALUES:,} values"]


@pytest.mark.parametrize(
    ("name", "text"), [("gate.yaml", "a: " + "[" * 5000), ("gate.toml", "a = " + "[" * 5000)]
)
def test_deep_nesting_is_a_fault(tmp_path: Path, name: str, text: str) -> None:
    assert written(tmp_path, text, name).faults


def test_lines_lead_to_the_value_or_to_what_is_around_it(tmp_path: Path) -> None:
    source = written(tmp_path, "a: 1\nb:\n  c:\n    - d\n    - e\n")
    assert source.line(("a",)) == 1
    assert source.line(("b", "c")) == 3
    assert source.line(("b", "c", 1)) == 5
    assert source.line(("b", "c", "missing", 7)) == 3
    assert source.line(("missing",)) is None


@pytest.mark.parametrize(
    ("place", "path"),
    [
        ((), ""),
        (("a", "b"), "a.b"),
        (("keys", 0, "name"), "keys[0].name"),
        (("models", "gpt-4.1", 0), 'models."gpt-4.1"[0]'),
        (("models", "a b"), 'models."a b"'),
    ],
)
def test_places_are_spelled_as_people_write_them(place: tuple[str | int, ...], path: str) -> None:
    assert spell(place) == path


# === variables ===


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("${NAME}", "value"),
        ("a ${NAME} b ${NAME}", "a value b value"),
        ("${NAME:-default}", "value"),
        ("${MISSING:-default}", "default"),
        ("${EMPTY:-default}", "default"),
        ("${MISSING:-}", ""),
        ("${EMPTY}", ""),
        ("${MISSING:-a:-b}", "a:-b"),
        ("$${NAME}", "${NAME}"),
        ("$NAME costs $5", "$NAME costs $5"),
        ("${ODD}", "${NAME}: [x]"),
    ],
)
def test_variables_are_put_in_once_and_stay_one_string(text: str, value: str) -> None:
    source = Source(data={"a": [text]})
    environ = {"NAME": "value", "EMPTY": "", "ODD": "${NAME}: [x]"}
    assert expand(source, environ) == frozenset()
    assert source.data == {"a": [value]}
    assert source.faults == []


def test_a_missing_variable_is_a_fault_at_its_path() -> None:
    source = Source(data={"keys": [{"key": "${NOPE}"}], "a": "${NOPE_2} ${NOPE_3}"})
    assert expand(source, {}) == {("keys", 0, "key"), ("a",)}
    assert messages(source) == [
        "keys[0].key: the environment variable NOPE is not set",
        "a: the environment variable NOPE_2 is not set",
        "a: the environment variable NOPE_3 is not set",
    ]


@pytest.mark.parametrize("text", ["${sk-sekrit}", "${}", "${1A}", "a ${sekrit", "${A:sekrit}"])
def test_a_reference_that_cannot_be_read_is_a_fault_that_does_not_repeat_it(text: str) -> None:
    source = Source(data={"a": text})
    assert expand(source, {"A": "x"}) == {("a",)}
    assert len(source.faults) == 1
    assert "sekrit" not in str(source.faults[0])


def test_only_values_are_expanded() -> None:
    source = Source(data={"${A}": 1, "b": True, "c": None})
    assert expand(source, {}) == frozenset()
    assert source.data == {"${A}": 1, "b": True, "c": None}
