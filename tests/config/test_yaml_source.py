from __future__ import annotations

import json
import math
from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.tree import leaves
from orbit_runner.config.parsing.yaml_files import load_file, load_text, parse_scalar
from tests.support.problems import check


def values(text: str) -> dict[str, Any]:
    return {path: leaf.value for path, leaf in leaves(load_text(text, "f.yaml", 1))}


def refused(text: str, code: str = "bad-syntax") -> list[tuple[str, int | None]]:
    """Returns the path and the line of each problem of a file; all have the same code."""
    with pytest.raises(ConfigError) as caught:
        load_text(text, "f.yaml", 1)
    problems = caught.value.problems
    check(problems, *((code, problem.path) for problem in problems))
    return [(p.path, p.origin.line if p.origin else None) for p in problems]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", None),
        ("~", None),
        ("Null", None),
        ("true", True),
        ("FALSE", False),
        ("yes", "yes"),
        ("off", "off"),
        ("y", "y"),
        ("0", 0),
        ("-17", -17),
        ("+3", 3),
        ("010", 10),
        ("64_000", 64000),
        ("0x1F", 31),
        ("0o17", 15),
        ("1e-3", 0.001),
        ("1E5", 1e5),
        ("-2.5e+3", -2500.0),
        (".5", 0.5),
        ("1.", 1.0),
        ("1_000.5", 1000.5),
        (".inf", math.inf),
        ("-.INF", -math.inf),
        ("1__0", "1__0"),
        ("2024_", "2024_"),
        ("1:30", "1:30"),
        ("2020-01-01", "2020-01-01"),
        ("1e", "1e"),
        (".", "."),
        ("-", "-"),
        ("inf", "inf"),
        ("0o8", "0o8"),
        ("1.2.3", "1.2.3"),
    ],
)
def test_an_unquoted_scalar_follows_the_core_schema_of_yaml_1_2(text, value):
    got = parse_scalar(text)

    assert got == value
    assert type(got) is type(value)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("'5'", "5"),
        ('"1e-3"', "1e-3"),
        ("'off'", "off"),
        ("''", ""),
        ("!!str 5", "5"),
        ("!!str 010", "010"),
        ('!!int "20"', 20),
        ("!!float 3", 3.0),
        ("!!bool 'true'", True),
        ("!!null ''", None),
        ("!!seq [1]", [1]),
        ("! 12", "12"),
        ("00", 0),
        ("0.5", 0.5),
        ("&a !!str 5", "5"),
        ("&a 5", 5),
        ("[1, '2', [3.0, x]]", [1, "2", [3.0, "x"]]),
        ("[{a: 1}, {b: [2]}]", [{"a": 1}, {"b": [2]}]),
        ("|\n  5\n", "5\n"),
        (">-\n  a\n  b\n", "a b"),
        ('"\\ud83d\\ude00"', "😀"),
        ("日本", "日本"),
    ],
)
def test_yaml_value_keeps_its_written_type(written, value):
    tree = values(f"x: {written}")

    assert tree == {"x": value}
    assert type(tree["x"]) is type(value)


@pytest.mark.parametrize(
    "written",
    [
        *('!!int "x"', "!!int 1.5", "!!bool yes", "!foo 20", "!!timestamp 2020-01-01"),
        *("!!binary aGk=", "!!python/name:os.system", "!foo {a: 1}", "!!set {a, b}"),
        *("!!omap [a: 1]", "[1, !foo 2]", "010", "-0_8", "[00777]"),
    ],
)
def test_ambiguous_or_mistagged_value_is_rejected_with_its_line(written):
    ((path, line),) = refused(f"a: 1\nx: {written}\n")

    assert path.startswith("x")
    assert line == 2


def test_every_leaf_and_section_records_its_line():
    text = (
        "# comment\ntask:\n  model:\n\n    depth: 20\n    filters: [1,\n      2]\ntrainer: {a: 1}\n"
    )

    root = load_text(text, "a.yaml", 3)

    lines = {path: str(leaf.origin) for path, leaf in leaves(root)}
    assert lines == {
        "task.model.depth": "a.yaml:5",
        "task.model.filters": "a.yaml:6",
        "trainer.a": "a.yaml:8",
    }
    assert root.children["task"].origin.line == 2
    assert all(leaf.origin.layer == 3 for _, leaf in leaves(root))


