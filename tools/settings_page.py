"""The page of all settings, from their declarations, as is the output of `runner help`."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping, Sequence

from orbit_runner.config.describe import Setting, describe_settings
from orbit_runner.config.schema.experiment import ExperimentConfig

_HEAD = """\
# Settings

Every setting of a config file, with its type, default and allowed values. `runner help NAME`
prints the same for one setting or section, and with `--experiment` its value there and where that
was set.

A setting is written in YAML by its section (`trainer: {train_steps: 100}`), on the command line by
its dotted path (`--trainer.train_steps=100`). See [Configs](configs.md).
"""


def page() -> str:
    """Returns the text of the page."""
    settings = [
        setting for setting in describe_settings(ExperimentConfig()) if not setting.is_section
    ]
    help_of = {setting.path: setting.help for setting in describe_settings(ExperimentConfig())}
    parts = [_HEAD]
    for parent, rows in _sections(settings).items():
        parts.append(f"## `{parent}`" if parent else "## Top level")
        section = help_of.get(parent.removesuffix("[]"), "")
        if section:
            parts.append(f"{section[:1].upper()}{section[1:]}.")
        parts.append("\n".join(_table(rows)))
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


def _sections(settings: Sequence[Setting]) -> dict[str, list[Setting]]:
    """Returns the settings by the path of their section, in order of first appearance."""
    sections: dict[str, list[Setting]] = {}
    for setting in settings:
        sections.setdefault(setting.path.rpartition(".")[0], []).append(setting)
    return sections


def _table(rows: Sequence[Setting]) -> Iterator[str]:
    for choices, group in itertools.groupby(rows, key=lambda setting: _choices(setting.choices)):
        if choices:
            yield f"Only with {choices}:\n"
        yield "| setting | type | default | what it does |\n|---|---|---|---|"
        for setting in group:
            default = _cell(json.dumps(setting.default, default=_plain, ensure_ascii=False))
            text = _cell(setting.help)
            if setting.allowed:
                text += f"; allowed: {_cell(setting.allowed)}"
            if setting.remark:
                text += f" ({_cell(setting.remark)})"
            yield f"| `{setting.path.rpartition('.')[2]}` | {setting.type} | `{default}` | {text} |"
        yield ""


def _choices(choices: Mapping[str, tuple[str, ...]]) -> str:
    return ", ".join(f"`{path}: {' or '.join(names)}`" for path, names in choices.items())


def _plain(value: object) -> object:
    assert isinstance(value, Mapping), value
    return dict(value)


def _cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
