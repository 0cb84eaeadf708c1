"""The changes that can be made to a module, each in one place of its text.

A change keeps all other characters, so line numbers and comments stay. What is skipped cannot be
noticed, or need not be: docstrings and other texts, annotations, messages of errors and of the log,
decorators, blocks for type checkers or for one platform, and how long something waits.
"""

from __future__ import annotations

import ast
import dataclasses
import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_SWAPPED = {
    "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "==",
    "in": "not in", "not in": "in", "is": "is not", "is not": "is",
    "+": "-", "-": "+", "*": "/", "/": "*", "//": "*", "%": "//", "**": "*",
    "&": "|", "|": "&", "<<": ">>", ">>": "<<", "and": "or", "or": "and",
}  # fmt: skip
_SIGNS: Mapping[type[ast.AST], str] = {
    ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=", ast.Eq: "==", ast.NotEq: "!=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.Pow: "**", ast.BitAnd: "&", ast.BitOr: "|", ast.LShift: "<<", ast.RShift: ">>",
    ast.And: "and", ast.Or: "or",
}  # fmt: skip
# What only writes to the log.
_LOGGING = {
    "note", "note_once", "phase", "detail", "debug", "info", "warning", "warn", "error",
    "exception", "log",
}  # fmt: skip
_WAITING = ("sleep", "timeout", "grace", "poll")
# A change of these may end other processes, or delete other directories.
_DANGEROUS = {"kill", "killpg", "rmtree"}
# Swapped arguments fail at once, or mean the same.
_NOT_SWAPPED = {
    "cast", "isinstance", "issubclass", "getattr", "setattr", "hasattr", "map", "filter",
    "suppress",
}  # fmt: skip
_TYPES = {"str", "bytes", "int", "float", "bool", "Path", "type"}
_SKIPPED_FILES = ("templates/", "__init__.py", "__main__.py", "version.py")


@dataclasses.dataclass(frozen=True)
class Place:
    """A change in a module: what stands in the text from one byte to another, and what replaces it.

    Attributes:
        path: The module, relative to the directory of the package.
        line: The first line of what is replaced.
        function: The dotted name of the function or class that contains it; "" if there is none.
        kind: What is changed: `compare`, `number`, `statement` and so on.
        start: The first byte of what is replaced.
        end: The byte after it.
        before: The text that is replaced, on one line.
        after: The text that replaces it.
        is_statement: Whether this is a statement, not an expression.
    """

    path: str
    line: int
    function: str
    kind: str
    start: int
    end: int
    before: str
    after: str
    is_statement: bool = False

    @property
    def key(self) -> str:
        """A name that no other change has."""
        return f"{self.path}:{self.line} [{self.start}] {self.kind}"

    def apply(self, source: bytes, mark: Path) -> bytes:
        """Returns the changed text of the module. It creates the file `mark` when it is reached."""
        touch = f'__import__("io").open({str(mark)!r}, "a").close()'
        text = touch if self.is_statement else f"({touch} or ({self.after}))"
        return source[: self.start] + text.encode() + source[self.end :]


def choose_places(root: Path, count: int, seed: int) -> list[Place]:
    """Returns changes of different lines of a package; each line is as likely as any other.

    Args:
        root: The directory of the package.
        count: How many changes to return.
        seed: Another seed gives other changes.
    """
    by_line: dict[tuple[str, int], list[Place]] = {}
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root).as_posix()
        if not any(part in name for part in _SKIPPED_FILES):
            for place in places_of(path.read_bytes(), name):
                by_line.setdefault((place.path, place.line), []).append(place)
    draws = random.Random(seed)
    lines = draws.sample(sorted(by_line), min(count, len(by_line)))
    return [_draw(by_line[line], draws) for line in lines]


def _draw(places: Sequence[Place], draws: random.Random) -> Place:
    """Returns one of the changes of a line: swapped arguments, which are easy to notice, last."""
    return draws.choice([each for each in places if each.kind != "arguments"] or places)


def places_of(source: bytes, path: str) -> list[Place]:
    """Returns all changes that can be made to a module."""
    return list(_Finder(source, path).visit(ast.parse(source)))


