"""The kinds of examples that a Keras model is trained on; does not import TensorFlow.

They are arrays, images, or a dataset of tf.data (`stream.py`). The task calls the methods of
`Examples` and does not check which kind it has.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from orbit_runner.data.arrays import is_text, leaves
from orbit_runner.data.dataset import Dataset, describe_label
from orbit_runner.data.fingerprint import DataFile
from orbit_runner.data.images.dataset import ImageDataset, Size
from orbit_runner.data.indexed import describe_examples, indexed_arrays
from orbit_runner.data.order.mixture import Mixture
from orbit_runner.data.source import ArraySource
from orbit_runner.errors import DataError
from orbit_runner.tasks.image_classification.sources import training_classes
from orbit_runner.tasks.imbalance.classes import Classes, classes_of_labels
from orbit_runner.utils.metrics import summarize_array

if TYPE_CHECKING:
    import tensorflow as tf

    from orbit_runner.data.chunks import Chunks
    from orbit_runner.data.images.decode_errors import BadImages
    from orbit_runner.tasks.image_classification.inputs import ImageInputs
    from orbit_runner.tasks.keras.config import KerasDataConfig

    Context: TypeAlias = tf.distribute.InputContext | None
    Step: TypeAlias = int | tf.Tensor

X, Y, W = "x", "y", "w"  # inputs, labels, and the weights of examples
# The names of classes, by the path of the labels.
ClassNames: TypeAlias = Mapping[str, tuple[str, ...]]
# The shape of an example and the type of each array, by dotted path.
Specs: TypeAlias = Mapping[str, tuple[tuple[int, ...], str]]


@dataclasses.dataclass(frozen=True)
class Labels:
    """The labels of a dataset.

    Attributes:
        shape: The shape of one label; () for a number.
        dtype: The name of their type.
        low: The smallest label; None if unknown.
        high: The largest label; None if unknown.
    """

    shape: tuple[int, ...]
    dtype: str
    low: float | None = None
    high: float | None = None

    @property
    def are_integers(self) -> bool:
        """Whether the labels are integers, such as class numbers."""
        return np.dtype(self.dtype).kind in "iub"

    def __str__(self) -> str:
        text = f"{self.dtype} {['batch', *self.shape]}".replace("'", "")
        return text if self.low is None else f"{text} from {self.low:g} to {self.high:g}"


def labels_of(arrays: Sequence[np.ndarray], ignored: Sequence[int] = ()) -> Labels:
    """Returns the description of the labels of all sections, whose shape and type are equal.

    `ignored` are class numbers that count as no label.
    """
    first = arrays[0]
    if ignored:
        arrays = [array[~np.isin(array, ignored)] for array in arrays]
    counted = first.dtype.kind in "iuf" and all(array.size for array in arrays)
    values = np.concatenate([array.ravel() for array in arrays]) if counted else np.empty(0)
    low, high, *_ = summarize_array(values)
    return Labels(tuple(first.shape[1:]), first.dtype.name, low, high)


def labels_of_specs(specs: Specs) -> dict[str, Labels]:
    """Returns labels whose values are not known before they are read, by name; "" for a single."""
    paths = [path for path in specs if path.partition(".")[0] == Y]
    return {path.partition(".")[2]: Labels(*specs[path]) for path in paths}


class ExampleUse(NamedTuple):
    """How a task uses the examples of a section.

    Attributes:
        params: The section.
        excluded: The training examples to leave out, int64 [k].
        mixture: Returns what training examples are drawn from; None if all are equally likely.
        bad_images: Counts the images that fail to decode.
        num_classes: The number of classes of the model; None if it is not known.
    """

    params: KerasDataConfig
    excluded: np.ndarray
    mixture: Callable[[], Mixture | None]
    bad_images: BadImages
    num_classes: int | None


class Examples(abc.ABC):
    """The examples of a section.

    Attributes:
        name: The name for messages.
        images: The images; None if the examples are no images.
        file_reading: Which files a worker reads: see `TaskData.file_reading`.
        class_names: The names of the classes, if the examples have them.
        are_cropped: Whether evaluation crops the center of images before it resizes them.
    """

    name: str
    images: ImageDataset | None = None
    file_reading: str = "memory"
    class_names: ClassNames = types.MappingProxyType({})
    are_cropped: bool = False

    @property
    @abc.abstractmethod
    def specs(self) -> Specs:
        """The shape of an example and the type of each array."""

    @property
    def stored(self) -> Dataset | None:
        """The dataset, if each example has an index, so that training can start at any step."""
        return None

    @abc.abstractmethod
    def data_files(self) -> list[DataFile]:
        """Returns descriptions of what is read, by which a change is noticed."""

    @abc.abstractmethod
    def dataset(self, use: ExampleUse, context: Context, start_step: Step) -> tf.data.Dataset:
        """Returns one worker's pipeline of a section; see `KerasTask.build_inputs`."""

    def chunks(self, use: ExampleUse, replicas: int) -> Chunks | None:
        """Returns the batches of a section by step; None if only a pipeline makes them."""
        return None

    def count_examples(self) -> int | None:
        """Returns the number of examples that has to be counted; None if it need not or cannot."""
        return None

    def labels_by_name(self) -> Mapping[str, Any]:
        """Returns the labels of all examples, by "" if there is one array; none if unknown."""
        return {}

    def describe_labels(
        self, sections: Sequence[Examples], ignored: Sequence[int]
    ) -> dict[str, Labels]:
        """Returns the labels of all sections, by "" if there is one array.

        `ignored` are class numbers that count as no label.
        """
        return labels_of_specs(self.specs)

    def classes(self) -> Classes:
        """Returns the class of each example. Raises `DataError` if they are not classes."""
        raise DataError(
            f"{self.name}: the labels are in the items, so classes cannot be counted before "
            "training; return arrays, or weights w of the examples",
            field="source",
            code="not-supported",
        )

    def describe_row(self, row: int, text: bool = False) -> dict[str, object]:
        """Returns what `runner batch` says about an example besides its place and its class."""
        return {}


