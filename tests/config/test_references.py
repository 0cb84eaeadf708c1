# ruff: noqa: E501 (one line a case)
"""References between settings: `${trainer.train_steps}`."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import yaml

from orbit_runner.cli import main as cli
from orbit_runner.config.fingerprint import config_fingerprint
from orbit_runner.config.parsing.references import Reference, parse_text
from orbit_runner.config.parsing.search_path import experiment_files
from orbit_runner.config.resolve import Request, load_config, resolve
from orbit_runner.config.serialize import flat_settings, to_yaml
from tests.support.problems import check

Settings = dict[str, Any]


def in_yaml(settings: Settings) -> str:
    sections: dict[str, Any] = {}
    for path, value in settings.items():
        section, _, name = path.partition(".")
        sections.setdefault(section, {})[name] = value
    return yaml.safe_dump(sections)


def in_gin(settings: Settings) -> list[str]:
    return [f"{path} = {value!r}" for path, value in settings.items()]


# Every layer, lowest first, as the part of a request that sets settings.
LAYERS: list[Callable[[Callable[..., str], Settings], dict[str, Any]]] = [
    lambda write, said: {"experiment": write("e.yaml", f"base: digits\n{in_yaml(said)}")},
    lambda write, said: {"config_files": (write("c.yaml", in_yaml(said)),)},
    lambda write, said: {"gin_files": (write("c.gin", "\n".join(in_gin(said))),)},
    lambda write, said: {"params_overrides": tuple(f"{path}={value}" for path, value in said.items())},
    lambda write, said: {"gin_params": tuple(in_gin(said))},
    lambda write, said: {"flags": tuple((f"--{path}", path, str(value)) for path, value in said.items())},
]  # fmt: skip


def flags(**settings: str) -> tuple[tuple[str, str, str], ...]:
    """Returns flags; two underscores stand for a dot."""
    paths = {name.replace("__", "."): value for name, value in settings.items()}
    return tuple((f"--{path}", path, value) for path, value in paths.items())


@pytest.mark.parametrize("reference", range(len(LAYERS)))
@pytest.mark.parametrize("target", range(len(LAYERS)))
def test_reference_has_the_final_value_in_every_order_of_layers(
    reference: int, target: int, write: Callable[..., str]
) -> None:
    said: list[Settings] = [{} for _ in LAYERS]
    for index in range(target):
        said[index]["runtime.seed"] = 1000 + index
    for index in range(reference):
        said[index]["trainer.summary_interval"] = 2000 + index
    said[target]["runtime.seed"] = 345
    said[reference]["trainer.summary_interval"] = "${runtime.seed}"
    parts = [
        layer(write, settings) for layer, settings in zip(LAYERS, said, strict=True) if settings
    ]
    request = Request(
        **{"experiment": "digits"} | {key: value for part in parts for key, value in part.items()}
    )

    assert resolve(request).config.trainer.summary_interval == 345


@pytest.mark.parametrize("layer", range(1, len(LAYERS)))
def test_higher_layer_replaces_a_reference(layer: int, write: Callable[..., str]) -> None:
    file = write("low.yaml", "base: digits\ntrainer: {summary_interval: '${nowhere}'}")
    said = LAYERS[layer](write, {"trainer.summary_interval": 12})

    assert resolve(Request(**{"experiment": file} | said)).config.trainer.summary_interval == 12


@pytest.mark.parametrize(
    ("path", "text", "expected"),
    [
        ("trainer.summary_interval", "${trainer.train_steps}", 300),
        ("trainer.recovery_begin_steps", "${runtime.seed}", 17),
        ("trainer.loss_upper_bound", "${runtime.seed}", 17.0),
        ("task.train_data.cache", "${task.train_data.drop_remainder}", True),
        ("trainer.max_to_keep", "${runtime.all_reduce_alg}", None),
        ("description", "${task.model.name}", "cnn"),
        ("description", "${name}-seed${runtime.seed}", "digits-seed17"),
        ("description", "${task.model.dropout_rate}, ${task.train_data.drop_remainder}", "0.4, true"),
        ("description", "$${name} and ${name}", "${name} and digits"),
        ("description", "$$${name} $ {name} $name", "$${name} $ {name} $name"),
    ],
)  # fmt: skip
def test_value_of_a_reference(
    path: str, text: str, expected: Any, over_digits: Callable[..., Any]
) -> None:
    said = (*flags(trainer__train_steps="300"), (f"--{path}", path, json.dumps(text)))

    value = flat_settings(over_digits(flags=said))[path]

    assert (value, type(value)) == (expected, type(expected))


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", []),
        ("a", ["a"]),
        ("${a.b}", [Reference("a.b")]),
        ("${a}${b}", [Reference("a"), Reference("b")]),
        ("x${a}y", ["x", Reference("a"), "y"]),
        ("$${a}", ["${", "a}"]),
        ("$${${a}", ["${", Reference("a")]),
        ("${a}$${b}", [Reference("a"), "${", "b}"]),
        ("$", ["$"]),
        ("$}{", ["$}{"]),
    ],
)
def test_text_is_split_at_references(text: str, parts: list[str | Reference]) -> None:
    assert parse_text(text) == parts


def test_lists_and_sections_in_lists_contain_references(
    write: Callable[..., str], over_digits: Callable[..., Any]
) -> None:
    file = write(
        "c.yaml",
        """
        callbacks:
        - class_name: my.Callback
          arguments: {steps: ["${trainer.train_steps}", "$${x}"], deep: {seed: "${runtime.seed}"}}
        task: {model: {filters: ["${task.model.dense_units}", 8]}}
        trainer: {train_steps: 9}
        """,
    )
    config = over_digits(config_files=(file,))

    assert flat_settings(config)["callbacks"][0]["arguments"] == {
        "steps": [9, "${x}"],
        "deep": {"seed": 17},
    }
    assert config.task.model.filters == (128, 8)


def test_reference_to_a_list_has_the_whole_list(over_digits: Callable[..., Any]) -> None:
    file = "callbacks=[{class_name: a.B, arguments: {x: '${task.model.filters}'}}]"

    config = over_digits(params_overrides=(file,))

    assert flat_settings(config)["callbacks"][0]["arguments"] == {"x": [32, 64]}


def test_chain_ends_in_a_default_that_nobody_set() -> None:
    resolved = resolve(
        Request(
            experiment="digits",
            flags=flags(
                trainer__summary_interval="${trainer.checkpoint_interval}",
                trainer__checkpoint_interval="${trainer.validation_interval}",
                trainer__validation_interval="${task.train_data.shuffle_buffer_size}",
            ),
        )
    )

    assert resolved.config.trainer.summary_interval == 100
    assert str(resolved.origins["trainer.summary_interval"]) == (
        "--trainer.summary_interval = ${trainer.checkpoint_interval} "
        "(--trainer.checkpoint_interval = ${trainer.validation_interval} "
        "(--trainer.validation_interval = ${task.train_data.shuffle_buffer_size} (default)))"
    )


def test_of_two_alternatives_the_reference_sees_the_one_in_use(
    over_digits: Callable[..., Any],
) -> None:
    # `digits` sets train_epochs; train_steps of a flag replaces it.
    said = {"trainer__train_steps": "${task.model.dense_units}"}
    config = over_digits(
        flags=flags(
            **said,
            trainer__loss_upper_bound="${trainer.train_epochs}",
            description="${trainer.train_epochs} ${trainer.train_steps}",
        )
    )

    assert config.trainer.train_steps == 128
    assert config.description == "0.0 128"


def test_alternative_that_turns_out_to_be_unset_replaces_nothing(
    over_digits: Callable[..., Any],
) -> None:
    config = over_digits(
        params_overrides=("trainer.train_steps=7",),
        flags=flags(
            trainer__train_epochs="${runtime.num_gpus}",  # 0: not set
            trainer__summary_interval="${trainer.train_steps}",
        ),
    )

    assert (config.trainer.train_steps, config.trainer.summary_interval) == (7, 7)


def test_origin_names_the_reference_and_where_its_value_was_set(
    write: Callable[..., str], capsys: pytest.CaptureFixture[str]
) -> None:
    write(
        "a.yaml",
        "base: digits\ntrainer:\n  summary_interval: ${trainer.train_steps}\ndescription: a ${name} ${runtime.seed}",
    )
    arguments = ["--experiment=a.yaml", "--train_steps=6"]

    assert cli.main(["show", *arguments, "--origins"]) == 0
    shown = capsys.readouterr().out
    assert "# a.yaml:3 = ${trainer.train_steps} (--train_steps)\n" in shown
    assert (
        "# a.yaml:4 with ${name} (--experiment), ${runtime.seed} (experiments/digits.yaml:45)\n"
        in shown
    )

    assert cli.main(["explain", "summary_interval", *arguments]) == 0
    assert "6 (a.yaml:3 = ${trainer.train_steps} (--train_steps))" in capsys.readouterr().out

    assert cli.main(["show", *arguments, "--train_steps=-1"]) == 2
    assert "trainer.summary_interval — a.yaml:3" in capsys.readouterr().err


@pytest.mark.parametrize("name", [*experiment_files()])
def test_shipped_experiment_with_a_reference_and_a_literal_round_trips(
    name: str, write: Callable[..., str]
) -> None:
    said = flags(
        trainer__summary_interval="${trainer.checkpoint_interval}",
        description="'$${a} $$${b} ${name}'",
    )
    plain, config = (resolve(Request(experiment=name, flags=one)).config for one in ((), said))
    assert config.trainer.summary_interval == plain.trainer.checkpoint_interval
    assert config.description == f"${{a}} $${{b}} {name}"
    assert config_fingerprint(config) == config_fingerprint(plain)

    again = resolve(Request(experiment=write("again/config.yaml", to_yaml(config)))).config

    assert again == config
    assert "${trainer" not in to_yaml(config)


def test_literal_in_a_list_and_in_gin_bindings_round_trips(write: Callable[..., str]) -> None:
    arguments = {"x": ["${a}", {"y": "$${b}"}]}
    config = load_config(
        "digits",
        overrides={
            "callbacks": [{"class_name": "a.B", "arguments": {"x": ["$${a}", {"y": "$$${b}"}]}}],
            "gin_bindings": ["f.x = '${HOME} $${y}'"],
        },
    )
    assert flat_settings(config)["callbacks"][0]["arguments"] == arguments
    assert config.gin_bindings == ("f.x = '${HOME} $${y}'",)

    again = load_config(write("again/config.yaml", to_yaml(config)))

    assert again == config


def test_name_of_the_file_is_not_a_reference(write: Callable[..., str]) -> None:
    assert load_config(write("${a}.yaml", "base: digits")).name == "${a}"


@pytest.mark.parametrize(
    ("path", "text", "code"),
    [
        ("trainer.train_steps", "${trainer.validation_interval}x", "wrong-type"),
        ("trainer.train_steps", "${task.model.name}", "wrong-type"),
        ("trainer.summary_interval", "${runtime.num_gpus}", "out-of-range"),
        ("runtime.distribution_strategy", "${task.model.name}", "not-allowed"),
        ("trainer.export_subdir", "../${name}", "bad-path"),
        ("trainer.train_steps", "${trainer.train_step}", "bad-reference"),
        ("trainer.train_steps", "${summary_interval}", "bad-reference"),
        ("trainer.train_steps", "${filters}", "bad-reference"),
        ("trainer.train_steps", "${task.train_data.size}", "bad-reference"),
        ("trainer.train_steps", "${trainer}", "bad-reference"),
        ("trainer.train_steps", "${trainer.early_stopping}", "bad-reference"),
        ("trainer.train_steps", "${trainer.early_stopping.patience}", "bad-reference"),
        ("trainer.train_steps", "${runtime.seed.x}", "bad-reference"),
        ("trainer.train_steps", "${runtime.replace}", "bad-reference"),
        ("trainer.loss_upper_bound", "${trainer.optimizer_config.optimizer.sgd.momentum}", "bad-reference"),
        ("trainer.loss_upper_bound", "${trainer.optimizer_config.warmup.linear.warmup_steps}", "bad-reference"),
        ("trainer.train_steps", "${trainer.train_steps}", "bad-reference"),
        ("trainer.optimizer_config.optimizer.type", "${trainer.optimizer_config.optimizer.adam.beta_1}", "bad-reference"),
        ("trainer.train_steps", "${task.model.filters[0]}", "bad-reference"),
        ("trainer.train_steps", "${callbacks[0].arguments}", "bad-reference"),
        ("description", "${a", "bad-reference"),
        ("description", "${name}-${task.model.filters}", "bad-reference"),
        ("description", "${runtime.all_reduce_alg}!", "bad-reference"),
        ("task.model.filters", "${task.model.filters}0", "bad-reference"),
        ("description", "${}", "bad-reference"),
        ("description", "${ name }", "bad-reference"),
        ("description", "${trainer..x}", "bad-reference"),
        ("description", "${a${name}}", "bad-reference"),
        ("task.name", "${name}", "bad-reference"),
        ("task.model.name", "${name}", "bad-reference"),
        ("imports", "['${name}']", "bad-reference"),
        ("official", "'${name}'", "bad-reference"),
        ("trainer", "${runtime.seed}", "wrong-type"),
    ],
)  # fmt: skip
def test_invalid_reference_is_reported_with_path_and_origin(
    path: str, text: str, code: str, refused: Callable[..., Any]
) -> None:
    problems = refused(flags=(("--flag", path, text),))

    (problem,) = [problem for problem in problems if problem.path == path]
    check([problem], (code, path))
    assert str(problem.origin).startswith("--flag")


def test_all_problems_are_reported_together(refused: Callable[..., Any]) -> None:
    problems = refused(
        flags=flags(
            trainer__summary_interval="${trainer.checkpoint_interval}",
            trainer__checkpoint_interval="${trainer.summary_interval}",
            trainer__validation_interval="${trainer.summary_interval}",
            trainer__max_to_keep="abc",
            trainer__recovery_max_trials="${trainer.max_to_keep}",
            runtime__seed="${x}",
            runtime__num_gpu="${y}",
        )
    )

    check(
        sorted(problems, key=lambda problem: problem.path),
        ("unknown-setting", "runtime.num_gpu"),
        ("bad-reference", "runtime.seed"),
        ("bad-reference", "trainer.checkpoint_interval"),
        ("wrong-type", "trainer.max_to_keep"),
        ("bad-reference", "trainer.recovery_max_trials"),
        ("bad-reference", "trainer.summary_interval"),
        ("bad-reference", "trainer.validation_interval"),
    )


def test_problem_inside_a_list_has_the_path_of_the_item(refused: Callable[..., Any]) -> None:
    (problem,) = refused(
        flags=(("--x", "callbacks", "[{class_name: a.B, arguments: {y: ['${z}']}}]"),)
    )

    check([problem], ("bad-reference", "callbacks[0].arguments.y[0]"))


def test_checks_between_settings_see_the_resolved_value(refused: Callable[..., Any]) -> None:
    (problem,) = refused(
        flags=flags(
            runtime__distribution_strategy="'off'", runtime__num_gpus="${task.model.kernel_size}"
        )
    )

    assert problem.path == "runtime.num_gpus"
    assert (
        str(problem.origin)
        == "--runtime.num_gpus = ${task.model.kernel_size} (experiments/digits.yaml:11)"
    )


def test_values_that_a_higher_layer_discards_are_not_resolved(
    write: Callable[..., str], over_digits: Callable[..., Any]
) -> None:
    file = write(
        "c.yaml",
        "task: {model: {kernel_size: '${nowhere}', dense_units: '${nor.here}'}}\n"
        "trainer: {train_epochs: '${trainer.nothing}', early_stopping: {metric: '${x}'}}",
    )
    config = over_digits(
        config_files=(file,),
        flags=flags(
            task__model__name="mlp", trainer__train_steps="3", trainer__early_stopping="null"
        ),
    )

    assert (config.task.model.name, config.trainer.train_steps) == ("mlp", 3)


def test_reference_in_brackets_needs_quotes_and_the_error_says_so(
    refused: Callable[..., Any],
) -> None:
    (problem,) = refused(params_overrides=("task.model.filters=[${runtime.seed}]",))

    check([problem], ("bad-syntax", ""))


def test_runtime_of_a_model_garden_experiment_accepts_no_reference(
    refused: Callable[..., Any],
) -> None:
    (problem,) = refused(
        experiment="official/resnet_imagenet", flags=(("--seed", "runtime.seed", "${name}"),)
    )

    check([problem], ("bad-reference", "runtime.seed"))
    assert str(problem.origin) == "--seed"


def test_fingerprint_is_that_of_the_same_values(over_digits: Callable[..., Any]) -> None:
    with_reference = over_digits(
        flags=flags(task__model__dense_units="${task.train_data.global_batch_size}")
    )
    written_out = over_digits(flags=flags(task__model__dense_units="64"))

    assert with_reference == written_out
    assert config_fingerprint(with_reference) == config_fingerprint(written_out)
