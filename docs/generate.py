"""Write `docs/settings.md` from the configuration's model.

`python -m docs.generate`, in the project's root.
"""

from collections.abc import Iterator
from pathlib import Path

from sluicegate.config import Config, Section, Setting, settings

TARGET = Path(__file__).parent / "settings.md"

_HEAD = """\
# Settings

This file is made from the configuration's model by `python -m docs.generate`: change the descriptions there.

A time is a number of seconds, or a number with a unit: `500ms`, `30s`, `5m`, `2h`, `7d`. A size is a number
of bytes, or a number with a unit: `64kB`, `64MB`, `64KiB`, `64MiB`, and so on up to `TB` and `TiB`. Case
makes no difference. `NAME` stands for a name of your own, and `[]` for each entry of a list. Any value may be
`${VARIABLE}` or `${VARIABLE:-default}`, which stands for a variable of the environment.
"""


def page() -> str:
    """The whole file: a table for each section of the configuration."""
    found = list(settings())
    by_place = {setting.members: setting for setting in found if setting.members}
    places: dict[str, list[Setting]] = {}
    for setting in found:
        places.setdefault(setting.path.rpartition(".")[0], []).append(setting)
    return _HEAD + "".join(_table(by_place.get(place), members) for place, members in places.items())


def _table(section: Setting | None, members: list[Setting]) -> str:
    title = "The file" if section is None else f"`{section.members}`"
    model: type[Section] = Config if section is None or section.section is None else section.section
    about = " ".join((model.__doc__ or "").split())
    return "\n".join([f"\n## {title}\n", f"{about}\n", *_rows(members), ""])


def _rows(members: list[Setting]) -> Iterator[str]:
    yield "| setting | value | default | unit | what it does |"
    yield "| --- | --- | --- | --- | --- |"
    for setting in members:
        default = "required" if setting.default is None else setting.default
        if default and setting.default is not None and " " not in default:
            default = f"`{default}`"
        name = setting.path.rpartition(".")[2]
        cells = (f"`{name}`", setting.type, default, setting.unit or "", setting.text)
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    TARGET.write_text(page(), encoding="utf-8")
