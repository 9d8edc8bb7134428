"""Showing what is wrong with a configuration, as compilers show faults: editors and terminals follow it."""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from sluicegate.errors import ConfigurationFault

if TYPE_CHECKING:
    from sluicegate.config import Config, Report

Form = Literal["text", "json", "github"]
Severity = Literal["error", "warning"]

_COLOURS = {"error": "red", "warning": "yellow"}


def load(file: Path) -> "Config":
    """The configuration in `file`; its faults and warnings are shown, and faults end the command."""
    from sluicegate.config import check_file

    report = check_file(file)
    show(file, report.faults, "error")
    show(file, report.warnings, "warning")
    if report.config is None:
        raise SystemExit(1)
    return report.config


def show(file: Path, faults: Iterable[ConfigurationFault], severity: Severity) -> None:
    """One fault a line, on standard error."""
    label = click.style(severity, fg=_COLOURS[severity])
    for fault in faults:
        place = str(file) if fault.line is None else f"{file}:{fault.line}"
        click.echo(f"{place}: {label}: {_text(fault)}", err=True)


def _text(fault: ConfigurationFault) -> str:
    path = f"{fault.path}: " if fault.path else ""
    hint = f" ({fault.hint})" if fault.hint else ""
    return f"{path}{fault.message}{hint}"


def show_for_github(file: Path, report: "Report") -> None:
    """Workflow commands: GitHub shows each at its line."""
    faults: tuple[tuple[Severity, tuple[ConfigurationFault, ...]], ...] = (
        ("error", report.faults),
        ("warning", report.warnings),
    )
    for severity, found in faults:
        for fault in found:
            line = "" if fault.line is None else f",line={fault.line}"
            place = _escaped(str(file)).replace(":", "%3A").replace(",", "%2C")
            click.echo(f"::{severity} file={place}{line}::{_escaped(_text(fault))}")


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def show_as_json(file: Path, report: "Report", ok: bool, answers: Mapping[str, object] | None) -> None:
    """One JSON object, for programs. `answers`: of those who were asked, as further members."""

    def listed(faults: Iterable[ConfigurationFault]) -> list[dict[str, object]]:
        return [
            {"path": fault.path, "line": fault.line, "message": fault.message, "hint": fault.hint}
            for fault in faults
        ]

    document: dict[str, object] = {
        "file": str(file),
        "ok": ok,
        "faults": listed(report.faults),
        "warnings": listed(report.warnings),
    }
    document |= answers or {}
    click.echo(json.dumps(document, ensure_ascii=False, indent=2))
