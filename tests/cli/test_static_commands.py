"""The commands that need no tensorflow: list, show, validate, diff, and help."""
# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from orbit_runner.cli.main import main
from orbit_runner.config.parsing.search_path import experiment_files, fragment_files
from orbit_runner.config.resolve import Request, resolve

Cli = Callable[..., "subprocess.CompletedProcess[str]"]
BAD = "task: {name: image_classification, model: {name: cnn}, train_dat: {}}\nruntime: {sed: 1}\n"


def refused(cli: Cli, *arguments: str) -> str:
    """Runs a command that must exit with 2, and returns its error message."""
    done = cli(*arguments)
    assert done.returncode == 2, done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr
    assert done.stderr.startswith("runner: ")
    return done.stderr


def accepted(cli: Cli, *arguments: str) -> str:
    """Runs a command that must exit with 0 and an empty stderr, and returns its stdout."""
    done = cli(*arguments)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_help_lists_every_command(cli: Cli, arguments: tuple[str, ...]) -> None:
    text = accepted(cli, *arguments)

    assert "usage: runner [COMMAND] [FLAGS]" in text
    for command in ("run", "list", "show", "validate", "diff", "env"):
        assert f"\n  {command} " in text


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("run", ["--experiment", "--model_dir", "--mode", "--gin_param", "--resume"]),
        ("show", ["--experiment", "--config_file", "--gin_file", "--params_override", "--gin_param",
                  "--num_gpus", "--distribution_strategy", "--tpu", "--import", "--origins", "--json",
                  "--SECTION.NAME=VALUE"]),
        ("inspect", ["EXPERIMENT", "--layers", "--measure", "--images", "--html", "--json", "--SECTION.NAME=VALUE"]),
        ("profile", ["RUN|EXPERIMENT", "--steps", "--top", "--keep", "--json", "--SECTION.NAME=VALUE"]),
        ("batch", ["RUN|EXPERIMENT", "--step", "--worker", "--all", "--text", "--images", "--json", "--SECTION.NAME=VALUE"]),
        ("why", ["A", "B", "--recorded", "--import", "--json"]),
        ("seen", ["RUN|EXPERIMENT", "--example", "--until", "--all", "--json", "--SECTION.NAME=VALUE"]),
        ("branch", ["RUN", "--at", "--model_dir", "--mode", "--prepare", "--allow_partial", "--json", "--SECTION.NAME=VALUE"]),
        ("replay", ["RUN", "--step", "--layer", "--out", "--all", "--pdb", "--verify", "--json"]),
        ("list", ["--json", "--import"]),
        ("validate", ["--experiment", "FILE"]),
        ("diff", ["left", "right", "--json"]),
        ("clean", ["DIR", "--keep_last", "--keep_best", "--delete_runs", "--failed", "--status", "--older_than",
                   "--where", "--yes", "--json"]),
    ],
)  # fmt: skip
def test_help_of_a_command_lists_its_flags(cli: Cli, command: str, flags: list[str]) -> None:
    text = accepted(cli, command, "--help")

    assert [flag for flag in flags if flag not in text] == []


