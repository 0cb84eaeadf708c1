"""Flags that override settings, in the order of the command line, in which the last one wins."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

from orbit_runner.cli.flags.values import PathValue, resolve_path

# Stands for all flags of the form `--trainer.train_steps=5`, which argparse does not know.
SETTING_FLAG = "--SECTION.NAME"


class OverrideAction(argparse.Action):
    """Adds what a flag sets to `overrides`: tuples of flag, dotted path and text.

    The path of a flag that may set several settings, such as `--params_override`, is "".
    """

    def __init__(self, *names: Any, settings: Sequence[str] = ("",), **keywords: Any) -> None:
        super().__init__(*names, **keywords | {"default": argparse.SUPPRESS})
        self._settings = settings

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Adds what the flag sets; argparse calls this for each one, in their order."""
        flag = self.option_strings[0]
        if isinstance(self.type, PathValue):
            values = resolve_path(self.type, values, flag)
        if flag == SETTING_FLAG:
            path, _, text = values.partition("=")
            namespace.overrides.append((f"--{path}", path, text))
        else:
            namespace.overrides += [(flag, path, values) for path in self._settings]
