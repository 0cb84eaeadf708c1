"""Reads the arguments of a function of the user, and checks values for them.

`declared_parameters` reads the source of the module and does not import it, so a config can be
checked before a module that imports TensorFlow is imported.
"""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib.machinery
import importlib.util
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from inspect import Parameter, Signature
from pathlib import Path

from orbit_runner.config.errors import Problem
from orbit_runner.errors import nearest_name_hint, shorten, unknown_name_message

# Decorators of Keras, which keep the arguments.
_TRANSPARENT = (
    *("keras_export", "register_keras_serializable"),
    *("inject_mesh", "allow_initializer_layout"),
)
# The maximum number of `from … import name` to follow to the definition of a function.
_MAX_MODULES = 5
_TYPES: dict[str, tuple[type, ...]] = {
    "bool": (bool,),
    "str": (str,),
    "float": (int, float),
    "int": (int,),
}


# The default of a parameter whose default is not a literal.
UNKNOWN = object()


def reference_problem(reference: str, example: str, *, to_class: bool = False) -> str:
    """Returns why a reference is not of the form `module:name`, or "" if it is.

    With `to_class`, the form is `module.Class`.
    """
    module, _, name = reference.rpartition("." if to_class else ":")
    if all(part.isidentifier() for part in (*module.split("."), name)):
        return ""
    what = "a class" if to_class else "a name in it"
    return f"got {shorten(repr(reference))}, expected a module and {what}: {example}"


def module_problem(module: str) -> str:
    """Returns that a module does not exist, or "" if it does. Does not import it.

    Imports its packages only if it is not found without them.
    """
    try:
        source_path(module)
    except ImportError as error:
        # Some packages have further modules once they are imported, such as `tensorflow.keras`.
        with contextlib.suppress(Exception, SystemExit):
            if importlib.util.find_spec(module) is not None:
                return ""
        return _not_found(error)
    return ""


def _not_found(error: ImportError) -> str:
    return f"{error}\nrun from the directory that contains it, or add that directory to PYTHONPATH"


def declared_parameters(reference: str) -> Signature | str | None:
    """Returns the signature of a function or class `module:name`, read from its source.

    Returns a message if there is no such module or name. Returns None if the source does not show
    the signature: the module is not in Python, or the function is decorated, assigned or inherited.
    """
    module, _, name = reference.partition(":")
    try:
        return _find_signature(module, name, _MAX_MODULES)
    except ImportError as error:
        return _not_found(error)


def actual_parameters(function: Callable[..., object]) -> Signature | None:
    """Returns the signature of a function; None if Python does not know it."""
    try:
        return inspect.signature(function)
    except (TypeError, ValueError):
        return None


def keyword_parameters(signature: Signature) -> dict[str, Parameter]:
    """Returns the parameters that can be passed by keyword."""
    kinds = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
    return {name: p for name, p in signature.parameters.items() if p.kind in kinds}


def argument_problems(
    signature: Signature, arguments: Mapping[str, object], reference: str
) -> Iterator[Problem]:
    """Yields (argument, message) for each argument that a function does not accept or lacks."""
    for name, message in _argument_messages(signature, arguments):
        yield Problem(name, f"{reference}: {message}", code="bad-arguments")


def _argument_messages(
    signature: Signature, arguments: Mapping[str, object]
) -> Iterator[tuple[str, str]]:
    known = keyword_parameters(signature)
    takes_any = any(p.kind is p.VAR_KEYWORD for p in signature.parameters.values())
    for name, value in arguments.items():
        if name in known and not _accepts(known[name], value):
            parameter = known[name]
            like = f"a value like its default, {parameter.default!r}"
            expected = _annotation_text(parameter) or like
            yield name, f"got {shorten(repr(value))}, expected {expected}"
        elif name not in known and not takes_any:
            yield name, unknown_name_message("argument", name, list(known))
    for name, parameter in known.items():
        if parameter.default is parameter.empty and name not in arguments:
            yield name, f"the argument {name!r} is required; set it"


def literal_defaults(signature: Signature) -> dict[str, object]:
    """Returns the defaults that a config file can contain, by argument."""
    return {
        name: parameter.default
        for name, parameter in signature.parameters.items()
        if _is_plain(parameter.default)
    }


