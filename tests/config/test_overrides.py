from __future__ import annotations

from typing import Any

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.overrides import (
    load_override,
    load_setting,
    split_outside_brackets,
)
from orbit_runner.config.parsing.tree import leaves
from tests.support.problems import check


def values(text: str) -> dict[str, Any]:
    return {path: leaf.value for path, leaf in leaves(load_override(text, "--p", 1))}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a=1,b=2", ["a=1", "b=2"]),
        ("a=[1, 2],b={c: 1, d: [2, 3]}", ["a=[1, 2]", "b={c: 1, d: [2, 3]}"]),
        ("a='x, y',b=\"p, q]\"", ["a='x, y'", 'b="p, q]"']),
        ("a='it\"s, ok',b=1", ["a='it\"s, ok'", "b=1"]),
        ("a=1,,b=2,", ["a=1", "b=2"]),
    ],
)
def test_commas_inside_brackets_and_quotes_do_not_split(text, parts):
    assert split_outside_brackets(text) == parts


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=1,c.d=2", {"a.b": 1, "c.d": 2}),
        (" a.b = 1 , c.d = x ", {"a.b": 1, "c.d": "x"}),
        ("a.b=[1, 2],c=x", {"a.b": [1, 2], "c": "x"}),
        ("a='1, 2',b=\"3\"", {"a": "1, 2", "b": "3"}),
        ("a.b=1e-3,c=off,d=null,e=", {"a.b": 1e-3, "c": "off", "d": None, "e": None}),
        ("a={b: 1, c: {d: 2}},a.b=5", {"a.b": 5, "a.c.d": 2}),
        ("a=x=y", {"a": "x=y"}),
        ("a.b[0]=1,c=2,a.b[1]=x", {"a.b": [1, "x"], "c": 2}),
        ("a[1] = 'p, q', a[0] = [1, 2]", {"a": [[1, 2], "p, q"]}),
        ("a: {b: 1, c: [2]}", {"a.b": 1, "a.c": [2]}),
        ('{"a": {"b": 1e-3}, "c": null}', {"a.b": 1e-3, "c": None}),
        ("a:\n  b: 1\nc: 2\n", {"a.b": 1, "c": 2}),
        ("a: b=c", {"a": "b=c"}),
        ("", {}),
    ],
)
def test_override_accepts_assignments_yaml_and_json(text, expected):
    assert values(text) == expected


@pytest.mark.parametrize("name", ["o.yaml", "d/o.yml", "o.json"])
def test_an_override_may_be_a_file(write, name):
    write(name, '{"a":\n {"b": 1}}')

    ((path, leaf),) = leaves(load_override(name, "--params_override[0]", 1))

    assert (path, leaf.value, str(leaf.origin)) == ("a.b", 1, f"{name}:2")


def test_override_finds_a_shipped_file_from_any_directory(write):
    assert values("configs/runtime/one_gpu.yaml")["runtime.num_gpus"] == 1


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("nope.yaml", "missing-file"),
        ("a=1,b", "bad-syntax"),
        ("a..b=1", "bad-syntax"),
        ("a=[1", "bad-syntax"),
        ("a={b: 1, b: 2}", "set-twice"),
        ("just_text", "bad-syntax"),
        ("[1, 2]", "bad-syntax"),
    ],
)
def test_malformed_override_is_rejected(write, text, code):
    with pytest.raises(ConfigError) as caught:
        load_override(text, "--p", 1)

    (problem,) = caught.value.problems
    check([problem], (code, problem.path))


def test_origin_includes_the_line_number_for_multiline_overrides():
    override = load_override("a=1", "--params_override[2]", 1)
    many = load_override("a: 1\nb: 2\n", "--params_override[2]", 1)

    assert str(override.children["a"].origin) == "--params_override[2]"
    assert str(many.children["b"].origin) == "--params_override[2]:2"


def test_section_can_be_set_at_a_dotted_path():
    root = load_setting(("a", "b"), "{c: 1, d: [2]}", "--a.b", 1)

    assert {path: leaf.value for path, leaf in leaves(root)} == {"a.b.c": 1, "a.b.d": [2]}
