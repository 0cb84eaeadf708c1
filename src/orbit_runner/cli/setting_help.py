"""`runner help SETTING`: the type, default, limits and effect of a setting."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence

from orbit_runner.cli.command import SECTIONS, Command
from orbit_runner.cli.flags.config_flags import (
    CONFIG_FLAGS,
    SETTINGS_OF_FLAG,
    build_request,
    print_notes,
)
from orbit_runner.cli.flags.rows import flag
from orbit_runner.config.describe import Setting, describe_settings
from orbit_runner.config.errors import DEFAULT
from orbit_runner.config.resolve import Request, ResolvedConfig, resolve
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.config.serialize import flat_settings, inline_yaml
from orbit_runner.errors import RunnerError, nearest_name_hint
from orbit_runner.utils.streams import print_result
from orbit_runner.utils.text_table import described_lines, terminal_width

_NAME_WIDTH = 9
_DESCRIPTION = """\
Describe settings or sections: type, default, allowed values and effect.
With --experiment, also print the value there and where it was set."""


def main(flags: argparse.Namespace) -> int:
    """Prints descriptions of the given settings. Returns 0."""
    request = build_request(flags)
    resolved = resolve(request) if request != Request() else None
    if resolved is not None:
        print_notes(resolved)
    # A resolved config has the classes of its own task; otherwise all tasks are described.
    known = describe_settings(resolved.config if resolved is not None else ExperimentConfig())
    settings = [setting for name in flags.setting for setting in _find_settings(name, known)]
    texts = ("\n".join(_setting_lines(setting, known, resolved)) for setting in settings)
    print_result("\n\n".join(texts))
    return 0


def _find_settings(name: str, known: Sequence[Setting]) -> list[Setting]:
    """Returns the settings with a path, or the settings whose path ends with a name."""
    # All items of a list have the same settings: `callbacks[0]` is described as `callbacks[]`.
    wanted = re.sub(r"\[\d+\]", "[]", name.lstrip("-").partition("=")[0])
    paths = SETTINGS_OF_FLAG.get(wanted, (wanted,))
    matches = [setting for setting in known if setting.path in paths]
    matches = matches or [setting for setting in known if setting.path.endswith(f".{wanted}")]
    if not matches:
        names = {setting.path.rpartition(".")[2] for setting in known}
        near = nearest_name_hint(wanted, [*(setting.path for setting in known), *names])
        raise RunnerError(
            f"unknown setting {name!r}{near}\n`runner help trainer` lists a section",
            code="unknown-setting",
        )
    return matches


def _setting_lines(
    setting: Setting, known: Sequence[Setting], resolved: ResolvedConfig | None
) -> Iterator[str]:
    yield setting.path
    yield f"  {setting.help}"
    if not setting.is_section:
        yield _format_row("type", setting.type)
        yield _format_row("default", inline_yaml(setting.default))
    if setting.allowed:
        yield _format_row("allowed", setting.allowed)
    if setting.remark:
        yield _format_row("note", setting.remark)
    if setting.choices:
        choices = (f"{path}: {', '.join(names)}" for path, names in setting.choices.items())
        yield _format_row("only with", "; ".join(choices))
    if not setting.is_section and setting.path.count("."):
        yield _format_row("set by", ", ".join(_setting_flags(setting.path)))
    if resolved is not None:
        yield from _value_lines(setting, resolved)
    yield from _child_lines(setting, known)


def _format_row(name: str, text: str) -> str:
    return "\n".join(described_lines({name: text}, terminal_width(), _NAME_WIDTH))


def _setting_flags(path: str) -> list[str]:
    short = [f"--{flag}" for flag, paths in SETTINGS_OF_FLAG.items() if path in paths]
    return [f"--{path}=VALUE", *(f"{flag}=VALUE" for flag in short)]


def _value_lines(setting: Setting, resolved: ResolvedConfig) -> Iterator[str]:
    values = flat_settings(resolved.config)
    if setting.path in values:
        origin = resolved.origins.get(setting.path, DEFAULT)
        yield _format_row("value", f"{inline_yaml(values[setting.path])} ({origin})")


def _child_lines(setting: Setting, known: Sequence[Setting]) -> Iterator[str]:
    starts = (f"{setting.path}.", f"{setting.path}[].")
    names = [(below, below.path.rpartition(".")) for below in known]
    rows = {
        name + ("." if below.is_section else ""): below.help
        for below, (parent, dot, name) in names
        if parent + dot in starts
    }
    yield from described_lines(rows, terminal_width(), indent="    ")


_SETTING = flag(
    "setting=setting",
    "setting, by its path (trainer.train_steps) or its name (train_steps), or a section",
    nargs="+",
)
COMMAND = Command(
    "help",
    _DESCRIPTION,
    [_SETTING, *CONFIG_FLAGS],
    ["train_steps --experiment=digits"],
    main,
    settings=SECTIONS,
)
