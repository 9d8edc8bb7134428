"""What the stub and the docstrings show is what happens."""

import ast
import doctest
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from sluicegate import _core, streams

PACKAGE = Path(__file__).parents[2] / "python" / "sluicegate"


def documented(path: Path) -> Iterator[tuple[str, str, int]]:
    """Name, docstring and line of what has an example in it."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text and ">>>" in text:
                yield node.name, text, node.lineno


STUB = {name: (text, line) for name, text, line in documented(PACKAGE / "_core.pyi")}
NAMES = {name: getattr(_core, name) for name in _core.__all__} | {"aiter_events": streams.aiter_events}


def run(name: str, text: str, file: str, line: int) -> None:
    example = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, file, line)
    assert example.examples
    failures: list[str] = []
    doctest.DocTestRunner(verbose=False).run(example, out=failures.append)
    assert not failures, "".join(failures)


def test_the_stub_has_examples() -> None:
    assert STUB.keys() >= {"SSESplitter", "SSEDecoder", "UsageMeter", "fold_chat", "unfold_chat"}


@pytest.mark.parametrize("name", STUB)
def test_an_example_of_the_stub_is_true(name: str) -> None:
    text, line = STUB[name]
    run(name, text, "_core.pyi", line)


def test_the_example_of_aiter_events_is_true() -> None:
    run("aiter_events", streams.aiter_events.__doc__ or "", "streams.py", 1)


def modules_after(code: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{code}\nprint(*sys.modules)"],
        check=True,
        capture_output=True,
        text=True,
    )
    return set(done.stdout.split())


def test_importing_the_package_loads_nothing_of_it() -> None:
    loaded = modules_after("import sluicegate")
    assert [name for name in loaded if name.startswith("sluicegate.")] == []


def test_the_library_is_loaded_without_the_gateway() -> None:
    loaded = modules_after(
        "from sluicegate import SSESplitter, SSEDecoder, UsageMeter, fold_chat, aiter_events"
    )
    ours = {name for name in loaded if name.startswith("sluicegate.")}
    assert ours == {"sluicegate._core", "sluicegate.streams"}
    assert {"granian", "pydantic", "starlette", "httpx", "aiohttp", "asyncio"} & loaded == set()
