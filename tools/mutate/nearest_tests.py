"""Which test files cover a module, nearest first, by what they import and by their names."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

# Whole runs, or the source itself: too slow, or they watch which files a process writes.
_SKIPPED = (
    "clusters/", "faults/", "fuzz/", "kills/", "portable", "properties/", "soak/", "test_docker",
    "test_docs_pages", "test_golden", "test_notebooks", "tools/test_fuzz", "tools/test_mutate",
)  # fmt: skip
_FAR = 4
# The commands, which `cli.main` imports by their names. Tests run it, also with the fixture `cli`.
_MAIN, _COMMANDS = "cli.main", "cli.commands."
_REFERENCE = re.compile(r"^([\w.]+):\w+$")


class NearestTests:
    """The test files of a repository, and the modules that they import.

    Attributes:
        modules: For each module of the package, those that it imports, by their dotted names.
        files: For each test file, the modules that it imports, itself or by its helpers.
    """

    def __init__(self, root: Path, package: str) -> None:
        source = root / "src" / package
        paths = {_dotted(path, source.parent): path for path in sorted(source.rglob("*.py"))}
        self.modules = {name: _imports(path, name, paths, package) for name, path in paths.items()}
        main = f"{package}.{_MAIN}"
        if main in self.modules:
            self.modules[main] |= {
                name for name in paths if name.startswith(f"{package}.{_COMMANDS}")
            }
        helpers = {_dotted(path, root): path for path in sorted(root.glob("tests/**/*.py"))}
        known = {**paths, **helpers}
        imports = {name: _imports(path, name, known, package) for name, path in helpers.items()}
        self.files = {
            path.relative_to(root).as_posix(): _expand(imports[name], imports)
            for name, path in helpers.items()
            if path.name.startswith("test_") and not any(part in str(path) for part in _SKIPPED)
        }
        self._texts = {
            name: set(re.findall(r"\w+", (root / name).read_text(encoding="utf-8")))
            for name in self.files
        }
        for name, words in self._texts.items():
            if "cli" in words:
                self.files[name] |= {main}

    def nearest(self, module: str, names: Iterable[str] = ()) -> list[str]:
        """Returns the test files that reach a module, the most likely to notice a change first.

        Args:
            module: The dotted name of the module.
            names: Names in it that lead to the changed place, the nearest first.
        """
        distances = self._distances(module)
        wanted = list(names)[:8]
        return sorted(
            (name for name in self.files if self._distance(name, distances) <= _FAR),
            key=lambda name: (self._cost(name, module, distances, wanted), name),
        )

    def _cost(
        self, name: str, module: str, distances: Mapping[str, int], wanted: Collection[str]
    ) -> float:
        """Returns a number that is low for tests that import the module and name what changed."""
        mentioned = [
            1 / (2 + rank) for rank, word in enumerate(wanted) if word in self._texts[name]
        ]
        parts = module.split(".")[1:]
        shared = {*re.split(r"[./_]", name)} & {*re.split(r"[._]", ".".join(parts))}
        same_package = name.startswith(f"tests/{parts[0]}/")
        nearness = 4 * sum(mentioned) + len(shared) + same_package
        return self._distance(name, distances) - nearness

    def _distance(self, name: str, distances: Mapping[str, int]) -> int:
        return min((distances.get(module, 99) for module in self.files[name]), default=99)

    def _distances(self, module: str) -> dict[str, int]:
        """Returns how many imports lead from each module to this one."""
        distances, edge = {module: 0}, {module}
        for steps in range(1, _FAR + 1):
            edge = {
                name
                for name, imported in self.modules.items()
                if name not in distances and imported & edge
            }
            distances.update(dict.fromkeys(edge, steps))
        return distances


def _dotted(path: Path, root: Path) -> str:
    parts = path.relative_to(root).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, name: str, known: Collection[str], package: str) -> set[str]:
    """Returns the known modules that a file imports, or refers to as `"module:name"`."""
    imported: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            above = name.split(".")[: -node.level] if node.level else []
            module = ".".join([*above, node.module] if node.module else above)
            imported |= {module, *(f"{module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and (match := _REFERENCE.match(str(node.value))):
            imported |= {match[1], f"{package}.{match[1]}"}
    return imported & {*known}


def _expand(names: Collection[str], imports: Mapping[str, set[str]]) -> set[str]:
    """Returns modules, and those that helpers among them import."""
    reached, rest = set[str](), [*names]
    while rest:
        name = rest.pop()
        if name not in reached:
            reached.add(name)
            rest += imports.get(name, ())
    return reached
