"""Loads the dataset of a config section. Uses only NumPy, so that it can be checked early."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeGuard

import numpy as np

from orbit_runner.config.schema.data import input_paths
from orbit_runner.data.array_record.source import ArrayRecordSource
from orbit_runner.data.bad_records.image_files import exclude_bad_images
from orbit_runner.data.fingerprint import (
    DataFile,
    content_digest,
    describe_arrays,
    describe_directories,
    describe_files,
)
from orbit_runner.data.images.csv_labels import find_untrained_class
from orbit_runner.data.images.files import FileSource
from orbit_runner.data.images.headers import survey_notes, survey_rows
from orbit_runner.data.images.statistics import NATURAL_MEAN, NATURAL_STD
from orbit_runner.data.images.survey import add_survey
from orbit_runner.data.join_sources import ImageSource, join_images
from orbit_runner.data.source import ArraySource, RepeatedArray, leaves
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.split import RowSplit
from orbit_runner.data.tfrecord.framing import record_files
from orbit_runner.data.tfrecord.joined_records import JoinedRecords
from orbit_runner.data.tfrecord.source import RecordSource
from orbit_runner.errors import DataError, first_line
from orbit_runner.registry import SOURCES
from orbit_runner.tasks.image_classification.data_config import (
    ImageDataConfig,
    has_image_augmentation,
)
from orbit_runner.tasks.imbalance.config import setting_of_source

Source = ImageSource
Size = Sequence[int] | None

_DEFAULT_SIZE, _DEFAULT_CLASSES = (32, 32, 3), 10
# Synthetic images repeat once they take this much memory.
_SYNTHETIC_BYTES = 2**26


@cache_source(maxsize=8)
def _load_cached(name: str, **settings: Any) -> Source:
    return SOURCES.get(name).load()(**settings)


def load_source(
    config: ImageDataConfig, input_size: Size = None, num_classes: int | None = None
) -> Source:
    """Returns the dataset of one section, loaded once per process.

    It is either in memory, as the arrays `image` [n, height, width, channels] and `label` [n], or
    the files or records to stream. Synthetic images have `input_size` (height, width, channels) and
    `num_classes`. Raises `DataError` if the dataset is missing or invalid.
    """
    try:
        if not config.mixture:
            return _load(config, input_size, num_classes)
        found = [
            _load_mixed(number, one, input_size, num_classes)
            for number, one in enumerate(config.sources)
        ]
        return join_images(tuple(found), resized=input_size is not None)
    except MemoryError as error:
        raise DataError(
            f"{config.source}: does not fit in memory: {first_line(error)}", field="source"
        ) from None


def _load_mixed(
    number: int, config: ImageDataConfig, input_size: Size, num_classes: int | None
) -> Source:
    """Returns a source of a mixture; errors name its setting."""
    try:
        return _load(config, input_size, num_classes)
    except DataError as error:
        raise DataError(str(error), field=setting_of_source(number, error.field)) from error


def _load(config: ImageDataConfig, input_size: Size, num_classes: int | None) -> Source:
    source = _load_all(config, input_size, num_classes)
    if config.max_bad_records and isinstance(source, FileSource):
        source = exclude_bad_images(source, config.max_bad_records)
    return source if isinstance(source, ArraySource) else _survey(source, input_size is not None)


@cache_source(maxsize=16)
def _survey(source: Any, resized: bool) -> Source:
    surveyed: Source = add_survey(source, resized=resized)
    return surveyed


def convert_channels(source: Source, channels: int) -> Source:
    """Returns a dataset whose images are converted to some channels when they are decoded."""
    if isinstance(source, ArraySource) or source.image_shape[2] in (0, channels):
        return source
    return dataclasses.replace(source, image_shape=(*source.image_shape[:2], channels))


def _load_all(config: ImageDataConfig, input_size: Size, num_classes: int | None) -> Source:
    if config.source == "synthetic":
        return _load_synthetic(config, input_size or _DEFAULT_SIZE, num_classes or _DEFAULT_CLASSES)
    if config.source == "tfds":
        usual = ("train",) if config.is_training else ("validation", "test")
        return _load_cached(
            "tfds",
            default_splits=usual,
            data_dir=config.tfds_data_dir,
            any_size=input_size is not None,
            split=config.tfds_split,
            tfds_name=config.tfds_name,
        )
    places: dict[str, Any] = {"data_dir": config.data_dir, "input_path": input_paths(config)}
    if config.source == "tfrecord" and config.max_bad_records:
        places["max_bad_records"] = config.max_bad_records
    if config.source in ("tfrecord", "array_record"):
        return _load_cached(
            config.source,
            **places,
            split=config.split,
            image_key=config.image_field_key,
            label_key=config.label_field_key,
            label_offset=config.label_offset,
            any_size=input_size is not None,
        )
    if config.source == "image_csv":
        return _load_cached(
            "image_csv",
            **places,
            part=config.part,
            labels_file=config.labels_file,
            classes_file=config.classes_file,
            path_column=config.path_column,
            label_column=config.label_column,
            row_split=_row_split(config),
        )
    return _load_cached(
        config.source, **places, split=config.split or ("train" if config.is_training else "test")
    )


def _row_split(config: ImageDataConfig) -> RowSplit | None:
    split = config.labels_split
    if split is None:
        return None
    fractions = tuple((split.fractions or {}).items())
    return RowSplit(split.column, fractions, tuple(split.hash_of), split.seed)


def file_reading(source: Source) -> str:
    """Returns how a worker reads the files of a dataset: see `TaskConfig.file_reading`."""
    if isinstance(source, ArraySource):
        return "memory"
    # A mixture of TFRecord files is read by index; otherwise they are read in blocks.
    in_blocks = isinstance(source, RecordSource) and not isinstance(source, JoinedRecords)
    return "all" if in_blocks else "own"


def source_files(source: Source) -> list[DataFile]:
    """Returns descriptions of the files of a dataset."""
    if isinstance(source, RecordSource):
        rows = record_files(source.files, source.indexes)
        if not source.left_out:
            return rows
        # If other records are left out, the steps have other examples.
        return [*rows, *describe_arrays({"records left out": np.array(source.left_out)})]
    if isinstance(source, FileSource):
        places, start = {}, 0
        for directory, count in source.directories:
            places[directory] = source.paths[start : start + count]
            start += count
        rows = describe_files(source.label_files, content_digest)
        return [*rows, *describe_directories(places)]
    if isinstance(source, ArrayRecordSource):
        return describe_files(source.files, content_digest)
    if source.files:
        return describe_files(source.files, content_digest)
    return [] if source.name == "synthetic" else describe_arrays(source.arrays)


def _load_synthetic(config: ImageDataConfig, size: Sequence[int], num_classes: int) -> Source:
    spec = config.synthetic.as_dict()
    features = spec["features"] or {
        "image": {"shape": list(size), "dtype": "uint8", "low": 0, "high": 256},
        "label": {"shape": [], "dtype": "int32", "low": 0, "high": num_classes},
    }
    return _synthesize(json.dumps(features), spec["num_examples"], spec["kind"], config.seed or 0)


@cache_source(maxsize=4)
def _synthesize(features: str, num_examples: int, kind: str, seed: int) -> Source:
    return SOURCES.get("synthetic").load()(
        features=json.loads(features),
        num_examples=num_examples,
        kind=kind,
        seed=seed,
        max_bytes=_SYNTHETIC_BYTES,
    )


def image_spec(source: Source, input_size: Size = None) -> tuple[tuple[int, int, int], str]:
    """Returns the shape, (height, width, channels), and the dtype of the images.

    `input_size` is the shape that images are resized to, if they are. Raises `DataError` if the
    dataset has no images, or none that can be resized to it.
    """
    if not isinstance(source, ArraySource):
        if input_size is None and not source.image_shape[0]:
            raise DataError(
                f"{source.name}: the first image is corrupt, so the image size is unknown; "
                "set model.input_size",
                field="source",
            )
        return source.image_shape if input_size is None else _shape_tuple(input_size), "uint8"
    image: Any = source.arrays.get("image", 0)
    if np.ndim(image) != 4:
        names = ", ".join(path for path, _ in leaves(source.arrays))
        raise DataError(
            f"{source.name}: got arrays {names}, expected `image` [n, height, width, channels]",
            field="source",
        )
    if input_size is None or tuple(input_size) == image.shape[1:]:
        return _shape_tuple(image.shape[1:]), image.dtype.name
    if image.dtype != np.uint8 or image.shape[3] not in (1, 3):
        raise DataError(
            f"{source.name}: got images {list(image.shape[1:])} of {image.dtype}, expected uint8 "
            f"images with 1 or 3 channels, to resize to {list(input_size)}",
            field="source",
        )
    return _shape_tuple(input_size), "uint8"


def is_ready(source: Source, params: ImageDataConfig, input_size: Size) -> TypeGuard[ArraySource]:
    """Returns whether images are in memory in their final size and need at most a crop or flip."""
    if not isinstance(source, ArraySource):
        return False
    if params.source == "synthetic":
        return True
    same = image_spec(source, input_size)[0] == image_spec(source)[0]
    return same and not has_image_augmentation(params) and params.mixup_and_cutmix is None


def check_arrays(source: Source) -> None:
    """Raises `DataError` if labels in memory are negative or no integers, or pixels are not finite.

    Call it once per source, because it checks every image.
    """
    if not isinstance(source, ArraySource):
        return
    label, image = (source.arrays.get(name, np.zeros(())) for name in ("label", "image"))
    label, image = (a.rows if isinstance(a, RepeatedArray) else a for a in (label, image))
    problem = ""
    if "label" not in source.arrays or label.ndim != 1 or label.dtype.kind not in "iu":
        got = f"{label.dtype} {list(label.shape)}" if "label" in source.arrays else "none"
        problem = f"got labels {got}, expected `label` [n] of integers"
    elif label.min() < 0:
        problem = f"got label {label.min()} in example {label.argmin()}, expected 0 or more"
    elif image.dtype.kind not in "iuf":
        problem = f"got images of {image.dtype}, expected numbers"
    elif image.dtype.kind == "f" and not np.isfinite(image.sum(dtype=np.float64)):
        finite = np.isfinite(image.reshape(len(image), -1)).all(axis=1)
        if not finite.all():
            problem = f"got pixels that are not finite in example {finite.argmin()}"
    if problem:
        raise DataError(f"{source.name}: {problem}", field="source")


def _shape_tuple(shape: Sequence[int]) -> tuple[int, int, int]:
    height, width, channels = shape
    return height, width, channels


def pixel_statistics(
    source: Source, input_size: Size = None
) -> tuple[tuple[float, ...] | None, tuple[float, ...] | None]:
    """Returns the mean and the standard deviation that the network normalizes pixels with.

    They are those of the dataset if known, or ImageNet's for color images that are resized. Each
    has a value per channel, or one for all channels; None means no normalization.
    """
    known = isinstance(source, ArraySource) and source.mean is not None
    if input_size is not None and input_size[-1] == 3 and not known:
        return NATURAL_MEAN, NATURAL_STD
    return source.mean, source.std


def known_classes(source: Source) -> int | None:
    """Returns the number of classes, or None if only reading all files would tell."""
    if source.labels is not None:
        return len(source.labels)
    if not isinstance(source, ArraySource):
        return None
    return source.num_classes or int(source.arrays["label"].max()) + 1


def mismatch_problems(
    sources: Mapping[str, Source], num_classes: int | None, input_size: Size = None
) -> Iterator[tuple[str, str]]:
    """Yields (field, message) for datasets that do not match each other or the network.

    `sources` are the datasets by section, training first. `num_classes` is the number of classes
    that the config sets, or None. `input_size` is the shape that images are resized to, or None.
    """
    for section, source in sources.items():
        classes = known_classes(source) if num_classes else None
        if num_classes and classes and classes > num_classes:
            yield (
                "model.num_classes",
                f"got {num_classes}, expected at least {classes}, the classes of {section}",
            )
            break
    channels = image_spec(next(iter(sources.values())), input_size)[0][2] if sources else 0
    specs = [
        (section, *image_spec(convert_channels(source, channels), input_size))
        for section, source in sources.items()
    ]
    for section, shape, dtype in specs[1:]:
        first, *expected = specs[0]
        if [shape, dtype] != expected:
            yield (
                f"{section}.source",
                f"got images {list(shape)} of {dtype}, expected {list(expected[0])} of "
                f"{expected[1]} as in {first}",
            )
    yield from _label_problems(sources)
    yield from _untrained_class_problems(sources)


def size_problems(sources: Mapping[str, Source]) -> Iterator[tuple[str, str]]:
    """Yields an error if images have different sizes, although they are not resized."""
    for section, source in sources.items():
        survey = None if isinstance(source, ArraySource) else source.survey
        if survey is not None and survey.smallest != survey.largest:
            small, large = (f"{h} × {w}" for h, w in (survey.smallest, survey.largest))
            yield (
                "model.input_size",
                f"is not set, but the images of {section} have from {small} to {large} pixels\n"
                "set it to height, width and channels to resize all images to",
            )
            return


def image_notes(sources: Mapping[str, Source], input_size: Size = None) -> dict[str, list[str]]:
    """Returns by section what may surprise in the images, one line each.

    The training images come first in `sources`, and decide on the channels.
    """
    notes: dict[str, list[str]] = {}
    channels = 0
    for section, source in sources.items():
        shape, _ = image_spec(source, input_size)
        channels = channels or shape[2]
        survey = None if isinstance(source, ArraySource) else source.survey
        if survey is not None:
            lines = survey_notes(survey, (*shape[:2], channels), resized=input_size is not None)
            notes[section] = [*lines]
    return notes


def image_rows(
    sources: Mapping[str, Source], input_size: Size = None
) -> dict[str, list[tuple[str, str]]]:
    """Returns by section what the headers of the images tell, and what is left out."""
    notes = image_notes(sources, input_size)
    rows = {}
    for section, source in sources.items():
        if isinstance(source, ArraySource) or source.survey is None:
            continue
        rows[section] = [*survey_rows(source.survey), *(("note", line) for line in notes[section])]
        if isinstance(source, FileSource):
            rows[section] += [("not used", line) for line in source.left_out]
    return rows


def _label_problems(sources: Mapping[str, Source]) -> Iterator[tuple[str, str]]:
    named = [(section, s.labels) for section, s in sources.items() if s.labels is not None]
    for section, labels in named[1:]:
        first, expected = named[0]
        if labels != expected:
            odd = sorted(set(labels) ^ set(expected))
            hint = ""
            if sources[section].name == sources[first].name == "image_csv":
                hint = f"\nset {section}.classes_file to the labels_file of {first}"
            yield (
                f"{section}.source",
                f"got {len(labels)} classes, expected the {len(expected)} of {first}; "
                f"they differ in {', '.join(odd[:5]) or 'their order'}{hint}",
            )


def _untrained_class_problems(sources: Mapping[str, Source]) -> Iterator[tuple[str, str]]:
    listed = [
        (section, source)
        for section, source in sources.items()
        if isinstance(source, FileSource) and source.listed is not None
    ]
    for section, source in listed[1:]:
        train = listed[0][1]
        problem = find_untrained_class(train, source) if train.labels == source.labels else ""
        if problem:
            yield f"{section}.labels_file", problem