@dataclasses.dataclass(frozen=True, eq=False)
class ArrayExamples(ArraySource, Examples):
    """Arrays in memory, or objects that are read by index: `x`, `y`, and `w` if they have weights.

    In the place of `x` and `y`, there may be several arrays by name.
    """

    @property
    def specs(self) -> Specs:
        """The shape of an example and the type of each array."""
        return {
            path: (tuple(array.shape[1:]), "string" if is_text(array) else array.dtype.name)
            for path, array in leaves(self.arrays)
        }

    @property
    def stored(self) -> ArrayExamples:
        """The arrays."""
        return self

    @property
    def batch_size(self) -> int:
        """The number of examples in an item of an object that has batches, else 0."""
        return next((array.values.reader.batch_size for array in indexed_arrays(self)), 0)

    def data_files(self) -> list[DataFile]:
        """Returns an entry with a digest for each array."""
        return describe_examples(self)

    def dataset(self, use: ExampleUse, context: Context, start_step: Step) -> tf.data.Dataset:
        """Returns one worker's pipeline of a section."""
        from orbit_runner.tasks.array_inputs import chunks_dataset

        make_chunks = functools.partial(self._chunks, use)
        return chunks_dataset(make_chunks, use.params, context, start_step)

    def chunks(self, use: ExampleUse, replicas: int) -> Chunks | None:
        """Returns the batches by step; None for objects, because only a pipeline reads ahead."""
        return None if indexed_arrays(self) else self._chunks(use, replicas)

    def _chunks(self, use: ExampleUse, replicas: int) -> Chunks:
        from orbit_runner.tasks.array_inputs import ArrayInputs

        inputs = ArrayInputs(X, Y, W)
        return inputs.chunks(self, use.params, replicas, use.excluded, use.mixture())

    def labels_by_name(self) -> Mapping[str, Any]:
        """Returns the labels of arrays; those of objects are unknown."""
        if indexed_arrays(self) or Y not in self.arrays:
            return {}
        labels = self.arrays[Y]
        return labels if isinstance(labels, Mapping) else {"": labels}

    def describe_labels(
        self, sections: Sequence[Examples], ignored: Sequence[int]
    ) -> dict[str, Labels]:
        """Returns the labels of all sections with their smallest and largest values."""
        # Other sections with other arrays are an error when they are read.
        by_section = [section.labels_by_name() for section in sections]
        return super().describe_labels(sections, ignored) | {
            name: labels_of([labels[name] for labels in by_section if name in labels], ignored)
            for name in self.labels_by_name()
        }

    def classes(self) -> Classes:
        """Returns the class of each example, if it has one label."""
        if indexed_arrays(self):
            return super().classes()
        labels = self.arrays[Y]
        if isinstance(labels, Mapping):
            raise DataError(
                f"an example has several labels, {', '.join(labels)}, so it has no single class\n"
                "give y as one array, or weights w of the examples",
                code="not-supported",
            )
        return classes_of_labels(labels, self.labels)

    def describe_row(self, row: int, text: bool = False) -> dict[str, object]:
        """Returns the labels of an example that are a number or a text.

        The keys are `label`, and `class` if it has a name, or `label.NAME` of several labels.
        """
        labels = self.arrays[Y]
        if not isinstance(labels, Mapping):
            return describe_label(labels[row], names=self.labels)
        parts = [describe_label(array[row], f"label.{name}") for name, array in labels.items()]
        return {name: value for part in parts for name, value in part.items()}


