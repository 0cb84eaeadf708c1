"""Looks at a dataset, and writes an experiment for it, with comments."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from string import Template

import numpy as np

from orbit_runner.config.errors import ConfigError
from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.serialize import inline_yaml
from orbit_runner.data.images.files import SUFFIXES as IMAGE_SUFFIXES
from orbit_runner.data.images.files import FileImages
from orbit_runner.data.images.files import load as load_images
from orbit_runner.data.images.headers import add_survey, read_header
from orbit_runner.data.source_cache import source_cache_scope
from orbit_runner.data.tables.columns import CATEGORY, DATE, NUMBER, TEXT
from orbit_runner.errors import DataError, RunnerError, format_count, format_list
from orbit_runner.init.new_project import check_empty, make_identifier, write_files
from orbit_runner.init.table_survey import (
    ColumnUse,
    TableSurvey,
    choose_label,
    is_regression,
    plain_text,
    survey_table,
)
from orbit_runner.registry import TABLE_SOURCES

EXPERIMENT = "experiment.yaml"
_MOST_HEADERS = 1_000
_MOST_DECODED = 100
_LARGEST_IMAGE = 96  # Larger images are resized.
_RESIZED = 64
_FEW_IMAGES = 1_000  # Fewer images get smaller batches.
_LISTS = {"numeric": NUMBER, "categorical": CATEGORY, "date": DATE, "text": TEXT}
_FRACTIONS = {"train": 0.7, "validation": 0.15, "test": 0.15}
_ALLOWED = (
    "allowed: a .csv, .tsv, .jsonl, .parquet or .npz file, a directory with one directory of "
    "images per class, or a directory with one text file per class"
)

_EXPERIMENT = Template("""\
# Written by `runner init --from`. `runner help SETTING` describes a setting, and
# `runner show FILE --origins` prints all of them, with the defaults.
name: $name
description: $about

task:
$task$trainer
runtime:
$threads  # Another seed gives other initial weights and another order of the examples.
  seed: 1
""")
_TEST = """\
  # At the end, `runner evaluate RUN --split=test --checkpoint=best` evaluates on the part `test`,
  # which neither training nor the choice of the best checkpoint has seen.
"""
_NUMBERS = "It is a number; without `type: regression`, each of its values is a class."
_CLASSES = "Its values are classes; for numbers: {column: …, type: regression}."
_AUC = "{class_name: AUC, config: {multi_label: true}}"
_F1 = "{class_name: F1Score, config: {average: macro}}"
_TRAINER = Template("""
trainer:
  train_epochs: 20
  min_steps_per_epoch: $min_steps  # of small data
  validation_epochs: 1
  summary_interval: 50  # steps between two points of the training curve
  # The best checkpoint is that of the lowest loss on validation data: --checkpoint=best.
  best_checkpoint_export_subdir: best
  best_checkpoint_eval_metric: validation_loss
  best_checkpoint_metric_comp: lower
  optimizer_config:
    optimizer:$optimizer
    learning_rate: {type: cosine, cosine: {initial_learning_rate: $rate, decay_steps: auto}}
""")
_IMAGE_TRAINER = _TRAINER.substitute(min_steps=15, optimizer=" {type: adam}", rate=0.001)
# As in configs/data/table.yaml.
_TABLE_TRAINER = _TRAINER.substitute(
    min_steps=150,
    optimizer="""
      type: adamw
      # The linear part of the model for numbers needs no weight decay.
      adamw: {weight_decay_rate: auto, exclude_from_weight_decay: [_wide/]}""",
    rate=0.003,
)
_TABLE_THREADS = """\
  # Faster for small networks, and the weights do not depend on the number of cores.
  intra_op_threads: 1
"""
_WIDE_DEEP = """\
  # The sum of a linear model and of a small deep network.
  model: {name: wide_deep, hidden_units: [128, 64], dropout_rate: 0.5}
"""
_LINEAR = """\
  # A linear model of the mean of the embeddings of all words.
  model: {name: mlp, hidden_units: [], embedding_width: 64}
"""
_GROUPS = """\
  # If several rows belong together, such as those of a customer, add `hash_of: [COLUMN]` to
  # `split`: they are then in one part.
"""
_TABLE = Template("""\
  name: tabular