def _is_plain(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return all(_is_plain(item) for item in value)
    if isinstance(value, dict):
        return all(isinstance(key, str) and _is_plain(item) for key, item in value.items())
    return value is None or isinstance(value, (str, bool, int, float))


def source_path(module: str) -> Path | None:
    """Returns the file of a module without importing it or its packages.

    Returns None if it is not written in Python. Raises `ImportError` if it does not exist.
    """
    locations: Sequence[str] | None = None
    origin: str | None = None
    parts = module.split(".")
    for count in range(1, len(parts) + 1):
        name = ".".join(parts[:count])
        try:
            spec = (
                importlib.util.find_spec(name)
                if locations is None
                else importlib.machinery.PathFinder.find_spec(name, locations)
            )
        except (ImportError, ValueError):
            spec = None
        except KeyError:
            # A directory without `__init__.py`: Python asks the package above it, once imported.
            below = [os.path.join(location, parts[count - 1]) for location in locations or ()]
            spec = importlib.machinery.ModuleSpec(name, None, is_package=True)
            spec.submodule_search_locations = below
        if spec is None:
            raise ModuleNotFoundError(f"no module named {name!r}")
        locations = spec.submodule_search_locations or []
        origin = spec.origin
    path = Path(origin) if origin else None
    return path if path is not None and path.suffix == ".py" and path.is_file() else None


def _find_signature(module: str, name: str, max_modules: int) -> Signature | str | None:
    path = source_path(module)
    if path is None or not max_modules:
        return None
    body = _parse_module(path, path.stat().st_mtime_ns)
    functions = list[str]()
    stars = False
    for node in reversed(body):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            if node.name == name:
                return _signature(node, path)
            functions.append(node.name)
        elif isinstance(node, ast.ImportFrom):
            for alias in node.names:
                stars |= alias.name == "*"
                if (alias.asname or alias.name) == name:
                    return _find_signature(
                        _absolute_module(node, module, path), alias.name, max_modules - 1
                    )
        elif not isinstance(node, (ast.Import, ast.Expr, ast.AsyncFunctionDef)):
            stars |= name in _assigned_names(node)
    if stars:
        return None
    public = [function_name for function_name in functions if not function_name.startswith("_")]
    return f"{module} has no function or class {name!r}{nearest_name_hint(name, public)}"


@functools.lru_cache(maxsize=64)
def _parse_module(path: Path, mtime_ns: int) -> list[ast.stmt]:
    del mtime_ns  # Part of the key, so that a changed file is read again.
    try:
        return ast.parse(path.read_bytes()).body
    except (SyntaxError, ValueError) as error:
        raise ImportError(f"{path} is not valid Python: {error}") from error


def _absolute_module(node: ast.ImportFrom, module: str, path: Path) -> str:
    if not node.level:
        return node.module or ""
    parts = module.split(".") if path.name == "__init__.py" else module.split(".")[:-1]
    parts = parts[: len(parts) - node.level + 1]
    return ".".join([*parts, *([node.module] if node.module else [])])


def _assigned_names(node: ast.stmt) -> set[str]:
    """Returns the names that a statement may define, such as an assignment or an `if` block."""
    names: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store):
            names.add(part.id)
        elif isinstance(part, (ast.FunctionDef, ast.ClassDef)):
            names.add(part.name)
        elif isinstance(part, ast.alias):
            names.add(part.asname or part.name)
    return names


def _signature(node: ast.FunctionDef | ast.ClassDef, path: Path) -> Signature | None:
    if _is_decorated(node):
        return None
    skip = 0
    if isinstance(node, ast.ClassDef):
        inner = [statement for statement in node.body if isinstance(statement, ast.FunctionDef)]
        constructor = next((method for method in inner if method.name == "__init__"), None)
        if constructor is None or _is_decorated(constructor):
            return None
        node = constructor
        skip = 1
    arguments = node.args
    plain = [*arguments.posonlyargs, *arguments.args]
    defaults: list[ast.expr | None] = [None] * (len(plain) - len(arguments.defaults))
    rows = list(zip(plain, [*defaults, *arguments.defaults], strict=True))
    rows = rows[max(skip, len(arguments.posonlyargs)) :]
    rows += zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)
    parameters = [_parameter(argument, default) for argument, default in rows]
    if arguments.kwarg is not None:
        parameters.append(Parameter(arguments.kwarg.arg, Parameter.VAR_KEYWORD))
    try:
        return Signature(parameters)
    except ValueError as error:  # Two parameters have the same name.
        raise ImportError(f"{path} is not valid Python: {error}") from error


def _is_decorated(node: ast.FunctionDef | ast.ClassDef) -> bool:
    called = [
        decorator.func if isinstance(decorator, ast.Call) else decorator
        for decorator in node.decorator_list
    ]
    return any(_last_name(decorator) not in _TRANSPARENT for decorator in called)


def _parameter(argument: ast.arg, default: ast.expr | None) -> Parameter:
    hint = argument.annotation
    annotation = Parameter.empty if hint is None else ast.unparse(hint)
    value: object = Parameter.empty
    if default is not None:
        try:
            value = ast.literal_eval(default)
        except ValueError:
            value = UNKNOWN
    kind = Parameter.KEYWORD_ONLY
    return Parameter(argument.arg, kind, default=value, annotation=annotation)


def _annotation_text(parameter: Parameter) -> str:
    """Returns the source of an annotation; "" if there is none."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        return ""
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def _accepts(parameter: Parameter, value: object) -> bool:
    """Returns whether a value fits: annotations of one plain type are checked, others are not."""
    annotation = _annotation_text(parameter)
    expected = _TYPES.get(annotation)
    if not annotation and value is not None:
        default = parameter.default
        expected = next((kind for kind in _TYPES.values() if _is_of(default, kind)), None)
    return expected is None or _is_of(value, expected)


def _is_of(value: object, kind: tuple[type, ...]) -> bool:
    return isinstance(value, kind) and (bool in kind or not isinstance(value, bool))


def _last_name(node: ast.expr) -> str:
    """Returns the last part of a dotted name; "" for any other expression."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
