"""A configuration file as plain data, with the line of each value."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from sluicegate.config.unreadable import of_toml, of_yaml
from sluicegate.errors import ConfigurationFault

Place = tuple[str | int, ...]

SUFFIXES = (".yaml", ".yml", ".toml")
# Aliases let a few lines of YAML stand for any number of values. No real configuration comes near this.
MAX_VALUES = 100_000

_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")


@dataclass
class Source:
    """What a file says: its data (None where it could not be read), the lines of values, and its faults."""

    data: Any = None
    lines: dict[Place, int] = field(default_factory=dict)
    faults: list[ConfigurationFault] = field(default_factory=list)
    ends_whole: bool = True
    """Whether its last value cannot be the beginning of a longer one: see `_ends_whole`."""

    def line(self, place: Place) -> int | None:
        """The line of the value at `place`, or of the innermost one around it."""
        for end in range(len(place), 0, -1):
            if (line := self.lines.get(place[:end])) is not None:
                return line
        return None

    def fault(self, place: Place, message: str, hint: str | None = None) -> ConfigurationFault:
        """Something wrong at `place`, with its line."""
        return ConfigurationFault(spell(place), message, hint, self.line(place))

    def add(self, place: Place, message: str, hint: str | None = None, line: int | None = None) -> None:
        """Note a fault."""
        found = self.fault(place, message, hint)
        self.faults.append(found if line is None else replace(found, line=line))


def spell(place: Place) -> str:
    """The place as people write it: `keys[0].name`, `models."gpt-4.1"`."""
    text = ""
    for step in place:
        if isinstance(step, int):
            text += f"[{step}]"
        else:
            text += ("." if text else "") + (step if _PLAIN.fullmatch(step) else f'"{step}"')
    return text


def read(path: Path) -> Source:
    """The file at `path`, YAML or TOML by its suffix. What is wrong with it ends up in `faults`."""
    source = Source()
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        source.add((), "is neither YAML nor TOML by its name", f"the name ends with {', '.join(SUFFIXES)}")
        return source
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        source.add((), f"cannot be read: {error.strerror or type(error).__name__}")
        return source
    except UnicodeDecodeError as error:
        source.add((), f"is not UTF-8 (at byte {error.start})")
        return source
    source.ends_whole = _ends_whole(text, suffix)
    try:
        if suffix == ".toml":
            _read_toml(source, text)
        else:
            _read_yaml(source, text)
    except RecursionError:
        source.add((), "nests too deep")
    return source


def _ends_whole(text: str, suffix: str) -> bool:
    """Whether `text` ends with a line, or is one YAML mapping in braces.

    `key: sk-abc` may be what there is of `key: sk-abcdef` so far, and both are good files. A line end follows
    a value that is all there, and a brace that is left open is no YAML.
    """
    return text.endswith("\n") or (suffix != ".toml" and text.lstrip().startswith("{"))


# === TOML ===


def _read_toml(source: Source, text: str) -> None:
    try:
        source.data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, hint, line = of_toml(error, text)
        source.add((), f"is not TOML: {message}", hint, line)


# === YAML ===


def _read_yaml(source: Source, text: str) -> None:
    try:
        loader = yaml.SafeLoader(text)
        try:
            node = loader.get_single_node()
            data = None if node is None else _YamlTree(source, loader).value(node, ())
            # A file of comments, or of `null`, says nothing; that is no fault in itself.
            source.data = {} if data is None and not source.faults else data
        finally:
            loader.dispose()
    except _TooMany:
        source.add((), f"stands for more than {MAX_VALUES:,} values", "aliases are repeated too often")
    except yaml.MarkedYAMLError as error:
        message, hint, line = of_yaml(error, text)
        source.add((), f"is not YAML: {message}", hint, line)
    except yaml.reader.ReaderError as error:
        source.add((), f"is not YAML: a character that is not allowed (at character {error.position})")
    except ValueError:
        # A scalar that looks like a date or a number and is none (`2024-99-99`).
        source.add((), "is not YAML: a date or a number that does not exist", "put it into quotes")


class _TooMany(Exception):
    """Never leaves this file."""


class _YamlTree:
    """YAML nodes made plain data, noting lines and keys that stand twice, which PyYAML would drop unsaid."""

    def __init__(self, source: Source, loader: yaml.SafeLoader) -> None:
        self._source = source
        self._loader = loader
        self._open: set[int] = set()
        self._flat: set[int] = set()
        self._count = 0

    def value(self, node: yaml.Node, place: Place) -> Any:
        self._count += 1
        if self._count > MAX_VALUES:
            raise _TooMany
        self._source.lines.setdefault(place, node.start_mark.line + 1)
        if isinstance(node, yaml.ScalarNode):
            return self._loader.construct_object(node)
        if node.tag not in _COLLECTIONS:
            self._source.add(place, "has a tag that has no meaning here", "take the tag out")
            return None
        if id(node) in self._open:
            self._source.add(place, "contains itself", "an alias may not stand inside its own anchor")
            return None
        self._open.add(id(node))
        try:
            if isinstance(node, yaml.MappingNode):
                return self._mapping(node, place)
            return [self.value(item, (*place, index)) for index, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: yaml.MappingNode, place: Place) -> Mapping[str, Any]:
        # `<<` is resolved in the node itself, so this is done once however many aliases lead here.
        if id(node) not in self._flat:
            self._flat.add(id(node))
            self._repeated(node, place)
            self._loader.flatten_mapping(node)
        data: dict[str, Any] = {}
        # Merged keys come first and the mapping's own after them, so the last one is the one that counts.
        last = {self._key(key, place): (key, value) for key, value in node.value}
        for name, (key, value) in last.items():
            if name is None:
                continue
            self._source.lines[(*place, name)] = key.start_mark.line + 1
            data[name] = self.value(value, (*place, name))
        return data

    def _repeated(self, node: yaml.MappingNode, place: Place) -> None:
        first: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag == "tag:yaml.org,2002:merge":
                continue
            line = key.start_mark.line + 1
            if key.value in first:
                self._source.add(
                    (*place, key.value),
                    f"stands twice, first on line {first[key.value]}",
                    "keep one of them",
                    line,
                )
            else:
                first[key.value] = line

    def _key(self, node: yaml.Node, place: Place) -> str | None:
        # A key is what is written: a model may be called `no`, `4` or `2024-05-13`.
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self._source.add(place, "has a key that is not a name", line=node.start_mark.line + 1)
        return None
