"""Writes the table of layers in docs/architecture.md: `python -m tools.architecture_page`.

What a package contains is its docstring; of a module, the first line counts.
`tests/test_layers.py` checks the imports, and another test that the table is up to date.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

_ROOT = Path(__file__).resolve().parents[1]
PAGE = _ROOT / "docs" / "architecture.md"
_SOURCE = _ROOT / "src" / "orbit_runner"
_HEAD = "| layer | contents |\n|---|---|\n"
# From the bottom to the top: each imports only those above it in this list.
LAYERS = (
    "version",
    "exit_codes",
    "error_codes",
    "errors",
    "tf_internals",
    "storage",
    "utils",
    "run_directory.paths",
    "registration",
    "registry",
    "config",
    "determinism",
    "data",
    "datasets",
    "models",
    "distribute",
    "model_garden",
    "tasks",
    "state",
    "checkpoint",
    "run_directory",
    "compare",
    "trackers",
    "train",
    "serving",
    "step",
    "inspection",
    "train_lib",
    "launch",
    "reporting",
    "sweep",
    "jobs",
    "init",
    "repeat",
    "saved_run",
    "run_model",
    "cli",  # The last one: the Python API imports the jobs, and not the command line.
)
WITHOUT_TENSORFLOW = (
    "version",
    "exit_codes",
    "error_codes",
    "errors",
    "storage",
    "registration",
    "registry",
    "config",
    "trackers",
    "run_directory.paths",
    "sweep",
)


def page() -> str:
    """Returns the text of the page with the table of layers as it is now."""
    before, _, after = PAGE.read_text(encoding="utf-8").partition(_HEAD)
    _, _, rest = after.partition("\n\n")
    return f"{before}{_HEAD}{''.join(map(_row, LAYERS))}\n{rest}"


def _row(layer: str) -> str:
    path = _SOURCE / layer.replace(".", "/")
    is_package = path.is_dir()
    module = path / "__init__.py" if is_package else path.with_suffix(".py")
    docstring = ast.get_docstring(ast.parse(module.read_text(encoding="utf-8"))) or ""
    text = docstring if is_package else docstring.partition("\n")[0]
    contents = " ".join(text.split())
    if layer in WITHOUT_TENSORFLOW:
        contents += " Never imports TensorFlow."
    name = f"{layer.replace('.', '/')}{'/' if is_package else '.py'}"
    return f"| `{name}` | {contents} |\n"


def main() -> int:
    """Writes the page."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
