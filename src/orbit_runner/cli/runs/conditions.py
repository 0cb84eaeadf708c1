"""The expressions of `runner runs --where`, such as `accuracy > 0.98 and status == finished`."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from typing import Any

from orbit_runner.cli.runs.columns import RunColumns
from orbit_runner.errors import RunnerError, shorten
from orbit_runner.run_directory.run_summary import RunSummary

_FLAG = "--where"
_EXAMPLE = "--where='accuracy > 0.98 and status == finished'"
_MAX_LENGTH = 2000
_COMPARE: Mapping[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.In: lambda left, right: left in right,
    ast.NotIn: lambda left, right: left not in right,
}
_DURATION = re.compile(r"(?<![\w.'\"])(\d+(?:\.\d+)?)\s?(s|min|h|d)\b(?!['\"])")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}

Condition = Callable[[RunSummary], bool]


def parse_condition(text: str, columns: RunColumns) -> Condition:
    """Returns a function that tells whether a run satisfies an expression.

    The expression compares columns, metrics and settings with numbers and words. It may use `and`,
    `or`, `not`, `in` and parentheses. A run that lacks a value does not satisfy a comparison with
    it. Raises `RunnerError` if the expression is invalid or a name is unknown.
    """
    if len(text) > _MAX_LENGTH:
        raise _error(text, "the expression is too long")
    in_seconds = _DURATION.sub(lambda found: str(float(found[1]) * _SECONDS[found[2]]), text)
    try:
        tree = ast.parse(in_seconds.strip(), mode="eval").body
        return _Parser(text, columns).condition(tree)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise _error(text, getattr(error, "msg", None) or "invalid expression") from None


class _Parser:
    def __init__(self, text: str, columns: RunColumns) -> None:
        self._text, self._columns = text, columns

    def condition(self, node: ast.expr) -> Condition:
        """Returns the condition that a node of the expression states."""
        if isinstance(node, ast.BoolOp):
            parts = [self.condition(value) for value in node.values]
            combine = all if isinstance(node.op, ast.And) else any
            return lambda run: combine(part(run) for part in parts)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            inner = self.condition(node.operand)
            return lambda run: not inner(run)
        if isinstance(node, ast.Compare):
            return self._comparison(node)
        raise _error(self._text, f"expected a comparison, got {ast.unparse(node)!r}")

    def _comparison(self, node: ast.Compare) -> Condition:
        values = [self._column(node.left), *(self._operand(one) for one in node.comparators)]
        operators = [_COMPARE.get(type(op)) for op in node.ops]

        def is_true(run: RunSummary) -> bool:
            found = [value(run) for value in values]
            pairs = zip(found, operators, found[1:], strict=False)
            return all(self._compare(*pair, node) for pair in pairs)

        if None in operators:
            raise _error(self._text, "use ==, !=, <, <=, >, >=, in or not in")
        return is_true

    def _compare(self, left: Any, compare: Any, right: Any, node: ast.Compare) -> bool:
        if left is None or right is None:
            return False
        try:
            return bool(compare(left, right))
        except TypeError:
            part, problem = ast.unparse(node), f"cannot compare {left!r} with {right!r}"
            where = "" if part == self._text.strip() else f"{part}: "
            raise _error(self._text, f"{where}{problem}") from None

    def _column(self, node: ast.expr) -> Callable[[RunSummary], Any]:
        name = _name_of(node)
        if name is None:
            return self._operand(node)
        self._columns.check(name, _FLAG)
        return lambda run: self._columns.value(run, name)

    def _operand(self, node: ast.expr) -> Callable[[RunSummary], Any]:
        name = _name_of(node)
        if name is not None:
            if self._columns.is_known(name):
                return lambda run: self._columns.value(run, name)
            # Words need no quotes: `status == running`.
            constant: Any = {"true": True, "false": False}.get(name, name)
            return lambda run: constant
        try:
            value = ast.literal_eval(_quote_words(node))
        except ValueError:
            raise _error(self._text, f"expected a value, got {ast.unparse(node)!r}") from None
        return lambda run: value


def _quote_words(node: ast.expr) -> ast.expr:
    """Returns a list or tuple with its words as strings, and any other node unchanged."""
    if isinstance(node, (ast.List, ast.Tuple, ast.Set)):
        items = [_quote_words(item) for item in node.elts]
        return ast.copy_location(ast.List(elts=items, ctx=ast.Load()), node)
    name = _name_of(node)
    return node if name is None else ast.copy_location(ast.Constant(name), node)


def _name_of(node: ast.expr) -> str | None:
    """Returns the name that a node spells: `accuracy`, `task.model.name` or `task/accuracy`."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = _name_of(node.value)
        return None if before is None else f"{before}.{node.attr}"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        left, right = _name_of(node.left), _name_of(node.right)
        return None if left is None or right is None else f"{left}/{right}"
    return None


def _error(text: str, reason: str) -> RunnerError:
    return RunnerError(f"{_FLAG}: {shorten(text)}: {reason}\nexample: {_EXAMPLE}")