$model  # Predicted, because $reason; `runner init --label=COLUMN` chooses another.
  # $kind
  target: $target  # $label_about
  # The columns that the model sees, from $rows rows.
  # Remove the line of a column to leave it out.
  features:
$features$unused
$split  # Beside $other_metrics.
  metrics: [$metric]
  # Paths are relative to the directory in which the command runs.
  train_data:
$section    global_batch_size: 64
  validation_data: {global_batch_size: 1024}  # a part of the rows, see `split`
""")
_TEXT = Template("""\
  name: tabular
$model  # Each line of a file is a text, and its class is that of the file or pattern.
  target: label
  features:
    text: [{column: text, max_length: 200}]  # words, from the first, that the model sees
  # A hash of the text decides, so that equal texts are in the same part.
$test  split: {fractions: $fractions}
  # Beside accuracy.
  metrics: [$metric]
  # Paths are relative to the directory in which the command runs.
  train_data:
$section
    global_batch_size: 64
  validation_data: {global_batch_size: 1024}  # a part of the texts, see `split`
""")
_IMAGES = Template("""\
  name: image_classification
  # $count classes: $classes
  # $decoded were decoded, to find damaged ones.
  model:
    # A small network. For photographs, use one that was trained on ImageNet: replace the lines
    # `name` to `dense_units`, and `input_size`, with these, and see `augment` below:
    # name: application
    # application: MobileNetV2
    # weights: imagenet
    # input_size: [224, 224, 3]
    name: cnn
    filters: [32, 64]
    kernel_size: 3
    dense_units: 128
    # The images have $sizes.$input_size
  metrics: [{class_name: F1Score, config: {average: macro}}]
$split
  # Paths are relative to the directory in which the command runs.
  train_data:
    source: image_folder
    data_dir: $path
    global_batch_size: $batch_size
    # Random changes of the training images, if no class depends on sides or colors:
    # augment: inception  # random crops, mirrored or not
    # crop_area_range: [0.5, 1.0]
    # color_jitter: 0.2
  validation_data: {source: image_folder, data_dir: $path, global_batch_size: 128}