class _Finder:
    """Walks over a module and yields its changes."""

    def __init__(self, source: bytes, path: str) -> None:
        self._source, self._path = source, path
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._scope: list[str] = []

    def visit(self, node: ast.AST) -> Iterator[Place]:
        if _is_skipped(node):
            return
        yield from self._changes(node)
        is_scope = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
        if is_scope:
            self._scope.append(node.name)  # type: ignore[attr-defined]
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "bases", "pattern"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.visit(child)
        if is_scope:
            self._scope.pop()

    def _changes(self, node: ast.AST) -> Iterator[Place]:
        match node:
            case ast.Compare(left=left, ops=[operator], comparators=[right]):
                yield self._swap_operator("compare", node, left, operator, right)
            case ast.BinOp(left=left, op=operator, right=right) if not _fails_at_once(node):
                yield self._swap_operator("arithmetic", node, left, operator, right)
            case ast.BoolOp(op=operator, values=[left, right]):
                yield self._swap_operator("boolean", node, left, operator, right)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._replace("not", node, self._text(operand))
            case ast.Constant(value=bool(value)):
                yield self._replace("boolean value", node, str(not value))
            case ast.Constant(value=int(value) | float(value)):
                yield self._replace("number", node, f"{self._text(node)} + 1")
            case (
                ast.If(test=test)
                | ast.IfExp(test=test)
                | ast.While(test=test)
                | ast.comprehension(ifs=[test])
            ) if not isinstance(test, (ast.Compare, ast.UnaryOp, ast.Constant)):
                yield self._replace("condition", test, f"not ({self._text(test)})")
            case ast.Expr(value=ast.Call()) | ast.AugAssign():
                yield self._replace("statement", node, "", is_statement=True)
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript()]):
                yield self._replace("statement", node, "", is_statement=True)
            case ast.Return(value=ast.expr() as value) if not _is_none(value):
                yield self._replace("return", value, "None")
            case ast.Call(func=called, args=[first, second, *_]):
                starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
                equal = ast.dump(first) == ast.dump(second)
                if not (starred or equal or _last_name(called) in _NOT_SWAPPED):
                    yield self._swap_arguments(node, first, second)

    def _swap_operator(
        self, kind: str, node: ast.AST, left: ast.AST, operator: ast.AST, right: ast.AST
    ) -> Place:
        sign = _SIGNS.get(type(operator), "@")
        swapped = _SWAPPED.get(sign, "*")
        return self._replace(kind, node, f"({self._text(left)}) {swapped} ({self._text(right)})")

    def _swap_arguments(self, node: ast.AST, first: ast.AST, second: ast.AST) -> Place:
        start, end = self._range(node)
        text = self._source
        parts = (
            text[start : self._range(first)[0]].decode(),
            self._text(second),
            text[self._range(first)[1] : self._range(second)[0]].decode(),
            self._text(first),
            text[self._range(second)[1] : end].decode(),
        )
        return self._replace("arguments", node, "".join(parts))

    def _replace(
        self, kind: str, node: ast.AST, after: str, *, is_statement: bool = False
    ) -> Place:
        start, end = self._range(node)
        return Place(
            path=self._path,
            line=node.lineno,  # type: ignore[attr-defined]
            function=".".join(self._scope),
            kind=kind,
            start=start,
            end=end,
            before=" ".join(self._text(node).split()),
            after=after,
            is_statement=is_statement,
        )

    def _range(self, node: ast.AST) -> tuple[int, int]:
        """Returns the bytes of a node."""
        assert isinstance(node, (ast.expr, ast.stmt))
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._lines[node.lineno - 1] + node.col_offset,
            self._lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def _text(self, node: ast.AST) -> str:
        start, end = self._range(node)
        return self._source[start:end].decode()


def _is_skipped(node: ast.AST) -> bool:
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.MatchValue() | ast.Import():
            return True
        case ast.If(test=test):
            words = ast.unparse(test)
            return any(word in words for word in ("TYPE_CHECKING", "__name__", "sys.platform"))
        case ast.Call(func=called) | ast.Expr(value=ast.Call(func=called)):
            name = _last_name(called)
            return name in _LOGGING or name in _DANGEROUS or _is_wait(name)
        case ast.keyword(arg=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return _is_wait(name)
        case ast.Assign(targets=[ast.Name(id=name)]):
            return _is_wait(name) or name in ("__all__", "__slots__")
    return False


def _is_wait(name: str | None) -> bool:
    return name is not None and any(word in name.lower() for word in _WAITING)


def _last_name(node: ast.AST) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _fails_at_once(node: ast.BinOp) -> bool:
    """Returns whether operands are texts, or types, which have no other operator."""
    operands = (node.left, node.right)
    if isinstance(node.op, ast.BitOr) and any(_is_type(operand) for operand in operands):
        return True
    return any(
        isinstance(part, ast.JoinedStr)
        or (isinstance(part, ast.Constant) and isinstance(part.value, (str, bytes)))
        for operand in operands
        for part in ast.walk(operand)
    )


def _is_type(node: ast.AST) -> bool:
    return _is_none(node) or isinstance(node, ast.Subscript) or _last_name(node) in _TYPES


def _is_none(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and node.value is None


def names_that_reach(source: bytes, function: str) -> Sequence[str]:
    """Returns names of a module to look for in tests: of a function, and of those that use it."""
    if not function:
        return ()
    tree = ast.parse(source)
    defined = {
        node.name: {_last_name(each) for each in ast.walk(node)} - {""}
        for node in ast.walk(tree)
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))
    }
    names = [name for name in function.split(".") if not name.startswith("__")][::-1]
    for name in names:
        names += [other for other, used in defined.items() if name in used and other not in names]
    return names