def test_version_flag_prints_a_three_part_version(cli: Cli) -> None:
    assert accepted(cli, "--version").strip().count(".") == 2


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("shwo",), "unknown command 'shwo'; did you mean 'show'?\nallowed: batch, branch, clean,"),
        (("show", "--experimnt=digits"), "unknown flag --experimnt; did you mean '--experiment'?\nsee `runner show --help`"),
        (("run", "--mdoel_dir=x"), "unknown flag --mdoel_dir; did you mean '--model_dir'?"),
        (("--experiment=digits", "--foo", "bar"), "unknown flag --foo"),
        (("show", "digits"), "unknown argument digits"),
        (("show", "--experiment"), "argument --experiment: expected one argument"),
        (("show", "--experiment=digits", "--trainer.train_steps"), "--trainer.train_steps: expected a value"),
        (("show", "--experiment=digits", "--task.init_checkpoint", "--runtime.seed=1"), "--task.init_checkpoint: expected a value"),
        (("show", "--experiment=digits", "--SECTION.NAME=1"), "unknown section 'SECTION' in --SECTION.NAME"),
        (("show", "--experiment=digits", "--tusk.x=1"), "unknown section 'tusk' in --tusk.x; did you mean 'task'?"),
        (("show", "--exp=digits"), "unknown flag --exp"),
        (("validate",), "the following arguments are required: FILE"),
        (("diff", "digits"), "the following arguments are required: right"),
        (("show",), "no task is set; pass --experiment=NAME (see `runner list`)"),
        (("show", "--experiment=digit"), "unknown experiment 'digit'; did you mean 'digits'?"),
        (("show", "--experiment=digits", "--config_file=x.yaml"), "unknown file 'x.yaml'"),
        (("show", "--experiment=digits", "--num_gpus=two"), "runtime.num_gpus — --num_gpus\n    got 'two', expected an integer"),
        (("show", "--experiment=digits", "--import=no_such"), "cannot import 'no_such'"),
        (("list", "--import=no_such"), "cannot import 'no_such'"),
        (("validate", "official/resnet_imagenat"), "unknown experiment 'official/resnet_imagenat'; did you mean 'official/resnet_imagenet'?"),
        (("validate", "transformer_multi30k", "--task.model.encoder.activation=foo"), "unknown value 'foo'\n    allowed: 'elu', "),
        (("diff", "digits", "no_such"), "unknown experiment 'no_such'"),
        (("--experiment=digits", "--runtime.sed=1"), "unknown setting 'sed'; did you mean 'seed'?"),
    ],
)  # fmt: skip
def test_invalid_arguments_exit_with_2_and_one_message(
    cli: Cli, arguments: tuple[str, ...], message: str
) -> None:
    assert message in refused(cli, *arguments)


def test_list_shows_every_entry_as_text_and_json(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/own.yaml").write_text("description: my own\n")
    (tmp_path / "experiments/broken.yaml").write_text("a: [\n")
    (tmp_path / "experiments/mangled.gin").write_bytes(b"\xff\xfe")
    (tmp_path / "experiments/null.yaml").write_text("# said above\ndescription:\n")

    text = accepted(cli, "list")
    found = json.loads(accepted(cli, "list", "--json"))

    assert {"digits", "digits_mlp", "own", "broken", "mangled"} < {*found["experiments"]}
    assert found["experiments"]["own"] == "my own"
    assert found["experiments"]["null"] == "said above"
    assert found["experiments"]["broken"] == "(does not parse; see `runner validate`)"
    assert found["experiments"]["mangled"] == "(does not parse; see `runner validate`)"
    assert "configs/runtime/cpu.yaml" in found["fragments"]
    assert "image_classification" in found["tasks"]
    assert {"cnn", "mlp", "resnet_cifar"} <= {*found["models of image_classification"]}
    assert "one_device" in found["strategies"]
    for names in found.values():
        for name, description in names.items():
            assert name in text
            assert description in text


def test_every_shipped_config_file_has_a_description(cli: Cli) -> None:
    found = json.loads(accepted(cli, "list", "--json"))

    assert [name for kind in ("experiments", "fragments")
            for name, description in found[kind].items() if not description] == []  # fmt: skip


def test_show_output_loads_as_an_identical_config(cli: Cli, tmp_path: Path) -> None:
    flags = ("--num-gpus=1", "--task.model.dropout-rate", "0.25", "--gin_param=runtime.seed = 5")
    text = accepted(cli, "show", "--experiment", "digits", *flags)
    (tmp_path / "again.yaml").write_text(text)

    again = accepted(cli, "show", "--experiment=again.yaml")

    assert again == text
    shown = yaml.safe_load(text)
    assert shown["runtime"]["num_gpus"] == 1
    assert shown["task"]["model"]["dropout_rate"] == 0.25
    different = accepted(cli, "diff", "digits", "again.yaml").splitlines()[1:]
    assert sorted(line.split()[0] for line in different) == [
        "runtime.num_gpus",
        "runtime.seed",
        "task.model.dropout_rate",
    ]


def test_show_with_origins_prints_the_source_of_each_setting(cli: Cli, tmp_path: Path) -> None:
    flags = ("--experiment=digits", "--params_override=trainer.max_to_keep=9", "--seed=4")

    text = accepted(cli, "show", "--origins", *flags)

    lines = {line.split(":")[0].strip(): line for line in text.splitlines()}
    assert lines["seed"].endswith("  # --seed")
    assert lines["max_to_keep"].endswith("  # --params_override[0]")
    assert lines["num_packs"].endswith("  # default")
    assert "  # experiments/digits.yaml:" in lines["filters"]
    (tmp_path / "o.yaml").write_text(text)
    plain = accepted(cli, "show", *flags)
    assert accepted(cli, "show", "--experiment=o.yaml") == plain


def test_show_json_includes_value_and_origin_of_each_setting(cli: Cli) -> None:
    found = json.loads(accepted(cli, "show", "--experiment=digits", "--json", "--seed=4"))

    assert found["runtime.seed"] == {"value": 4, "origin": "--seed"}
    assert found["task.model.filters"]["value"] == [32, 64]
    assert found["task.model.filters"]["origin"].startswith("experiments/digits.yaml:")
    assert found["trainer.early_stopping"] == {"value": None, "origin": "default"}


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "spelled",
    [
        ("--train-epochs=3",),
        ("--train_epochs", "3"),
        ("--trainer.train-epochs=3",),
        ("--trainer.train_epochs", "3"),
        ("--gin-param=trainer.train_epochs=3",),
        ("--gin_params", "trainer.train_epochs = 3"),
        ("--params-override=trainer.train_epochs=3",),
        ("--train_epochs=9", "--trainer.train_epochs=3"),
    ],
)
def test_all_spellings_of_a_setting_flag_are_equivalent(cli: Cli, spelled: tuple[str, ...]) -> None:
    shown = yaml.safe_load(accepted(cli, "show", "--experiment=digits", *spelled))

    assert shown["trainer"]["train_epochs"] == 3


