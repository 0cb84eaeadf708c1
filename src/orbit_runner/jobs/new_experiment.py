"""Looks at a dataset, and writes an experiment for it, with comments."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.data.arrays import read_npz
from orbit_runner.data.images.dataset import part_of_images
from orbit_runner.data.images.files import SUFFIXES as IMAGE_SUFFIXES
from orbit_runner.data.images.files import FileSource, image_headers
from orbit_runner.data.images.files import load as load_images
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TEXT
from orbit_runner.data.tables.dataset import TableDataset, TableOptions
from orbit_runner.data.tables.split import RowSplit
from orbit_runner.errors import DataError, RunnerError, format_list
from orbit_runner.jobs.new_project import check_empty, make_identifier, write_files
from orbit_runner.jobs.table_survey import (
    MOST_CLASSES,
    ColumnUse,
    choose_label,
    csv_options,
    is_regression,
    plain_text,
    survey_table,
)
from orbit_runner.registry import TABLE_SOURCES

EXPERIMENT = "experiment.yaml"
IMAGE_LIST = "images.csv"
_MOST_HEADERS = 1_000
_LARGEST_IMAGE = 96  # Larger images are resized.
_RESIZED = 64
# A step of a convolutional network takes much longer than one of a table, so that few images get
# fewer steps than few rows, and smaller batches.
_LEAST_IMAGE_STEPS = 300
_FEW_IMAGES = 1_000
# Other parts are tried if a class has no training row.
_SPLIT_SEEDS = range(10)
_LISTS = {"numeric": NUMBER, "categorical": CATEGORY, "date": DATE, "text": TEXT}
_FRACTIONS = {"train": 0.8, "validation": 0.2}
_SPLIT = inline_yaml(_FRACTIONS)
_IMAGE_SPLIT = (
    "# Of each class, a hash of the paths decides on the images of each part.",
    "split:",
    f"  fractions: {_SPLIT}",
    "  stratified: true",
)
_ALLOWED = (
    "allowed: a .csv, .tsv, .jsonl, .parquet or .npz file, a directory with one directory of "
    "images per class, or a directory with one text file per class"
)
_PATH_COMMENT = "# Paths are relative to the directory in which the command runs."


@dataclasses.dataclass(frozen=True)
class NewExperiment:
    """An experiment that was written.

    Attributes:
        file: Its file.
        files: What each file of the directory contains, by name.
        facts: What was decided: pairs of a name and a text.
        problems: What the first run would report; empty if not all of the data were read.
    """

    file: Path
    files: Mapping[str, str]
    facts: Sequence[tuple[str, str]]
    problems: str = ""


@dataclasses.dataclass(frozen=True)
class _Draft:
    """What is to be written.

    Attributes:
        about: The description of the experiment.
        task: Returns the lines of the section `task` for a seed of the split.
        facts: What was decided.
        trainer: The lines of the section `trainer`; empty for the defaults of the task.
        is_whole: Whether all of the data were read, so that a check takes no longer.
        image_list: The contents of a CSV file that lists images; "" if there is none.
    """

    about: str
    task: Callable[[int], Sequence[str]]
    facts: Sequence[tuple[str, str]]
    trainer: Sequence[str] = ()
    is_whole: bool = True
    image_list: str = ""


def write_experiment(
    directory: Path, data: str, *, label: str = "", name: str | None = None
) -> NewExperiment:
    """Writes an experiment that trains on a dataset.

    Args:
        directory: The directory to write to; it is created if it does not exist.
        data: A CSV, JSON lines, Parquet or `.npz` file, or a directory of images or of text files.
        label: The column to predict; by default, it is chosen by its name and its values.
        name: The name of the experiment; by default that of the directory.

    Raises:
        RunnerError: The directory contains files, or the data cannot be read or used.
    """
    check_empty(directory)
    try:
        draft = _draft(Path(data), label, directory)
    except DataError as error:
        raise RunnerError(str(error), path="--from", code=error.code) from None
    name = make_identifier(directory.resolve().name) or "experiment" if name is None else name
    texts = {EXPERIMENT: _experiment_text(draft, name, seed=0)}
    files = {EXPERIMENT: "the experiment: what was found in the data, and how it is trained"}
    if draft.image_list:
        texts[IMAGE_LIST] = draft.image_list
        files[IMAGE_LIST] = "the path and the class of each image"
    write_files(directory, texts)
    experiment = directory / EXPERIMENT
    problems = ""
    if draft.is_whole:
        seed, problems = _check(experiment, draft)
        if seed:
            experiment.write_text(_experiment_text(draft, name, seed=seed), encoding="utf-8")
    return NewExperiment(experiment, files, draft.facts, problems)


def _check(experiment: Path, draft: _Draft) -> tuple[int, str]:
    """Returns the first seed of the split with which a run starts, and problems if none does."""
    first = ""
    seeds = _SPLIT_SEEDS if draft.task(0) != draft.task(1) else _SPLIT_SEEDS[:1]
    for seed in seeds:
        override = (f"task.split.seed={seed}",) if seed else ()
        try:
            resolved = resolve(Request(experiment=str(experiment), params_overrides=override))
            with source_cache_scope():
                problems = resolved.locate(
                    problem.below("task") for problem in resolved.config.data.problems()
                )
            if problems:
                raise ConfigError(problems)
        except ConfigError as error:
            first = first or str(error)
        else:
            return seed, ""
    return 0, first


def _experiment_text(draft: _Draft, name: str, *, seed: int) -> str:
    lines = [
        "# Written by `runner init --from`. `runner help SETTING` describes a setting, and",
        "# `runner show FILE --origins` prints all of them, with the defaults.",
        f"name: {inline_yaml(name)}",
        f"description: {inline_yaml(draft.about)}",
        "",
        "task:",
        *(f"  {line}".rstrip() for line in draft.task(seed)),
    ]
    if draft.trainer:
        lines += ["", "trainer:", *(f"  {line}" for line in draft.trainer)]
    lines += [
        "",
        "runtime:",
        "  # Another seed gives other initial weights and another order of the examples.",
        "  seed: 1",
    ]
    return "\n".join(lines) + "\n"


def _draft(path: Path, label: str, directory: Path) -> _Draft:
    if not path.exists():
        raise DataError(f"{path} does not exist\n{_ALLOWED}", code="missing-file")
    if path.is_dir():
        if label:
            raise RunnerError(
                f"{path} is a directory, whose classes are the labels",
                path="--label",
                code="no-effect",
            )
        return _draft_of_directory(path, directory)
    if not path.is_file():
        raise DataError(f"{path} is not a regular file\n{_ALLOWED}", code="wrong-file-type")
    if not path.stat().st_size:
        raise DataError(f"{path} is empty\n{_ALLOWED}", code="empty-data")
    name = path.name.lower().removesuffix(".gz")
    if name.endswith(".npz"):
        arrays = read_npz(path)
        if "y" in arrays and len(arrays) > 1:
            if label:
                raise RunnerError(
                    "the labels of arrays x and y are the array y", path="--label", code="no-effect"
                )
            return _draft_of_arrays(path, arrays)
    suffix = name.rpartition(".")[2].replace("tsv", "csv")
    for entry in TABLE_SOURCES.registered():
        if entry.name == suffix and entry.traits.settings and not entry.traits.required:
            return _draft_of_table(path, entry.name, entry.load(), label)
    raise DataError(
        f"{path}: the format of {path.name!r} is not known\n{_ALLOWED}", code="not-supported"
    )


# Tables


def _draft_of_table(path: Path, source: str, table: type[TableDataset], label: str) -> _Draft:
    options = csv_options(path) if not table.is_typed else TableOptions()
    survey = survey_table(path, table, options)
    target, reason = choose_label(survey, label, path)
    features = [use for use in survey.uses if use.kind and use.name != target.name]
    left_out = [use for use in survey.uses if not use.kind and use.name != target.name]
    if not features:
        message = f"{path}: no column is left to predict {target.name!r} from"
        unused = [f"{use.name}: {use.about}" for use in left_out]
        raise DataError(
            f"{message}\n{format_list(unused)}" if unused else message, code="not-supported"
        )
    regression = is_regression(target)
    rows = f"{survey.rows:,} rows"
    if not survey.is_whole:
        rows = f"the first {survey.rows:,} rows, which alone were read"
    section = ["train_data:", f"  source: {source}", f"  input_path: {inline_yaml(str(path))}"]
    if options.delimiter != ",":
        section.append(f"  delimiter: {inline_yaml(options.delimiter)}")
    if survey.options.missing_values != options.missing_values:
        section.append(f"  missing_values: {inline_yaml([*survey.options.missing_values])}")
    kinds = {use.kind for use in features}
    facts = [
        ("rows", rows),
        ("label", f"{target.name}: {'a number' if regression else 'classes'}, because {reason}"),
        ("features", ", ".join(use.name for use in features[:12]) + ", …" * bool(features[12:])),
        *(("not used", f"{use.name}: {use.about}") for use in left_out),
    ]
    unused = _unused_lines(left_out)
    about = f"{target.name} by the columns of {path.name}"
    if kinds == {TEXT} and len(features) == 1 and not regression:
        lines = _text_task(features[0], target, reason, section, unused, rows)
        return _Draft(about, lines, facts, _trainer("0.003"), survey.is_whole)
    lines = _table_task(features, target, reason, section, unused, rows)
    return _Draft(about, lines, facts, (), survey.is_whole)


def _unused_lines(left_out: Sequence[ColumnUse]) -> list[str]:
    if not left_out:
        return []
    lines = [f"#   {plain_text(use.name)}: {use.about}" for use in left_out]
    return ["# Columns that are not used:", *lines]


def _label_comment(target: ColumnUse, reason: str) -> str:
    return f"# Predicted, because {reason}; `runner init --label=COLUMN` chooses another."


def _table_task(
    features: Sequence[ColumnUse],
    target: ColumnUse,
    reason: str,
    section: Sequence[str],
    unused: Sequence[str],
    rows: str,
) -> Callable[[int], list[str]]:
    regression = is_regression(target)
    binary = target.summary is not None and target.summary.distinct == 2

    def lines(seed: int) -> list[str]:
        listed: list[str] = []
        for title, kind in _LISTS.items():
            of_kind = [use for use in features if use.kind == kind]
            items = [(f"    - {inline_yaml(use.name)}", use.about) for use in of_kind]
            width = min(max((len(item) for item, _ in items), default=0), 40)
            listed += [f"  {title}:"] * bool(items)
            listed += [f"{item:<{width}}  # {about}" for item, about in items]
        if regression:
            metrics = "[r2_score]"
            targets = [f"  - {{column: {inline_yaml(target.name)}, type: regression}}"]
            other = "# It is a number; without `type: regression`, each of its values is a class."
        else:
            metrics = (
                "[{class_name: AUC, config: {multi_label: true}}]"
                if binary
                else ("[{class_name: F1Score, config: {average: macro}}]")
            )
            targets = [f"  - {inline_yaml(target.name)}"]
            other = "# Its values are classes; for numbers: [{column: …, type: regression}]."
        return [
            "name: tabular",
            _label_comment(target, reason),
            other,
            "targets:",
            f"{targets[0]}  # {target.about}",
            f"# The columns that the model sees, from {rows}.",
            "# Remove the line of a column to leave it out.",
            "features:",
            *listed,
            *unused,
            *_split_lines(seed),
            "# Beside accuracy." if not regression else "# Beside mae and rmse.",
            f"metrics: {metrics}",
            _PATH_COMMENT,
            *section,
        ]

    return lines


def _split_lines(seed: int) -> list[str]:
    fractions = f"  fractions: {_SPLIT}"
    comment = "# A hash of the features decides, so that equal rows are in the same part."
    return [comment, "split:", fractions, *([f"  seed: {seed}"] if seed else [])]


def _text_task(
    text: ColumnUse,
    target: ColumnUse,
    reason: str,
    section: Sequence[str],
    unused: Sequence[str],
    rows: str,
) -> Callable[[int], list[str]]:
    validation = ["validation_data:", *section[1:]]

    def lines(seed: int) -> list[str]:
        return [
            "name: text_classification",
            "# The mean of the embeddings of all words; `transformer` sees their order.",
            "model: {name: bag_of_words, embedding_width: 64, dropout_rate: 0.2}",
            f"# From {rows}: {text.about}.",
            f"text: {{column: {inline_yaml(text.name)}, max_length: 200}}",
            _label_comment(target, reason),
            f"label_column: {inline_yaml(target.name)}  # {target.about}",
            *unused,
            *_split_lines(seed),
            "metrics: [{class_name: F1Score, config: {average: macro}}]",
            _PATH_COMMENT,
            *section,
            "  global_batch_size: 64",
            *validation,
            "  global_batch_size: 512",
        ]

    return lines


_TABLE_LENGTH = (
    "train_epochs: 20",
    "min_steps_per_epoch: 150  # of small data: 3,000 steps in all",
    "validation_epochs: 1",
)


def _image_length(count: int, batch_size: int) -> list[str]:
    """Returns the length of training on a number of images: 20 epochs, or more of few images."""
    epochs = max(20, math.ceil(_LEAST_IMAGE_STEPS * batch_size / count))
    comment = f"  # {_LEAST_IMAGE_STEPS} steps, because the images are few" if epochs > 20 else ""
    return [f"train_epochs: {epochs}{comment}", f"validation_epochs: {epochs // 20}"]


def _trainer(rate: str, length: Sequence[str] = _TABLE_LENGTH) -> list[str]:
    """Returns the settings of training for tasks that have no defaults of it."""
    return [
        *length,
        "summary_interval: 50  # steps between two points of the training curve",
        "# The best checkpoint is that of the lowest loss on validation data: --checkpoint=best.",
        "best_checkpoint_export_subdir: best",
        "best_checkpoint_eval_metric: validation_loss",
        "best_checkpoint_metric_comp: lower",
        "optimizer_config:",
        "  optimizer: {type: adam}",
        f"  learning_rate: {{type: cosine, cosine: {{initial_learning_rate: {rate}, "
        "decay_steps: auto}}",
    ]


# Directories


def _draft_of_directory(path: Path, directory: Path) -> _Draft:
    try:
        names = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror})", code="unreadable-file"
        ) from None
    if not names:
        raise DataError(f"{path} is empty\n{_ALLOWED}", code="empty-data")
    if any(_files_below(path, IMAGE_SUFFIXES)):
        return _draft_of_images(path, directory)
    texts = [file for file in names if _is_text_file(file)]
    classes = {file.name.removesuffix(".gz").removesuffix(".txt"): file.name for file in texts}
    for folder in (entry for entry in names if entry.is_dir()):
        if any(map(_is_text_file, folder.iterdir())):
            classes[folder.name] = f"{folder.name}/*.txt*"
    if len(classes) > 1:
        return _draft_of_texts(path, classes)
    tables = [file.name for file in names if _is_table(file)]
    if tables:
        raise DataError(
            f"{path}: contains tables; name the file of one, such as {path / tables[0]}\n"
            + format_list(tables, 5),
            code="not-supported",
        )
    raise DataError(f"{path}: contains nothing that is known\n{_ALLOWED}", code="not-supported")


def _is_text_file(path: Path) -> bool:
    return path.name.lower().endswith((".txt", ".txt.gz")) and path.is_file()


def _is_table(path: Path) -> bool:
    suffixes = (".csv", ".jsonl", ".parquet", ".npz", ".csv.gz", ".jsonl.gz")
    return path.name.lower().endswith(suffixes)


def _files_below(path: Path, suffixes: tuple[str, ...]) -> Iterator[Path]:
    """Yields files with one of some suffixes in directories below a directory."""
    for file in path.rglob("*"):
        if file.parent != path and file.name.lower().endswith(suffixes):
            yield file


def _draft_of_texts(path: Path, classes: Mapping[str, str]) -> _Draft:
    def lines(seed: int) -> list[str]:
        section = ["  source: text_files", f"  data_dir: {inline_yaml(str(path))}", "  files:"]
        section += [
            f"    {inline_yaml(name)}: {inline_yaml(file)}" for name, file in classes.items()
        ]
        return [
            "name: text_classification",
            "# The mean of the embeddings of all words; `transformer` sees their order.",
            "model: {name: bag_of_words, embedding_width: 64, dropout_rate: 0.2}",
            "text: {max_length: 200}",
            *_split_lines(seed),
            "metrics: [{class_name: F1Score, config: {average: macro}}]",
            "# One class per file or pattern; each line of a file is one text.",
            _PATH_COMMENT,
            "train_data:",
            *section,
            "  global_batch_size: 64",
            "validation_data:",
            *section,
            "  global_batch_size: 512",
        ]

    facts = [("classes", ", ".join(classes))]
    return _Draft(f"the class of the texts in {path.name}", lines, facts, _trainer("0.003"))


def _draft_of_images(path: Path, directory: Path) -> _Draft:
    train = load_images(split="train", data_dir=str(path))
    everything = load_images(split="all", data_dir=str(path))
    is_split = len(train.paths) < len(everything.paths)
    if len(train.labels) < 2:
        raise DataError(
            f"{path}: has only the class {train.labels[0]!r}\n{_ALLOWED}", code="bad-data"
        )
    size, sizes = _image_size(train)
    if is_split:
        section = ["source: image_folder", f"data_dir: {inline_yaml(str(path))}"]
        comment = "# Training reads train/, and evaluation the directory beside it."
        image_list = ""
        trained = len(train.paths)
        held_out = len(everything.paths) - trained
    else:
        section = [
            "source: image_csv",
            f"input_path: {inline_yaml(str(path))}",
            f"labels_file: {inline_yaml(str(directory / IMAGE_LIST))}",
        ]
        comment = f"# {IMAGE_LIST} lists all images."
        image_list = _image_list(path, train)
        split = RowSplit(fractions=tuple(_FRACTIONS.items()), is_stratified=True)
        trained = part_of_images(train, split, "train").size
        held_out = len(everything.paths) - trained
    counts = np.bincount(train.label, minlength=len(train.labels)).tolist()
    classes = [
        f"{plain_text(n)} ({count:,})" for n, count in zip(train.labels, counts, strict=True)
    ]
    shown = ", ".join([*classes[:8], *["…"] * (len(classes) > 8)])

    batch_size = 64 if trained >= _FEW_IMAGES else 16

    def lines(seed: int) -> list[str]:
        return [
            "name: image_classification",
            f"# {len(train.labels):,} classes: {shown}",
            "model:",
            "  # A small network; for photographs, see `resnet` and `efficientnet` in runner list.",
            "  name: cnn",
            "  filters: [32, 64]",
            "  kernel_size: 3",
            "  dense_units: 128",
            *([f"  # The images have {sizes}; they are resized to this size.",
               f"  input_size: {size}"] if size else [f"  # The images have {sizes}."]),
            "metrics: [{class_name: F1Score, config: {average: macro}}]",
            *([] if is_split else _IMAGE_SPLIT),
            comment,
            _PATH_COMMENT,
            "train_data:",
            *(f"  {line}" for line in section),
            f"  global_batch_size: {batch_size}",
            "validation_data:",
            *(f"  {line}" for line in section),
            "  global_batch_size: 128",
        ]  # fmt: skip

    facts = [
        ("images", f"{trained:,} to train on, {held_out:,} to validate, {sizes}"),
        ("classes", shown),
        ("split", "directories of the dataset" if is_split else "a fifth of each class validates"),
    ]
    about = f"the class of the images in {path.name}"
    trainer = _trainer("0.001", _image_length(trained, batch_size))
    return _Draft(about, lines, facts, trainer, image_list=image_list)


def _image_size(source: FileSource) -> tuple[list[int] | None, str]:
    """Returns the size to resize images to, None if they keep theirs, and the sizes in words."""
    step = max(1, len(source.paths) // _MOST_HEADERS)
    headers = [header for _, header in image_headers(source.paths[::step]) if header is not None]
    if not headers:
        raise DataError(f"{source.paths[0]}: is not a JPEG or PNG file", code="damaged-file")
    heights = [header.height for header in headers]
    widths = [header.width for header in headers]
    channels = 1 if all(header.channels == 1 for header in headers) else 3
    smallest = f"{min(heights)}×{min(widths)}"
    largest = f"{max(heights)}×{max(widths)}"
    if smallest == largest and max(*heights, *widths) <= _LARGEST_IMAGE:
        return None, f"{smallest} pixels"
    sizes = f"{smallest} pixels" if smallest == largest else f"{smallest} to {largest} pixels"
    return [_RESIZED, _RESIZED, channels], sizes


def _image_list(path: Path, source: FileSource) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["path", "class"])
    for file, number in zip(source.paths, source.label.tolist(), strict=True):
        writer.writerow([Path(file).relative_to(path).as_posix(), source.labels[number]])
    return text.getvalue()


# Arrays


def _draft_of_arrays(path: Path, arrays: Mapping[str, np.ndarray]) -> _Draft:
    inputs = [name for name in arrays if name not in ("y", "w")]
    shapes = ", ".join(
        f"{name} {array.dtype} {list(array.shape)}" for name, array in arrays.items()
    )
    if inputs != ["x"]:
        raise DataError(
            f"{path}: has the inputs {', '.join(inputs)}, expected only x beside y\n"
            f"arrays: {shapes}\n"
            "for several inputs, write a function that builds the model: docs/keras_models.md",
            code="bad-data",
        )
    x = arrays["x"]
    y = arrays["y"]
    if (
        x.ndim < 2
        or y.ndim not in (1, 2)
        or x.dtype.kind not in "fiub"
        or y.dtype.kind not in "fiub"
    ):
        raise DataError(
            f"{path}: got {shapes}, expected numbers x [examples, …] and y [examples] or "
            "[examples, outputs]",
            code="bad-data",
        )
    labels = y.reshape(len(y), -1)
    is_class = labels.shape[1] == 1 and bool((labels == np.rint(labels)).all())
    is_class = is_class and labels.min() >= 0 and len(np.unique(labels)) <= MOST_CLASSES
    units = int(labels.max()) + 1 if is_class else labels.shape[1]
    layers: list[object] = []
    if x.dtype == np.uint8:
        layers.append({"Rescaling": {"scale": round(1 / max(1, int(x.max())), 6)}})
    layers += ["Flatten"] * (x.ndim > 2)
    layers += [] if x.dtype == np.uint8 else ["BatchNormalization"]
    layers += [{"Dense": {"units": 128, "activation": "relu"}}, {"Dropout": {"rate": 0.2}}]
    layers += [{"Dense": {"units": units}}]
    loss = (
        "{class_name: SparseCategoricalCrossentropy, config: {from_logits: true}}"
        if is_class
        else "mse"
    )
    what = f"{units} classes" if is_class else "numbers"

    def lines(seed: int) -> list[str]:
        return [
            "name: keras",
            f"# {shapes}: y has {what}.",
            "# Instead of layers, `build: my_nets:build` names a function that returns a model.",
            "model:",
            "  layers:",
            *(f"    - {inline_yaml(layer)}" for layer in layers),
            f"loss: {loss}",
            f"metrics: {'[accuracy]' if is_class else '[mae]'}",
            _PATH_COMMENT,
            f"train_data: {{source: npz, input_path: {inline_yaml(str(path))},"
            " global_batch_size: 64}",
            "# A fifth of the examples is held out, chosen by a hash of their index.",
            "validation_split: 0.2",
            "validation_data: {global_batch_size: 1024}",
        ]

    facts = [("arrays", shapes), ("labels", what)]
    return _Draft(f"y by x of {path.name}", lines, facts, _trainer("0.001"))
