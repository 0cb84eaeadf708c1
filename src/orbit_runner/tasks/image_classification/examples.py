"""The training examples of image classification, and their random draws; no TensorFlow."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import Any

import numpy as np

from orbit_runner.data.array_record.source import ArrayRecordSource
from orbit_runner.data.example_ids import (
    find_row,
    index_of,
    is_same_file,
    place_of,
    unknown_id_error,
)
from orbit_runner.data.images.files import FileSource
from orbit_runner.data.order.epochs import EpochOrder, Rows, ShuffledOrder
from orbit_runner.data.order.records import RecordOrder
from orbit_runner.data.source import ArraySource, stored_rows
from orbit_runner.data.tfrecord.example import bytes_of, features_of, image_shape, int_of
from orbit_runner.data.tfrecord.framing import record_data, record_starts
from orbit_runner.data.tfrecord.source import RecordSource
from orbit_runner.tasks.examples import find_excluded, order_of
from orbit_runner.tasks.image_classification.augmentation_draws import AugmentationDraws
from orbit_runner.tasks.image_classification.classes import image_mixture
from orbit_runner.tasks.image_classification.config import ImageClassificationConfig
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.sources import Source, known_classes, load_source

_HEAD_BYTES = 2**16


class ImageExamples:
    """Images in memory, in TFRecord files or in separate files."""

    def __init__(self, config: ImageClassificationConfig, data: ImageDataConfig) -> None:
        size, classes = config.model.input_size, config.model.num_classes
        if classes is None:
            classes = known_classes(load_source(config.train_data, size))
        self._source = load_source(data, size, classes)
        self.source = self._source.name
        self._draws = AugmentationDraws(data, self._source, size)
        self._starts: dict[int, list[int]] = {}  # Offsets of the records by block.
        index = "an index as `runner batch` prints it"
        kinds: dict[type, str] = {
            RecordSource: ", or FILE:RECORD",
            ArrayRecordSource: ", or FILE:RECORD",
            FileSource: ", or the path of an image"
            + (", or FILE:ROW" if getattr(self._source, "listed", None) else ""),
        }
        if isinstance(self._source, ArraySource) and self._source.parts:
            kinds[ArraySource] = ", or DATASET:INDEX"
        self.id_help = index + next(
            (form for kind, form in kinds.items() if isinstance(self._source, kind)), ""
        )
        self.excluded = find_excluded(data, self._source.size, self.find)
        mixture = image_mixture(data, self._source, classes, self.excluded)
        self.order = order_of(data, _sequence(self._source, data), self.excluded, mixture)

    def describe(
        self, rows: Rows, chosen: np.ndarray, *, text: bool = False
    ) -> list[dict[str, Any]]:
        """Returns file, label and augmentation of each chosen row."""
        del text
        describe_draws = self._draws.row_describer(rows)
        found = []
        for row in chosen.tolist():
            place, size = self._describe_place(int(rows.examples[row]))
            found.append(place | describe_draws(row, size))
        return found

    def place(self, number: int) -> dict[str, Any]:
        """Returns file and label of an image by its number in stored order."""
        return self._describe_place(number)[0]

    def find(self, text: str) -> int:
        """Returns the index of the image that a place names."""
        found = index_of(text, self._source.size)
        matches = [found] if found is not None else [*self._matches(text)]
        if len(matches) == 1:
            return matches[0]
        reason = f"is the end of {len(matches)} paths; add directories" if matches else ""
        raise unknown_id_error(
            text, self.id_help, reason, () if matches else self._candidate_names(text)
        )

    def _candidate_names(self, text: str) -> Iterator[str]:
        """Yields the names that an unknown ID may be a misspelling of."""
        source, place = self._source, place_of(text)
        if isinstance(source, FileSource):
            yield from (path[-len(text) :] for path in source.paths)
        elif isinstance(source, RecordSource) and place:
            yield from (f"{path.name}:{place[1]}" for path in source.files)

    def _matches(self, text: str) -> Iterator[int]:
        source, place = self._source, place_of(text)
        if isinstance(source, FileSource):
            numbers = self._numbers_by_name.get(text.rpartition("/")[2], ())
            yield from (n for n in numbers if is_same_file(source.paths[n], text))
            if source.listed is not None and place is not None and not numbers:
                parts, rows = source.listed.source.parts, source.listed.rows
                yield find_row(text, parts, rows, first=1, id_help=self.id_help)
        if isinstance(source, ArraySource) and source.parts:
            yield find_row(text, source.parts, source.rows, first=0, id_help=self.id_help)
        if not isinstance(source, RecordSource | ArrayRecordSource) or place is None:
            return
        blocks = source.blocks
        for number, path in enumerate(source.files):
            if not is_same_file(str(path), place[0]):
                continue
            inside = (blocks.file == number) & (blocks.place <= place[1])
            inside &= place[1] < blocks.place + blocks.records
            yield from (blocks.first + place[1] - blocks.place)[inside].tolist()

    @functools.cached_property
    def _numbers_by_name(self) -> dict[str, list[int]]:
        """The numbers of the image files by their names without directories."""
        assert isinstance(self._source, FileSource)
        found: dict[str, list[int]] = {}
        for number, path in enumerate(self._source.paths):
            found.setdefault(path.rpartition("/")[2], []).append(number)
        return found

    def _describe_place(self, number: int) -> tuple[dict[str, Any], tuple[int, int] | None]:
        """Returns location and label of an image, and its height and width (None if unknown)."""
        source = self._source
        if isinstance(source, RecordSource):
            return self._describe_record(source, number)
        if isinstance(source, ArrayRecordSource):
            file, record = source.place(number)
            found = {"file": str(source.files[file]), "record": record}
            return self._describe_example(source, source.read([number])[0], found)
        if isinstance(source, FileSource):
            path = source.paths[number]
            listed = source.listed
            place = {"file": path} | ({"place": listed.row_location(number)} if listed else {})
            return place | self._describe_label(int(source.label[number])), _size_of_file(path)
        labels, image = source.arrays.get("label"), source.arrays.get("image")
        label = {} if labels is None else self._describe_label(_array_row(labels, number))
        location = source.array_location(number)
        place = {"place": location} if location else {}
        return place | label, None if image is None else tuple(image.shape[1:3])

    def _describe_record(
        self, source: RecordSource, number: int
    ) -> tuple[dict[str, Any], tuple[int, int] | None]:
        blocks = source.blocks
        block = int(np.searchsorted(blocks.first, number, side="right")) - 1
        path, inner = source.files[int(blocks.file[block])], number - int(blocks.first[block])
        if block not in self._starts:
            self._starts[block] = record_starts(path, int(blocks.offset[block]))
        start = self._starts[block][inner]
        place = {"file": str(path), "record": int(blocks.place[block]) + inner, "offset": start}
        return self._describe_example(source, record_data(path, start), place)

    def _describe_example(
        self, source: RecordSource | ArrayRecordSource, record: bytes, place: dict[str, Any]
    ) -> tuple[dict[str, Any], tuple[int, int] | None]:
        try:
            features = features_of(record)
            label = int_of(features[source.label_key]) - source.label_offset
            height, width, _ = image_shape(bytes_of(features[source.image_key]))
        except (ValueError, KeyError):
            return place, None  # The pipeline will report it.
        return place | self._describe_label(label), (height, width)

    def _describe_label(self, label: Any) -> dict[str, Any]:
        names = self._source.labels
        if names is not None and isinstance(label, int) and 0 <= label < len(names):
            return {"label": label, "class": str(names[label])}
        return {"label": label}


def _sequence(source: Source, data: ImageDataConfig) -> EpochOrder:
    seed, window = data.seed or 0, data.shuffle_buffer_size
    if isinstance(source, RecordSource):
        return RecordOrder(source.blocks.records, seed, window)
    return ShuffledOrder(source.size, seed, window > 1)


def _array_row(array: Any, number: int) -> Any:
    rows = stored_rows(array)
    return rows[number % len(rows)].tolist()


def _size_of_file(path: str) -> tuple[int, int] | None:
    try:
        with open(path, "rb") as file:
            return image_shape(file.read(_HEAD_BYTES))[:2]
    except (OSError, ValueError):
        return None
