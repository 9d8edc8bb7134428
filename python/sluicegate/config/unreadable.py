"""Files that are neither YAML nor TOML: what is wrong with them, in the words of whoever wrote them.

No text repeats a part of the file but names and signs: what is quoted may be a secret.
"""

import re
import tomllib

import yaml

Said = tuple[str, str | None, int | None]
"""What is wrong, what to do about it, and in which line."""

_QUOTED = re.compile(r"'[^']{2,}'|\"[^\"]{2,}\"")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)")
_TOML_NAME = re.compile(r"\s*(\[*\s*[A-Za-z0-9_.-]+\s*\]*)\s*(?:=.*)?")


def _without_quotes(message: str) -> str:
    return _QUOTED.sub("…", message)


def of_yaml(error: yaml.MarkedYAMLError, text: str) -> Said:
    """What is wrong with `text`, which is no YAML."""
    problem, context = error.problem or "cannot be read", error.context or ""
    mark, begin = error.problem_mark, error.context_mark
    line = mark.line + 1 if mark else None
    if mark and begin and context.startswith("while parsing a flow"):
        return _in_braces(text, mark, begin)
    if begin and context.startswith("while scanning a quoted scalar"):
        return "the quote that opens on this line is not closed", "close it", begin.line + 1
    if context.startswith("while scanning an alias"):
        return "a name or value begins with `*`, which is an alias in YAML", "put it into quotes", line
    if mark and problem.startswith("found character"):
        sign = text[mark.index : mark.index + 1]
        if sign == "\t":
            return "the line is indented with a tab", "indent with spaces", line
        return (
            f"a value begins with `{sign}`, which has a meaning of its own in YAML",
            "put it into quotes",
            line,
        )
    if mark and problem.startswith("expected <block end>"):
        sign = text[mark.index : mark.index + 1]
        if sign in "}]":
            return f"a `{sign}` closes nothing", "take it out, or open it before", line
        if text[mark.index - 1 : mark.index] in ('"', "'"):
            return "there is text after a closing quote", "a quote before it is missing or not closed", line
        hint = "the names of one mapping begin in the same column"
        return "the line is indented differently from the lines it belongs to", hint, line
    if problem == "mapping values are not allowed here":
        hint = "put text with `: ` in it into quotes; or the line before lacks its colon"
        return "there is a colon where none can be", hint, line
    if begin and problem.startswith("could not find expected ':'"):
        return "the line has no colon after its name", "write `name: value`", begin.line + 1
    return _without_quotes(problem), None, line


def _in_braces(text: str, mark: yaml.Mark, begin: yaml.Mark) -> Said:
    opened = text[begin.index : begin.index + 1]
    closing = "}" if opened == "{" else "]"
    if text[mark.index - 1 : mark.index + 1] == "${":
        return "inside braces and brackets a variable needs quotes", 'write "${NAME}"', mark.line + 1
    if mark.line > begin.line:
        where = "at the end of the file" if mark.index >= len(text) else f"on line {mark.line + 1}"
        return (
            f"the `{opened}` on this line is not closed ({where} at the latest)",
            f"add the `{closing}`",
            begin.line + 1,
        )
    return f"a comma or a `{closing}` is missing", "members are separated by commas", mark.line + 1


def of_toml(error: tomllib.TOMLDecodeError, text: str) -> Said:
    """What is wrong with `text`, which is no TOML."""
    message = str(error)
    found = _AT_LINE.search(message)
    line = int(found[1]) if found else None
    plain = _AT_LINE.sub("", message)
    lines = text.splitlines()
    if line is not None and plain.startswith(("Cannot overwrite a value", "Cannot declare")):
        name = _TOML_NAME.fullmatch(lines[line - 1]) if line <= len(lines) else None
        if name is not None:
            return f"`{name[1].strip()}` stands twice", "keep one of them", line
    if plain.startswith(("Expected newline or end of document after a statement", "Invalid value")):
        return _without_quotes(plain), 'text, and a number with a unit, needs quotes: "30s"', line
    return _without_quotes(plain), None, line
