"""The commands that need no tensorflow: list, show, and help."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
import yaml

from orbit_runner.cli.main import main
from tests.support.problems import check, error_of, fails, problems_of

Accepted = Callable[..., str]
_WITHOUT_TASK = (
    ("not-set", "trainer.optimizer_config.optimizer.type"),
    ("not-set", "trainer.optimizer_config.learning_rate.type"),
    ("not-set", "task.name"),
)
BAD = "task: {name: image_classification, model: {name: cnn}, train_dat: {}}\nruntime: {sed: 1}\n"


pytestmark = pytest.mark.usefixtures("no_tensorflow", "here")


@pytest.fixture
def accepted(capsys):
    """Runs a command that must exit with 0 and an empty stderr, and returns its stdout."""

    def run(*arguments: str) -> str:
        code = main(arguments)
        printed = capsys.readouterr()
        assert (code, printed.err) == (0, "")
        return printed.out

    return run


@pytest.mark.parametrize("arguments", [["show"], ["run", "--mode=train"], ["launch", "--"]])
def test_experiment_is_required(arguments):
    check(problems_of(error_of(arguments)), *_WITHOUT_TASK)


def test_list_shows_every_entry_as_text_and_json(accepted, tmp_path):
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/own.yaml").write_text("description: my own\n")
    (tmp_path / "experiments/broken.yaml").write_text("a: [\n")
    (tmp_path / "experiments/mangled.gin").write_bytes(b"\xff\xfe")
    (tmp_path / "experiments/null.yaml").write_text("# said above\ndescription:\n")

    text = accepted("list")
    entries = json.loads(accepted("list", "--json"))

    assert {"digits", "digits_mlp", "own", "broken", "mangled"} < {*entries["experiments"]}
    assert entries["experiments"]["own"] == "my own"
    assert entries["experiments"]["null"] == "said above"
    assert entries["experiments"]["broken"] == "(does not parse; see `runner show --check`)"
    assert entries["experiments"]["mangled"] == "(does not parse; see `runner show --check`)"
    assert "configs/runtime/cpu.yaml" in entries["fragments"]
    assert "image_classification" in entries["tasks"]
    assert {"cnn", "mlp", "resnet_cifar"} <= {*entries["models of image_classification"]}
    assert "one_device" in entries["strategies"]
    for names in entries.values():
        for name, description in names.items():
            assert name in text
            assert description in text


def test_show_output_loads_as_an_identical_config(accepted, tmp_path):
    flags = ("--num_gpus", "-1", "--task.model.dropout_rate", "0.25", "--gin_param=runtime.seed=5")
    text = accepted("show", "--experiment", "digits", *flags)
    (tmp_path / "again.yaml").write_text(text)

    second = accepted("show", "--experiment=again.yaml")

    assert second == text
    config = yaml.safe_load(text)
    assert config["runtime"]["num_gpus"] == -1
    assert config["task"]["model"]["dropout_rate"] == 0.25


@pytest.mark.promise("configs", "`runner show --origins` shows where each value was set")
def test_show_with_origins_prints_the_source_of_each_setting(accepted, tmp_path):
    flags = ("--experiment=digits", "--params_override=trainer.max_to_keep=9", "--seed=4")

    text = accepted("show", "--origins", *flags)

    lines = {line.split(":")[0].strip(): line for line in text.splitlines()}
    assert lines["seed"].endswith("  # --seed")
    assert lines["max_to_keep"].endswith("  # --params_override[0]")
    assert lines["num_virtual_devices"].endswith("  # default")
    assert "  # experiments/digits.yaml:" in lines["filters"]
    (tmp_path / "o.yaml").write_text(text)
    plain = accepted("show", *flags)
    assert accepted("show", "--experiment=o.yaml") == plain


def test_show_json_includes_value_and_origin_of_each_setting(accepted):
    settings = json.loads(accepted("show", "--experiment=digits", "--json", "--seed=4"))

    assert settings["runtime.seed"] == {"value": 4, "origin": "--seed"}
    assert settings["task.model.filters"]["value"] == [32, 64]
    assert settings["task.model.filters"]["origin"].startswith("experiments/digits.yaml:")
    assert settings["trainer.early_stopping"] == {"value": None, "origin": "default"}


def test_validate_accepts_names_files_fragments_and_runs(accepted, tmp_path):
    (tmp_path / "runs/r").mkdir(parents=True)
    (tmp_path / "runs/r/config.yaml").write_text(accepted("show", "--experiment=digits"))
    (tmp_path / "frag.yaml").write_text("trainer: {max_to_keep: 3}\n")
    (tmp_path / "frag.gin").write_text("trainer.max_to_keep = 3\n")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/named.yaml").write_text("task: {model: {dropout_rate: 0.1}}\n")
    names = ["digits", "runs/r", "frag.yaml", "frag.gin", "named", "configs/runtime/cpu.yaml"]

    assert accepted("show", "--check", *names) == "".join(f"{name}: ok\n" for name in names)


@pytest.mark.promise("configs", "`runner show --check` reports all errors of all files")
def test_validate_reports_all_errors_of_all_files(tmp_path, capsys):
    many = "\n".join(f"  unknown_{n}: 1" for n in range(20))
    (tmp_path / "a.yaml").write_text(BAD)
    (tmp_path / "b.yaml").write_text("task: [1\n")
    (tmp_path / "c.yaml").write_text(f"runtime:\n{many}\n")
    (tmp_path / "d.gin").write_text("trainer.train_steps = 'x'\n")
    (tmp_path / "e.yaml").write_text("task: {name: image_clasification}\n")

    files = ["a.yaml", "b.yaml", "c.yaml", "d.gin", "e.yaml", "f.yaml", "g", "digits"]
    problems = problems_of(error_of(["show", "--check", *files]))
    many = [problem for problem in problems if "unknown_" in problem.path]

    assert capsys.readouterr().out == "digits: ok\n"
    assert [str(problem.origin) for problem in many] == [f"c.yaml:{n + 2}" for n in range(20)]
    check(
        (problem for problem in problems if problem not in many),
        ("unknown-setting", "task.train_dat"),
        ("unknown-setting", "runtime.sed"),
        ("bad-syntax", ""),
        ("wrong-type", "trainer.train_steps"),
        ("unknown-name", "task.name"),
        ("missing-file", ""),
        ("unknown-name", "--experiment"),
    )


def test_validate_merges_a_fragment_into_the_given_experiment(accepted, tmp_path):
    (tmp_path / "a.yaml").write_text("task: {model: {hidden_units: [3]}}\n")

    assert accepted("show", "--check", "a.yaml", "--experiment=digits_mlp") == "a.yaml: ok\n"
    fails(
        ["show", "--check", "a.yaml", "--experiment=digits"],
        "unknown-setting",
        "task.model.hidden_units",
    )


def test_validate_applies_flags_before_checking_the_file(accepted, tmp_path):
    (tmp_path / "a.yaml").write_text("task: {name: image_classification}\n")
    error_of(["show", "--check", "a.yaml"])
    settings = ["--train_steps=5",
                "--params_override=task.model.name=cnn,task.train_data.source=digits,"
                "task.train_data.global_batch_size=8,task.validation_data.source=digits",
                "--task.validation_data.global_batch_size=8",
                "--params_override=trainer.optimizer_config.optimizer.type=sgd,"
                "trainer.optimizer_config.learning_rate.type=constant"]  # fmt: skip

    assert accepted("show", "--check", "a.yaml", *settings) == "a.yaml: ok\n"


def test_diff_shows_the_differing_settings(accepted, tmp_path):
    (tmp_path / "a.yaml").write_text(accepted("show", "--experiment=digits", "--seed=4"))

    table = accepted("show", "--experiment=digits", "--diff=a.yaml").splitlines()
    differences = json.loads(accepted("show", "--experiment=digits", "--diff=a.yaml", "--json"))

    assert table[0].split() == ["digits", "a.yaml"]
    assert [line.split() for line in table[1:] if "runtime" in line] == [
        ["runtime.seed", "17", "4"]
    ]
    assert differences["runtime.seed"] == ["17", "4"]
    assert accepted("show", "--experiment=digits", "--diff=digits") == "no differences\n"
