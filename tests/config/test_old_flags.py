"""The page of old flags lists every old flag, and every setting that it names exists."""

# ruff: noqa: E501 (one line a case)

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Union, get_args, get_origin, get_type_hints

import pytest

from orbit_runner.cli.flags.old_flags import (
    COMMON,
    IMAGES,
    MODEL_GARDEN,
    NCF,
    NONE,
    TRANSFORMER,
    VARIABLES,
    Row,
    explain_old_flag,
)
from orbit_runner.cli.main import COMMANDS, main
from orbit_runner.config.parsing.search_path import fragment_files
from orbit_runner.config.schema.base import Config
from orbit_runner.config.schema.experiment import ExperimentConfig
from orbit_runner.datasets.catalogue import SETS
from orbit_runner.registry import TASKS
from tests.support.problems import fails

PAGE = Path(__file__).resolve().parents[2] / "docs/old_flags.md"
TABLES = (COMMON, VARIABLES, IMAGES, TRANSFORMER, NCF, MODEL_GARDEN)
ROWS = [
    tuple(cell.strip() for cell in line.strip().strip("|").split("|"))
    for line in PAGE.read_text(encoding="utf-8").splitlines()
    if line.startswith("| `")
]
FIELD = re.compile(r"`((?:task|trainer|runtime)\.[\w.*]+?)(?::[^`]*)?`")
DEFINED = re.compile(r"DEFINE_\w+\(\s*(?:name=)?[\"'](\w+)[\"']")
# Files of the installed package that define the flags of the old drivers.
FILES = (
    *(f"utils/flags/_{name}.py" for name in ("base", "benchmark", "device", "distribution")),
    *("utils/flags/_misc.py", "utils/flags/_performance.py", "utils/hyperparams_flags.py"),
    "legacy/image_classification/classifier_trainer.py",
    "legacy/image_classification/mnist_main.py",
    "legacy/image_classification/resnet/common.py",
    "legacy/image_classification/resnet/resnet_ctl_imagenet_main.py",
    *(f"legacy/transformer/{name}.py" for name in ("misc", "compute_bleu", "data_download")),
    *(f"recommendation/{name}.py" for name in ("ncf_common", "movielens", "create_ncf_data")),
    *("common/flags.py", "vision/train.py", "nlp/train.py"),
)


def names(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


def installed(file: str) -> Path:
    spec = find_spec("official")
    assert spec is not None
    return Path((spec.submodule_search_locations or [""])[0]) / file


def classes(declared: Any) -> Iterator[Any]:
    """Yields the config classes that a type names, including those inside an optional type."""
    if get_origin(declared) is Union or "|" in str(declared):
        for part in get_args(declared):
            yield from classes(part)
    elif isinstance(declared, type) and issubclass(declared, Config):
        yield declared


def below(section: type[Config], name: str) -> list[Any]:
    """Returns the possible classes of a setting; [None] for a plain value, [] if it is unknown."""
    field = {field.name: field for field in dataclasses.fields(section)}.get(name)
    if field is None:
        return []
    variants = field.metadata.get("variants")
    if section is ExperimentConfig and name == "task":
        variants = TASKS
    found = [*classes(get_type_hints(section)[name])]
    found += [entry.load_config() for entry in variants.entries()] if variants else []
    return found or [None]


def exists(path: str) -> bool:
    """Returns whether a dotted path is a setting, of some task and some model."""
    sections: list[Any] = [ExperimentConfig]
    for part in path.split("."):
        sections = [found for section in sections if section for found in below(section, part)]
    return bool(sections)


@pytest.mark.parametrize("file", FILES)
def test_docs_table_lists_every_old_driver_flag(file: str) -> None:
    defined = {*DEFINED.findall(installed(file).read_text(encoding="utf-8"))}
    listed = {name for row in ROWS for name in names(row[0])}

    assert defined
    assert defined - listed == set()


def fields() -> list[str]:
    text = PAGE.read_text(encoding="utf-8")
    found = set(FIELD.findall(text))
    return sorted(
        path.replace("*_data", section)
        for path in found
        for section in (["train_data", "validation_data"] if "*_data" in path else [""])
    )


@pytest.mark.parametrize("path", fields())
def test_every_setting_named_on_the_page_exists(path: str) -> None:
    assert exists(path)


@pytest.mark.parametrize("path", ["task.model.nothing", "trainer.x", "runtime.num_gpus.x", "tusk"])
def test_nonexistent_setting_paths_are_recognized(path: str) -> None:
    assert not exists(path)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].strip("`"))
