"""Writes YAML for Kubernetes and gcloud, with comments at the top."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from orbit_runner.config.parsing.yaml_files import parse_scalar


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings as blocks, and no aliases."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, value: str) -> yaml.ScalarNode:
    # PyYAML quotes what YAML 1.1 would not read as a string; `1e3` is a number in 1.2 only.
    style = "|" if "\n" in value else ("'" if not isinstance(parse_scalar(value), str) else None)
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)


_Dumper.add_representer(str, _represent_text)


def format_documents(values: Iterable[Mapping[str, Any]], header: Iterable[str]) -> str:
    """Returns YAML documents, with the lines of `header` as comments above them."""
    texts = [
        yaml.dump(dict(value), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=1000)
        for value in values
    ]
    return format_comment(header) + "---\n".join(texts)


def format_comment(lines: Iterable[str]) -> str:
    """Returns lines as comments. Splits multi-line text and replaces unprintable characters."""
    parts = [part for line in lines for part in (line.splitlines() or [""])]
    shown = ("".join(c if c.isprintable() else "?" for c in part) for part in parts)
    return "".join(f"# {text}".rstrip() + "\n" for text in shown)