@pytest.mark.parametrize(
    "spelled", [("--num_gpus=-1",), ("--num_gpus", "-1"), ("--runtime.num_gpus", "-1")]
)
def test_negative_number_is_parsed_as_a_flag_value(cli: Cli, spelled: tuple[str, ...]) -> None:
    shown = yaml.safe_load(accepted(cli, "show", "--experiment=digits", *spelled))

    assert shown["runtime"]["num_gpus"] == -1


def test_data_dir_flag_keeps_dashes_and_sets_both_datasets(cli: Cli) -> None:
    shown = yaml.safe_load(accepted(cli, "show", "--experiment=mnist", "--data-dir=a-b--c"))

    assert shown["task"]["train_data"]["data_dir"] == "a-b--c"
    assert shown["task"]["validation_data"]["data_dir"] == "a-b--c"


def test_validate_accepts_names_files_fragments_and_runs(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "runs/r").mkdir(parents=True)
    (tmp_path / "runs/r/config.yaml").write_text(accepted(cli, "show", "--experiment=digits"))
    (tmp_path / "frag.yaml").write_text("trainer: {max_to_keep: 3}\n")
    (tmp_path / "frag.gin").write_text("trainer.max_to_keep = 3\n")
    (tmp_path / "experiments").mkdir()
    (tmp_path / "experiments/named.yaml").write_text("task: {model: {dropout_rate: 0.1}}\n")
    names = ["digits", "digits_mlp", "runs/r", "frag.yaml", "frag.gin", "named",
             "configs/runtime/cpu.yaml", "configs/data/synthetic.yaml"]  # fmt: skip

    assert accepted(cli, "validate", *names) == "".join(f"{name}: ok\n" for name in names)


def test_validate_reports_all_errors_of_all_files(cli: Cli, tmp_path: Path) -> None:
    many = "\n".join(f"  unknown_{n}: 1" for n in range(20))
    (tmp_path / "a.yaml").write_text(BAD)
    (tmp_path / "b.yaml").write_text("task: [1\n")
    (tmp_path / "c.yaml").write_text(f"runtime:\n{many}\n")
    (tmp_path / "d.gin").write_text("trainer.train_steps = 'x'\n")
    (tmp_path / "e.yaml").write_text("task: {name: image_clasification}\n")

    text = refused(cli, "validate", "a.yaml", "b.yaml", "c.yaml", "d.gin", "e.yaml", "f.yaml", "g")

    assert "task.train_dat — a.yaml:1\n" in text
    assert "runtime.sed — a.yaml:2\n" in text
    assert "  b.yaml:2\n    invalid YAML" in text
    for n in range(20):
        assert f"runtime.unknown_{n} — c.yaml:{n + 2}\n" in text
    assert "trainer.train_steps — d.gin:1\n" in text
    assert "task.name — e.yaml:1\n    unknown task 'image_clasification'" in text
    assert "unknown file 'f.yaml'" in text
    assert "unknown experiment 'g'" in text
    assert "more" not in text


