"""Write `docs/settings.md` from the configuration's model, and `docs/profiles.md` from the profiles.

`python -m docs.generate`, in the project's root.
"""

from collections.abc import Iterator
from pathlib import Path

import yaml

from sluicegate.config import Config, Profile, Section, Setting, profiles, settings

FOLDER = Path(__file__).parent

_HEAD = """\
# Settings

This file is made from the configuration's model by `python -m docs.generate`: change the descriptions there.

A time is a number of seconds, or a number with a unit: `500ms`, `30s`, `5m`, `2h`, `7d`. A size is a number
of bytes, or a number with a unit: `64kB`, `64MB`, `64KiB`, `64MiB`, and so on up to `TB` and `TiB`. Case
makes no difference. `NAME` stands for a name of your own, and `[]` for each entry of a list. Any value may be
`${VARIABLE}` or `${VARIABLE:-default}`, which stands for a variable of the environment.
"""


_PROFILES_HEAD = """\
# Profiles

This file is made from `python/sluicegate/profiles` by `python -m docs.generate`: change the profiles there.

`profile: NAME` says what kind of server an upstream is, and stands for the settings that follow from it.
What the upstream's own entry says goes before it; of mappings, member by member. `sluicegate profiles NAME`
prints the same.

"""


def profiles_page() -> str:
    """The whole file: a table of all profiles, and a part for each."""
    rows = [
        "| profile | server | `api` | the key's variable | `base_url` |",
        "| --- | --- | --- | --- | --- |",
    ]
    for one in profiles():
        where = one.base_url or one.address
        cells = (_code(one.name), one.title, _code(one.apis), _code(one.key_variable), _code(where))
        rows.append("| " + " | ".join(cells) + " |")
    return _PROFILES_HEAD + "\n".join([*rows, *(part for one in profiles() for part in _profile(one)), ""])


def _code(text: str | None) -> str:
    return f"`{text}`" if text else ""


def _profile(one: Profile) -> Iterator[str]:
    yield f"\n## {one.name}\n"
    yield f"{one.about}\n"
    yield f"```yaml\nupstreams:\n  {one.name}:"
    yield from (f"    {line}" for line in one.example.splitlines())
    yield f"models: {{tiny: {one.name}}}\n```"
    if one.settings:
        yield "\nIt stands for:\n\n```text"
        yield yaml.safe_dump(dict(one.settings), sort_keys=False, width=100).rstrip()
        yield "```"
    if one.deviations:
        yield ""
        yield from (f"- {sentence}" for sentence in one.deviations)


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
    (FOLDER / "settings.md").write_text(page(), encoding="utf-8")
    (FOLDER / "profiles.md").write_text(profiles_page(), encoding="utf-8")
