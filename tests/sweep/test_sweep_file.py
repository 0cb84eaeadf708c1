"""What a sweep file says, and how its mistakes are reported."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import pytest

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.parsing.search_path import shipped_root
from orbit_runner.sweep.definition import check_space, new_sweep, resolve_base
from orbit_runner.sweep.search import Choice, Range
from orbit_runner.sweep.sweep_file import read_sweep_file
from orbit_runner.sweep.view.trials import format_plan
from tests.sweep.sweep_files import RATE, TEXT, parsed, sweep_of

DOCS = shipped_root() / "docs" / "sweeps.md"


def problems(text: str) -> str:
    try:
        file = parsed(text)
        check_space(file, resolve_base(file))
    except ConfigError as error:
        return str(error)
    return "no problem"


def test_file_is_read():
    file = parsed()

    assert file.space == {
        RATE: Range(1e-4, 1e-2, log=True),
        "task.model.dropout_rate": Choice((0.0, 0.3)),
    }
    assert (file.objective.metric, file.objective.mode) == ("accuracy", "max")
    assert file.search.trials == 8
    assert file.search.halving.rungs == (20, 40)
    check_space(file, resolve_base(file))


def test_shipped_sweep_is_valid():
    file = read_sweep_file(shipped_root() / "configs" / "sweeps" / "digits_mlp.yaml", "s.yaml")
    check_space(file, resolve_base(file))

    assert len(format_plan(file, resolve_base(file))) == 1 + 20 + 4
    assert f"```yaml\n{_without_head()}```" in DOCS.read_text(encoding="utf-8")


def _without_head() -> str:
    text = (shipped_root() / "configs" / "sweeps" / "digits_mlp.yaml").read_text(encoding="utf-8")
    return text[text.index("experiment:") :]


def test_grid_has_all_combinations():
    text = TEXT.replace("type: random, trials: 8, seed: 1", "type: grid")
    text = text.replace("{log_uniform: [1.0e-4, 1.0e-2]}", "[1.0e-4, 1.0e-3, 1.0e-2]")

    assert parsed(text).search.trials == 6


@pytest.mark.parametrize(
    ("seeds", "expected"), [("", (17,)), ("seeds: 3", (17, 18, 19)), ("seeds: [5, 2]", (5, 2))]
)
def test_seeds_are_counted_from_that_of_the_experiment(seeds, expected):
    assert sweep_of(f"{TEXT}{seeds}\n").seeds == expected


def test_threads_are_set_unless_the_experiment_sets_them():
    assert sweep_of().machine_settings == {"runtime.inter_op_threads": 1}
    own = TEXT.replace("overrides:\n", "overrides:\n  runtime: {inter_op_threads: 2}\n")
    file = parsed(own)
    assert new_sweep(file, resolve_base(file)).machine_settings == {}


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("task.model.dropout_rate", "task.model.dropout_rat", ["s.yaml:7", "did you mean 'dropout_rate'"]),
        ("[0.0, 0.3]", "[0.0, 1.5]", ["s.yaml:7", "1.5"]),
        ("[0.0, 0.3]", "[0.0, abc]", ["s.yaml:7", "'abc'"]),
        ("[0.0, 0.3]", "[]", ["s.yaml:7", "the list is empty"]),
        ("[0.0, 0.3]", "[0.1, 0.1]", ["lists 0.1 twice"]),
        ("[0.0, 0.3]", "0.3", ["expected a list of values, {uniform: [a, b]}"]),
        ("[0.0, 0.3]", "{uniformly: [0, 1]}", ["got {'uniformly': [0, 1]}, expected a list"]),
        ("[0.0, 0.3]", "{uniform: [1, 0]}", ["a < b"]),
        ("[0.0, 0.3]", f"{{uniform: [0, {10**400}]}}", ["expected two numbers [a, b]"]),
        ("[0.0, 0.3]", "{uniform: [0.1, 0.2], step: 1}", ["expected a list of values, {uniform"]),
        ("[1.0e-4, 1.0e-2]", "[0, 1]", ["s.yaml:6", "with a < b, above 0"]),
        ("task.model.dropout_rate", "runtime.seed", ["use the key `seeds`"]),
        ("  task.model.dropout_rate: ", "  task: ", ["s.yaml:7", "task"]),
        ("task.model.dropout_rate", "trainer.optimizer_config", ["overlaps with trainer.optimizer_config"]),
        ("task.model.dropout_rate", "trainer.train_steps", ["cannot vary with search.halving"]),
        ("mode: max", "mode: biggest", ["unknown value 'biggest'", "s.yaml:8"]),
        ("metric: accuracy, ", "", ["objective.metric", "is not set"]),
        ("type: random", "type: randm", ["did you mean 'random'?"]),
        ("trials: 8, ", "", ["search.trials", "requires it"]),
        ("trials: 8", "trials: 0", ["got 0, allowed: at least 1"]),
        ("seed: 1", "sed: 1", ["did you mean 'seed'?"]),
        ("seed: 1", "batch: 2", ["has no effect with type: random"]),
        ("type: random", "type: tpe, batch: 1", ["allowed with halving: at least 2"]),
        ("[20, 40]", "[40, 20]", ["ascending order"]),
        ("[20, 40]", "[20, 60]", ["got 60, expected steps below trainer.train_steps, 60"]),
        ("[20, 40]", "[20, 30]", ["got 30, but trials are not evaluated at", "s.yaml:9"]),
        ("keep: 0.5", "keep: 1", ["allowed: less than 1"]),
        ("experiment: digits_mlp", "experiment: digits_mlp\nseeds: 1001", ["s.yaml:2", "from 1 to 1,000"]),
        ("trials: 8", "trials: 60000", ["no problem"]),
        ("experiment: digits_mlp", "experiment: digit_mlp", ["did you mean 'digits_mlp'?"]),
        ("train_steps: 60", "train_step: 60", ["s.yaml:3", "did you mean 'train_steps'?"]),
        ("type: random", "type: grid", ["a grid search needs a list of values", "s.yaml:6"]),
    ],
)  # fmt: skip
def test_mistake_is_reported_with_its_line(old, new, expected):
    message = problems(TEXT.replace(old, new, 1))

    assert [part for part in expected if part not in message] == []
    assert len(message.splitlines()) < 10


def test_too_many_runs_are_reported():
    message = problems(f"{TEXT.replace('trials: 8', 'trials: 60000')}seeds: 2\n")

    assert "seeds — s.yaml:10" in message
    assert "60000 trials are 120,000 runs, allowed: at most 100,000" in message


def test_all_problems_are_reported_at_once():
    message = problems(TEXT.replace("mode: max", "mode: x").replace("[0.0, 0.3]", "[]"))

    assert message.startswith("2 problems")
