# ruff: noqa: E501 (one line a case)
"""Config files that are based on others: `base: digits`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.resolve import Request, load_config, resolve
from orbit_runner.config.serialize import flat_settings, to_yaml
from tests.support.problems import output_of

Write = Callable[..., str]


def seed_and_steps(config: Any) -> tuple[int, int]:
    return config.runtime.seed, config.trainer.train_steps


@pytest.mark.parametrize("name", ["digits", "diabetes", "transformer_multi30k"])
def test_file_with_only_a_base_is_the_base(name, write):
    base = load_config(name)

    config = load_config(write("a.yaml", f"base: {name}"))

    assert config.replace(name=base.name) == base
    assert config.name == "a"
    assert config_fingerprint(config) == config_fingerprint(base)
    assert load_config(write("again/config.yaml", to_yaml(config))) == config


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.yaml": "base: digits"}, (17, 0)),
        ({"a.yaml": "base: digits\nruntime: {seed: 5}"}, (5, 0)),
        ({"a.yaml": "runtime: {seed: 5}\nbase: digits"}, (5, 0)),
        ({"a.yaml": "base: [digits, b.yaml]", "b.yaml": "runtime: {seed: 6}"}, (6, 0)),
        ({"a.yaml": "base: [b.yaml, digits]", "b.yaml": "runtime: {seed: 6}"}, (17, 0)),
        ({"a.yaml": "base: [digits, b.yaml, c.yaml]", "b.yaml": "runtime: {seed: 6}", "c.yaml": "runtime: {seed: 7}"}, (7, 0)),
        ({"a.yaml": "base: [digits, c.yaml, b.yaml]", "b.yaml": "runtime: {seed: 6}", "c.yaml": "runtime: {seed: 7}"}, (6, 0)),
        ({"a.yaml": "base: b.yaml", "b.yaml": "base: digits\ntrainer: {train_steps: 8}"}, (17, 8)),
        # The alternatives train_epochs and train_steps: the one of the higher layer counts.
        ({"a.yaml": "base: b.yaml\ntrainer: {train_epochs: 2}", "b.yaml": "base: digits\ntrainer: {train_steps: 8}"}, (17, 0)),
        ({"a.yaml": "base: [digits, g.gin]", "g.gin": "runtime.seed = 9\ntrainer.train_steps = %N\nN = 4"}, (9, 4)),
        ({"a.json": '{"base": ["digits"], "runtime": {"seed": 3}}'}, (3, 0)),
        ({"a.yaml": "base: b.json", "b.json": '{"base": "digits", "runtime": {"seed": 3}}'}, (3, 0)),
        ({"a.yaml": "base: [digits, trainer/smoke]"}, (17, 3)),
        ({"a.yaml": "base: [digits, configs/trainer/smoke]"}, (17, 3)),
        ({"a.yaml": "base: [digits, configs/trainer/smoke.yaml]"}, (17, 3)),
        ({"a.yaml": "base: experiments/digits.yaml"}, (17, 0)),
        ({"sub/a.yaml": "base: [digits, ../b.yaml]", "b.yaml": "runtime: {seed: 6}"}, (6, 0)),
        # A file beside the one that names it comes before one in the working directory.
        ({"sub/a.yaml": "base: [digits, b.yaml]", "b.yaml": "runtime: {seed: 6}", "sub/b.yaml": "runtime: {seed: 7}"}, (7, 0)),
        ({"sub/a.yaml": "base: run", "sub/run/config.yaml": "base: digits\nruntime: {seed: 4}"}, (4, 0)),
        # An experiment comes before a run in the working directory.
        ({"a.yaml": "base: digits", "digits/config.yaml": "base: experiments/digits.yaml\nruntime: {seed: 4}"}, (17, 0)),
        ({"a.yaml": "base: mine", "experiments/mine.yaml": "base: digits\nruntime: {seed: 4}"}, (4, 0)),
        ({"a.yaml": "base: [digits, my/fast]", "configs/my/fast.yaml": "trainer: {train_steps: 2}"}, (17, 2)),
        ({"a.yaml": "base: [digits, b.yaml]", "b.yaml": "base: []"}, (17, 0)),
    ],
)  # fmt: skip
def test_bases_are_layers_below_the_file(files, expected, write):
    for name, content in files.items():
        write(name, content)

    assert seed_and_steps(load_config(next(iter(files)))) == expected


def test_config_file_with_a_base_overrides_the_experiment(write):
    write("b.yaml", "runtime: {seed: 5}\ntrainer: {train_steps: 4, summary_interval: 2}")
    write("a.yaml", "base: b.yaml\ntrainer:\n  train_steps: 6")

    resolved = resolve(Request(experiment="digits", config_files=("a.yaml",)))

    assert seed_and_steps(resolved.config) == (5, 6)
    origins = {path: str(origin) for path, origin in resolved.origins.items()}
    assert origins["runtime.seed"] == "b.yaml:1"
    assert origins["trainer.summary_interval"] == "b.yaml:2"
    assert origins["trainer.train_steps"] == "a.yaml:3"
    assert origins["task.model.filters"] == "experiments/digits.yaml:10"
    assert resolved.config.name == "digits"


def test_name_is_that_of_the_file_unless_a_base_sets_it(write):
    write("b.yaml", "base: digits\nname: mine")

    assert load_config(write("a.yaml", "base: digits")).name == "a"
    assert load_config(write("a.yaml", "base: b.yaml")).name == "mine"
    assert load_config(write("a.yaml", "base: b.yaml\nname: own")).name == "own"


@pytest.mark.parametrize(
    ("files", "origin", "message"),
    [
        ({"a.yaml": "\nbase: a.yaml"}, "a.yaml:2", "the bases form a cycle: a.yaml → a.yaml"),
        ({"a.yaml": "base: s/b.yaml", "s/b.yaml": "base: ../a.yaml"}, "s/b.yaml:1", "the bases form a cycle: a.yaml → s/b.yaml → a.yaml"),
        ({"a.yaml": "base: c.yaml"}, "a.yaml:1", "unknown file 'c.yaml'"),
        ({"a.yaml": "base: experiments/digit.yaml"}, "a.yaml:1", "unknown file 'experiments/digit.yaml'; did you mean 'experiments/digits.yaml'?"),
        ({"a.yaml": "base: digit"}, "a.yaml:1", "unknown base 'digit'; did you mean 'digits'?"),
        ({"a.yaml": "base: runtime/mirored_2gpu"}, "a.yaml:1", "unknown base 'runtime/mirored_2gpu'; did you mean 'runtime/mirrored_2gpu'?"),
        ({"a.yaml": "base: b.yaml", "b.yaml": "\n\nbase: nope"}, "b.yaml:3", "unknown base 'nope'"),
        ({"a.yaml": "base: 5"}, "a.yaml:1", "got 5, expected a file"),
        ({"a.yaml": "base:"}, "a.yaml:1", "got null, expected a file"),
        ({"a.yaml": "base: ['']"}, "a.yaml:1", "got '', expected a file"),
        ({"a.yaml": "base: {file: digits}"}, "a.yaml:1", "got a section, expected a file"),
        ({"a.yaml": "base: [[digits]]"}, "a.yaml:1", "got ['digits'], expected a file"),
        ({"a.yaml": "base: official/bert"}, "a.yaml:1", "for Model Garden's, write `official: bert`"),
        ({"a.yaml": "base: ."}, "a.yaml:1", "unknown base '.'"),
        ({"a.yaml": "base: s.yaml", "s.yaml/x": ""}, "a.yaml:1", "s.yaml is a directory, pipe or device"),
    ],
)  # fmt: skip
def test_invalid_base_is_reported_with_its_origin(files, origin, message, write, refused):
    for name, content in files.items():
        write(name, content)

    for request in ({"experiment": "a.yaml"}, {"config_files": ("a.yaml",)}):
        (problem,) = refused(**request)

        assert (problem.path, str(problem.origin)) == ("base", origin)
        assert message in problem.message


def test_problems_of_all_bases_are_reported_together(write, refused):
    write("b.yaml", "a: [")
    write("c.yaml", "x: 1\nx: 2")
    write("a.yaml", "base: [nope.yaml, b.yaml, c.yaml]\ny: 1\ny: 2")

    # The file itself cannot be read, so its bases are not known.
    assert [str(problem.origin) for problem in refused(experiment="a.yaml")] == ["a.yaml:3"]
    write("a.yaml", "base: [nope.yaml, b.yaml, c.yaml]")
    origins = [str(problem.origin) for problem in refused(experiment="a.yaml")]
    assert origins == ["a.yaml:1", "b.yaml:1", "c.yaml:2"]
    write("a.yaml", "base: [b.yaml, digits, b.yaml]")
    assert [str(problem.origin) for problem in refused(experiment="a.yaml")] == ["b.yaml:1"]


@pytest.mark.parametrize(
    ("request_", "path"),
    [
        ({"config_files": ("section.yaml",)}, "trainer.base"),
        ({"params_overrides": ("base=digits",)}, "base"),
        ({"params_overrides": ("a.yaml",)}, "base"),
        ({"gin_params": ("experiment.base = 'digits'",)}, "base"),
        ({"flags": (("--trainer.base", "trainer.base", "digits"),)}, "trainer.base"),
    ],
)
def test_base_elsewhere_is_an_unknown_setting(request_, path, write, refused):
    write("section.yaml", "trainer: {base: digits}")
    write("a.yaml", "base: digits")

    (problem,) = refused(**request_)

    assert (problem.path, problem.code) == (path, "unknown-setting")


def test_commands_read_bases(write):
    write("experiments/mine.yaml", "base: digits\nruntime:\n  seed: 3\n")
    write("configs/few.yaml", "base: trainer/smoke\n# few\n")

    output = output_of(["show", "--experiment=mine"])
    assert "base" not in {line.split(":")[0] for line in output.splitlines()}
    assert load_config(write("flat/config.yaml", output)) == load_config("mine")

    listed = json.loads(output_of(["list", "--json"]))
    assert listed["experiments"]["mine"] == listed["experiments"]["digits"]

    checked = output_of(["show", "--check", "mine", "configs/few.yaml"])
    assert checked == "mine: ok\nconfigs/few.yaml: ok\n"


def test_base_in_the_home_directory(write, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write("home/b.yaml", "base: digits\nruntime: {seed: 8}")

    assert load_config(write("a.yaml", "base: ~/b.yaml")).runtime.seed == 8


def test_absolute_base(write, tmp_path):
    write("else/b.yaml", "base: digits\nruntime: {seed: 8}")
    resolved = resolve(Request(experiment=write("a.yaml", f"base: {tmp_path}/else/b.yaml")))

    assert resolved.config.runtime.seed == 8
    assert str(resolved.origins["runtime.seed"]) == "else/b.yaml:2"
    assert flat_settings(resolved.config)["name"] == "a"