def test_every_table_row_has_a_replacement_or_a_reason(row: tuple[str, ...]) -> None:
    old, new, note = row

    assert len(names(old)) == 1
    assert new == "—" or FIELD.fullmatch(new) or re.fullmatch(r"`--\w+`", new)
    assert new != "—" or note


def test_every_flag_and_command_named_on_the_page_exists(
    capsys: pytest.CaptureFixture[str],
) -> None:
    text = PAGE.read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["run", "--help"])
    known = capsys.readouterr().out

    for row in ROWS:
        for name in names(row[1]):
            assert not name.startswith("--") or f"{name} " in known, name
    for command in re.findall(r"`runner ([a-z]+)", text):
        assert command in COMMANDS
    for name in re.findall(r"runner data get ([\w-]+)", text):
        assert name in {*SETS, "NAME"}
    for fragment in re.findall(r"configs/\w+/\w+\.yaml", text):
        assert fragment in fragment_files()


def test_no_flag_is_listed_twice_in_a_table() -> None:
    tables = re.split(r"\n(?=\| old )", PAGE.read_text(encoding="utf-8"))[1:]

    assert len(tables) == 6
    for table in tables:
        listed = re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE)
        assert listed
        assert len({*listed}) == len(listed)


def shown(row: Row) -> str:
    new = row.new if row.new == NONE else f"`{row.new}`"
    return f"| `{row.name}` | {new} | {row.note} |".replace("|  |", "| |")


def test_docs_page_matches_the_tables_in_the_code() -> None:
    lines = PAGE.read_text(encoding="utf-8").splitlines()

    assert [line for line in lines if line.startswith("| `")] == [
        shown(row) for table in TABLES for row in table
    ]


@pytest.mark.parametrize(
    "name", [row.name for table in TABLES[:1] + TABLES[2:5] for row in table], ids=str
)
def test_every_old_flag_has_a_readable_explanation(name: str) -> None:
    said = explain_old_flag(name)

    assert said.startswith(f"--{name} is a flag of the older drivers; in runner:")
    assert "*" not in said
    assert "](" not in said
    assert not re.search(r"see `\w+`", said)


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        (["--num_packs=2"], "; in runner: --runtime.num_packs"),
        (["--worker_hosts", "a:1,b:1"], "; in runner: --runtime.worker_hosts (or `TF_CONFIG`, Slurm"),
        (["--nodownload"], "--download is a flag of the older drivers; in runner: no equivalent ("),
        (["-use_synthetic_data"], "--task.train_data.source and --task.validation_data.source"),
        (["--dataset=ml-1m"], "of NCF: --task.train_data.variant and --task.validation_data.variant (`ml-1m` is `1m` now"),
        (["--mlp_regularization=0.,0."], "was one number for each layer"),
        (["--label_smoothing=0.1"], "; in runner: --task.losses.label_smoothing"),
        (["--resnet_size=50", "--resnet_version=2"], "; in runner: --task.model.depth ("),
        (["--resnet_size=56"], "; in runner: --task.model.depth ("),
        (["--resnet_size=56", "--resnet_version=2"], "resnet_size 56 of version 2 is a network of basic blocks (6n+2) for CIFAR"),
        (["--resnet_version", "2", "--resnet_size", "110"], "resnet_size 110 of version 2 is a network of basic blocks"),
    ],
)  # fmt: skip
def test_old_flag_is_rejected_with_the_explanation_from_the_table(
    flags: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--experiment=digits", *flags]) == 2

    told = capsys.readouterr().err
    assert said in told
    assert told.endswith("\nsee `runner run --help`\n")


def test_unsupported_resnet_size_is_not_suggested_as_model_depth(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--experiment=digits", "--resnet_size=56", "--resnet_version=2"]) == 2

    found = re.findall(r"--task\.model\.depth\S*", capsys.readouterr().err)
    assert found == ["--task.model.depth=164"]


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        ("task.train_data.variant", "ml-1m", "not-allowed"),
        ("task.model.mlp_regularization", "[0., 0.]", "wrong-type"),
    ],
)
def test_old_driver_value_is_rejected_with_an_explanation(path: str, value: str, code: str) -> None:
    fails(["show", "--experiment=ncf_movielens", f"--{path}={value}"], code, path)
