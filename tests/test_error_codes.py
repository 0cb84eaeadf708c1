"""The codes of errors: each error has one, and each is used."""

import ast

from orbit_runner.error_codes import MEANINGS, UNSPECIFIC
from tests.support.source import FILES, ROOT, nodes_of

# The errors that are of several kinds, so that each place that makes one names the kind.
GENERAL = ("Problem", "RunnerError", "DataError", "SettingError")
# Where the code of a problem stands if it is not named.
POSITION = {"Problem": 3}


def code_of(call: ast.Call, name: str) -> ast.expr | None:
    named = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    position = POSITION.get(name, len(call.args))
    return named[0] if named else call.args[position] if len(call.args) > position else None


def test_each_error_names_its_kind():
    missing = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in FILES
        for node in nodes_of(path)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in GENERAL
        and code_of(node, node.func.id) is None
    ]

    assert not missing, "add code=…, one of orbit_runner.error_codes"


def test_each_code_is_used_and_in_the_list():
    used = set()
    for path in FILES:
        for node in nodes_of(path):
            if isinstance(node, ast.Call):
                code = code_of(node, getattr(node.func, "id", ""))
                used |= {code.value} if isinstance(code, ast.Constant) else set()
            names = node.targets if isinstance(node, ast.Assign) else ()
            if [getattr(name, "id", "") for name in names] == ["code"]:
                used |= {node.value.value} if isinstance(node.value, ast.Constant) else set()
    codes = {code for code in used if isinstance(code, str)} - {""}

    assert {*MEANINGS} - codes <= {UNSPECIFIC}
    assert codes - {*MEANINGS} == set()