def test_origin_of_a_flag_has_no_line():
    root = load_text("a: 1", "--params_override[0]", 1, with_lines=False)

    assert str(root.children["a"].origin) == "--params_override[0]"


def test_anchors_aliases_and_merge_keys_are_expanded():
    text = """
base: &base {a: 1, b: 2, deep: {x: 1, y: 2}}
plain: *base
before: {b: 3, <<: *base}
after: {<<: *base, b: 3}
nested: {<<: *base, deep: {x: 5}}
first_wins: {<<: [{a: 10}, *base]}
"""
    got = values(text)

    assert {k: v for k, v in got.items() if k.startswith("plain")} == {
        "plain.a": 1,
        "plain.b": 2,
        "plain.deep.x": 1,
        "plain.deep.y": 2,
    }
    assert (got["before.a"], got["before.b"]) == (1, 3)
    assert (got["after.a"], got["after.b"]) == (1, 3)
    assert got["nested.deep.x"] == 5
    assert "nested.deep.y" not in got
    assert (got["first_wins.a"], got["first_wins.b"]) == (10, 2)


def test_quoted_merge_key_is_an_ordinary_name():
    assert values("x: {'<<': 1}") == {"x.<<": 1}


@pytest.mark.parametrize("text", ["a: {<<: 5}", "a: {<<: [1]}"])
def test_merge_key_without_a_section_is_rejected(text):
    assert refused(text) == [("a", 1)]


@pytest.mark.parametrize(
    ("text", "path", "line"),
    [
        ("a: 1\nb: 2\na: 3\n", "a", 3),
        ("t:\n  m:\n    d: 1\n    d: 2\n", "t.m.d", 4),
        ("l:\n- {x: 1,\n   x: 2}\n", "l[0].x", 3),
        ("l: [[{x: 1, x: 2}]]\n", "l[0][0].x", 1),
        ("a: 1\n'a': 3\n", "a", 2),
    ],
)
def test_duplicate_key_is_rejected_at_any_depth(text, path, line):
    assert refused(text, "set-twice") == [(path, line)]


def test_all_duplicate_keys_are_reported_at_once():
    assert refused("a: 1\na: 2\nb: {c: 1, c: 2}\n", "set-twice") == [("a", 2), ("b.c", 3)]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a: [1\nb: 2\n", 2),
        ("a: 1\n  b: 2\n", 2),
        ("a:\n\tb: 1\n", 2),
        ("a: 1\nb: 'x\n", 3),
        ("a: *nowhere\n", 1),
        ("a: 1\n---\nb: 2\n", 2),
        ("a: b: c\n", 1),
        ("a: \x07\n", 1),
        # The root is no mapping.
        *((text, 1) for text in ("- 1\n- 2\n", "just text", "5", "[a, b]")),
    ],
)
def test_yaml_syntax_error_is_reported_with_its_line(text, line):
    assert refused(text) == [("", line)]


@pytest.mark.parametrize("text", ["a: &x {b: *x}", "a: &x [1, *x]", "a: &x {b: [{c: *x}]}"])
def test_self_referencing_alias_is_rejected(text):
    assert refused(text)


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n"])
def test_empty_yaml_sets_nothing(text):
    assert list(leaves(load_text(text, "f.yaml", 1))) == []


def test_json_file_is_read_with_line_numbers(tmp_path):
    tree = {"task": {"name": "x", "l": [1, 2.5, None, True], "text": 'a "b"\n/é😀', "e": 1e-07}}
    path = tmp_path / "a.json"
    path.write_text(json.dumps(tree, indent=1))

    settings = dict(leaves(load_file(path, "a.json", 1)))

    assert {name: leaf.value for name, leaf in settings.items()} == {
        f"task.{name}": value for name, value in tree["task"].items()
    }
    assert settings["task.name"].origin.line == 3


def test_byte_order_mark_and_windows_line_endings_are_accepted(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\r\nb: x\r\n")

    assert {p: leaf.value for p, leaf in leaves(load_file(path, "a", 1))} == {"a": 1, "b": "x"}