class ImageExamples(Examples):
    """Images and their class numbers, with float32 pixels.

    Args:
        images: The images.
        input_size: Height, width and channels that they are resized to; None if they are not.
    """

    images: ImageDataset

    def __init__(self, images: ImageDataset, input_size: Size) -> None:
        self.images = images
        self.name = images.name
        self.file_reading = images.file_reading
        self.class_names = {Y: tuple(map(str, images.labels))} if images.labels else {}
        self.are_cropped = input_size is not None and not images.is_in_memory
        self._input_size = input_size

    @property
    def specs(self) -> Specs:
        """The shape of an image, and the type of its pixels and of its class number."""
        return {X: (self.images.spec(self._input_size)[0], "float32"), Y: ((), "int32")}

    @property
    def stored(self) -> ImageDataset:
        """The images."""
        return self.images

    def data_files(self) -> list[DataFile]:
        """Returns descriptions of the files of the images."""
        return self.images.data_files()

    def dataset(self, use: ExampleUse, context: Context, start_step: Step) -> tf.data.Dataset:
        """Returns one worker's pipeline of a section."""
        return self._inputs(use).dataset(context, start_step)

    def chunks(self, use: ExampleUse, replicas: int) -> Chunks | None:
        """Returns the batches by step; None for images to decode."""
        return self._inputs(use).chunks(replicas)

    def _inputs(self, use: ExampleUse) -> ImageInputs:
        from orbit_runner.tasks.image_classification.inputs import ImageInputs

        channels = self.specs[X][0][2]
        return ImageInputs(
            self.images.with_channels(channels),
            use.params,
            self.images.known_classes() or use.num_classes,
            self._input_size,
            use.bad_images,
            use.excluded,
            use.mixture,
            dtype="float32",
        )

    def labels_by_name(self) -> Mapping[str, Any]:
        """Returns the class numbers, unless all images would have to be read."""
        return {"": self.images.class_numbers()} if self.images.has_labels else {}

    def describe_labels(
        self, sections: Sequence[Examples], ignored: Sequence[int]
    ) -> dict[str, Labels]:
        """Returns the class numbers from 0 to the largest, if it is known."""
        count = self.images.known_classes()
        return {"": Labels((), "int32", *(() if count is None else (0.0, count - 1.0)))}

    def classes(self) -> Classes:
        """Returns the class of each image."""
        return training_classes(self.images)