def test_validate_separates_valid_files_from_invalid_files(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("runtime: {sed: 1}\n")

    done = cli("validate", "digits", "a.yaml")

    assert (done.returncode, done.stdout) == (2, "digits: ok\n")
    assert "runtime.sed — a.yaml:1" in done.stderr


def test_validate_prints_a_note_if_config_cannot_train(cli: Cli) -> None:
    done = cli("validate", "digits", "--train_steps=0", "--train_epochs=0")

    assert (done.returncode, done.stdout) == (0, "digits: ok\n")
    assert "note: digits: trainer.train_steps is 0; to train, set it" in done.stderr


def test_validate_merges_a_fragment_into_the_given_experiment(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("task: {model: {hidden_units: [3]}}\n")

    assert accepted(cli, "validate", "a.yaml", "--experiment=digits_mlp") == "a.yaml: ok\n"
    assert "unknown setting 'hidden_units'" in refused(
        cli, "validate", "a.yaml", "--experiment=digits"
    )


def test_diff_shows_the_differing_settings(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(accepted(cli, "show", "--experiment=digits", "--seed=4"))

    table = accepted(cli, "diff", "digits", "a.yaml").splitlines()
    found = json.loads(accepted(cli, "diff", "digits", "a.yaml", "--json"))

    assert table[0].split() == ["digits", "a.yaml"]
    assert [line.split() for line in table[1:] if "runtime" in line] == [
        ["runtime.seed", "17", "4"]
    ]
    assert found["runtime.seed"] == ["17", "4"]
    assert accepted(cli, "diff", "digits", "digits") == "no differences\n"


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    "arguments",
    [
        ["list"],
        ["show", "--experiment=digits", "--origins", "--task.model.name=resnet_cifar"],
        ["show", "--experiment=digits_mlp", "--gin_param=BATCH = 4"],
        ["validate", *experiment_files(), *fragment_files()],
        ["diff", "digits", "resnet_cifar"],
        ["schema"],
        ["schema", "--experiment=digits"],
        ["completion", "bash"],
        ["completion", "--words", "--experiment=digits", "--task.model."],
        ["run", "--experiment=digits", "--task.model.depth=1"],
        ["--help"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_no_static_command_imports_tensorflow(tmp_path: Path, arguments: list[str]) -> None:
    code = (
        "import sys\n"
        "from orbit_runner.cli.main import main\n"
        "main(sys.argv[1:])\n"
        "print([name for name in sys.modules if name.split('.')[0] in"
        " ('tensorflow', 'tf_keras', 'official', 'orbit', 'mlflow', 'wandb')], file=sys.stderr)\n"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=tmp_path, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stderr.splitlines()[-1] == "[]"


def test_show_succeeds_when_pipe_reader_exits_early(tmp_path: Path) -> None:
    command = f"{sys.executable} -m orbit_runner show --experiment=digits | head -1"

    done = subprocess.run(
        command, shell=True, cwd=tmp_path, capture_output=True, text=True, check=True
    )

    assert (done.stdout, done.stderr) == ("name: digits\n", "")


def test_show_command_and_resolve_function_agree(cli: Cli) -> None:
    shown = yaml.safe_load(accepted(cli, "show", "--experiment=resnet_cifar"))

    config: Any = resolve(Request(experiment="resnet_cifar")).config

    assert shown["task"]["model"]["depth"] == config.task.model.depth


@pytest.mark.parametrize(
    "arguments",
    [["validate", "digits"], ["run", "--experiment=digits", "--model_dir={tmp_path}/a"]],
)
def test_removed_current_directory_is_one_line(
    arguments: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()

    assert main([text.format(tmp_path=tmp_path) for text in arguments]) == 2
    expected = "runner: the current directory was removed\nchange to another one: cd DIR\n"
    assert capsys.readouterr().err == expected