""")


@dataclasses.dataclass(frozen=True)
class _Draft:
    """What is to be written, and what was found."""

    about: str
    task: str
    trainer: str = _TABLE_TRAINER
    threads: str = _TABLE_THREADS
    problem: str = ""


def write_experiment(
    directory: Path, data: str, *, label: str = "", name: str | None = None
) -> tuple[Path, str]:
    """Writes an experiment that trains on a dataset.

    Args:
        directory: The directory to write to; it is created if it does not exist.
        data: A CSV, JSON lines, Parquet or `.npz` file, or a directory of images or of text files.
        label: The column to predict; by default, it is chosen by its name and its values.
        name: The name of the experiment; by default that of the directory.

    Returns:
        The file, and what its first run would report of the data; "" if nothing.

    Raises:
        RunnerError: The directory contains files, or the data cannot be read or used.
    """
    check_empty(directory)
    try:
        draft = _draft(Path(data), label)
    except DataError as error:
        raise RunnerError(str(error), path="--from", code=error.code) from None
    name = make_identifier(directory.resolve().name) or "experiment" if name is None else name
    text = _EXPERIMENT.substitute(
        name=inline_yaml(name),
        about=inline_yaml(draft.about),
        task=draft.task,
        trainer=draft.trainer,
        threads=draft.threads,
    )
    write_files(directory, {EXPERIMENT: text})
    experiment = directory / EXPERIMENT
    return experiment, draft.problem or _find_problems(experiment)


def _find_problems(experiment: Path) -> str:
    """Returns what a run of an experiment would report of its data."""
    try:
        resolved = resolve(Request(experiment=str(experiment)))
        with source_cache_scope():
            problems = resolved.locate(
                problem.below("task") for problem in resolved.config.data.problems()
            )
        return str(ConfigError(problems)) if problems else ""
    except ConfigError as error:
        return str(error)


def _draft(path: Path, label: str) -> _Draft:
    if not path.exists():
        raise DataError(f"{path} does not exist\n{_ALLOWED}", code="missing-file")
    if path.is_dir():
        if label:
            raise RunnerError(
                f"{path} is a directory, whose classes are the labels",
                path="--label",
                code="no-effect",
            )
        return _draft_of_directory(path)
    if not path.is_file():
        raise DataError(f"{path} is not a regular file\n{_ALLOWED}", code="wrong-file-type")
    if not path.stat().st_size:
        raise DataError(f"{path} is empty\n{_ALLOWED}", code="empty-data")
    suffix = path.name.lower().removesuffix(".gz").rpartition(".")[2].replace("tsv", "csv")
    for entry in TABLE_SOURCES.registered():
        if entry.name == suffix and entry.traits.settings and not entry.traits.required:
            return _draft_of_table(path, entry.name, survey_table(path, entry.load()), label)
    raise DataError(
        f"{path}: the format of {path.name!r} is not known\n{_ALLOWED}", code="not-supported"
    )


def _draft_of_table(path: Path, source: str, survey: TableSurvey, label: str) -> _Draft:
    target, reason = choose_label(survey, label, path)
    others = [use for use in survey.uses if use.name != target.name]
    features = [use for use in others if use.kind]
    unused = [f"{plain_text(use.name)}: {use.about}" for use in others if not use.kind]
    if not features:
        message = f"{path}: no column is left to predict {target.name!r} from"
        raise DataError(
            f"{message}\n{format_list(unused)}" if unused else message, code="not-supported"
        )
    section = {"source": source, "input_path": str(path)}
    if survey.options.delimiter != ",":
        section["delimiter"] = survey.options.delimiter
    lines = ["Columns that are not used:", *(f"  {text}" for text in unused)]
    name = inline_yaml(target.name)
    regression = is_regression(target)
    is_binary = target.summary is not None and target.summary.distinct == 2
    task = _TABLE.substitute(
        model=_LINEAR if [use.kind for use in features] == [TEXT] else _WIDE_DEEP,
        reason=reason,
        rows=f"{survey.rows:,}",
        kind=_NUMBERS if regression else _CLASSES,
        target=f"{{column: {name}, type: regression}}" if regression else name,
        label_about=target.about,
        features="\n".join(_feature_lines(features)),
        unused="".join(f"\n  # {line}" for line in lines if unused),
        split=_split_of_table(others),
        other_metrics="mae and rmse" if regression else "accuracy",
        metric="r2_score" if regression else _AUC if is_binary else _F1,
        section="".join(f"    {key}: {inline_yaml(value)}\n" for key, value in section.items()),
    )
    return _Draft(f"{target.name} by the columns of {path.name}", task)


def _split_of_table(uses: Sequence[ColumnUse]) -> str:
    """Returns how rows are split: by the column with the fewest groups, if there are any."""
    groups = [use.column for use in uses if use.is_group and use.column is not None]
    if not groups:
        reason = "A hash of the features decides, so that equal rows are in the same part."
        split = f"  split: {{fractions: {inline_yaml(_FRACTIONS)}}}\n"
        return f"  # {reason}\n{_GROUPS}{_TEST}{split}"
    column = min(groups, key=lambda column: len(np.unique(column.values)))
    name = inline_yaml(column.name)
    reason = (
        f"Rows with the same {plain_text(column.name)} are in one part: evaluation is on new ones."
    )
    split = f"{{fractions: {inline_yaml(_FRACTIONS)}, hash_of: [{name}]}}"
    return f"  # {reason}\n{_TEST}  split: {split}\n"


def _feature_lines(features: Sequence[ColumnUse]) -> Iterator[str]:
    for title, kind in _LISTS.items():
        items = {
            f"      - {inline_yaml(use.name)}": use.about for use in features if use.kind == kind
        }
        width = min(max(map(len, items), default=0), 40)
        yield from [f"    {title}:"] * bool(items)
        yield from (f"{item:<{width}}  # {about}" for item, about in items.items())


# Directories


def _draft_of_directory(path: Path) -> _Draft:
    try:
        names = sorted(entry for entry in path.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise DataError(
            f"{path}: cannot be read ({error.strerror})", code="unreadable-file"
        ) from None
    if not names:
        raise DataError(f"{path} is empty\n{_ALLOWED}", code="empty-data")
    below = (file for file in path.rglob("*") if file.parent != path)
    if any(file.name.lower().endswith(IMAGE_SUFFIXES) for file in below):
        return _draft_of_images(path)
    texts = [file for file in names if _is_text_file(file)]
    classes = {file.name.removesuffix(".gz").removesuffix(".txt"): file.name for file in texts}
    for folder in (entry for entry in names if entry.is_dir()):
        if any(map(_is_text_file, folder.iterdir())):
            classes[folder.name] = f"{folder.name}/*.txt*"
    if len(classes) > 1:
        return _draft_of_texts(path, classes)
    raise DataError(
        f"{path}: contains nothing that is known; of a table, name the file\n{_ALLOWED}",
        code="not-supported",
    )


def _is_text_file(path: Path) -> bool:
    return path.name.lower().endswith((".txt", ".txt.gz")) and path.is_file()


def _draft_of_texts(path: Path, classes: Mapping[str, str]) -> _Draft:
    files = [f"\n      {inline_yaml(name)}: {inline_yaml(file)}" for name, file in classes.items()]
    task = _TEXT.substitute(
        model=_LINEAR,
        test=_TEST,
        fractions=inline_yaml(_FRACTIONS),
        metric=_F1,
        section=f"    source: text_files\n    data_dir: {inline_yaml(str(path))}\n    files:"
        + "".join(files),
    )
    return _Draft(f"the class of the texts in {path.name}", task)


def _draft_of_images(path: Path) -> _Draft:
    train = load_images(split="train", data_dir=str(path))
    total = load_images(split="all", data_dir=str(path)).size
    names = train.labels or ()
    if len(names) < 2:
        raise DataError(f"{path}: has only the class {names[0]!r}\n{_ALLOWED}", code="bad-data")
    split = "  # Training reads train/, and evaluation the directory beside it."
    if train.size == total:
        split = "  # Of each class, a hash of the paths decides on the images of each part.\n"
        split += f"{_TEST}  split: {{fractions: {inline_yaml(_FRACTIONS)}, stratified: true}}"
    size, sizes = _image_size(train)
    counts = np.bincount(train.class_numbers(), minlength=len(names)).tolist()
    classes = [f"{plain_text(n)} ({count:,})" for n, count in zip(names, counts, strict=True)]
    decoded = train.paths[:: max(1, train.size // _MOST_DECODED)]
    task = _IMAGES.substitute(
        decoded=f"{len(decoded):,} of {format_count(train.size, 'training image')}",
        count=f"{len(names):,}",
        classes=", ".join([*classes[:8], *["…"] * (len(classes) > 8)]),
        sizes=f"{sizes}; they are resized to this size" if size else sizes,
        input_size=f"\n    input_size: {size}" if size else "",
        split=split,
        path=inline_yaml(str(path)),
        batch_size=64 if total >= _FEW_IMAGES else 16,
    )
    about = f"the class of the images in {path.name}"
    return _Draft(about, task, _IMAGE_TRAINER, "", _find_damaged_image(decoded))


def _find_damaged_image(paths: Iterable[str]) -> str:
    """Decodes images. Returns what is wrong with the first that is damaged, or ""."""
    for path in paths:
        try:
            read_header(path, decodes=True)
        except ValueError:
            advice = "remove it, or set max_bad_images in both sections"
            return f"{path}: the image cannot be decoded\n{advice}"
    return ""


def _image_size(source: FileImages) -> tuple[list[int] | None, str]:
    """Returns the size to resize images to, None if they keep theirs, and the sizes in words."""
    step = max(1, source.size // _MOST_HEADERS)
    survey = add_survey(source.select(np.arange(0, source.size, step))).survey
    if survey is None or not survey.sizes:
        raise DataError(f"{source.location(0)}: is not a JPEG or PNG file", code="damaged-file")
    heights, widths = zip(*survey.sizes, strict=True)
    channels = 1 if survey.channels == 1 else 3
    smallest = f"{min(heights)}×{min(widths)}"
    largest = f"{max(heights)}×{max(widths)}"
    if smallest == largest and max(*heights, *widths) <= _LARGEST_IMAGE:
        return None, f"{smallest} pixels"
    sizes = f"{smallest} pixels" if smallest == largest else f"{smallest} to {largest} pixels"
    return [_RESIZED, _RESIZED, channels], sizes
