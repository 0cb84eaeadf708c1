"""Serving of image classification: signatures, and labels for image files."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf
import tf_keras

from orbit_runner.data.images.files import SUFFIXES
from orbit_runner.tasks.serving import (
    Prediction,
    Serving,
    answer_rows,
    texts_of,
)

BYTES, TENSOR, NAMES = "image_bytes", "image_tensor", "class_names"
_TOP_K = 3


def image_serving(
    model: tf_keras.Model, names: Sequence[str], decode: Callable[[tf.Tensor], tf.Tensor]
) -> Serving:
    """Returns the signatures `image_bytes` (the default), `image_tensor` and `class_names`.

    `model` maps images [batch, height, width, channels] to logits [batch, classes]. `decode` maps
    the bytes of one image, a string scalar, to the image as evaluation sees it. `class_names` takes
    no inputs.
    """
    images = tf.TensorSpec([None, *model.input_shape[1:]], model.inputs[0].dtype, name="images")
    image_spec = tf.TensorSpec(images.shape[1:], images.dtype)

    def classify(batch: tf.Tensor) -> dict[str, tf.Tensor]:
        logits = tf.cast(model(batch, training=False), tf.float32)
        return {"logits": logits, "probabilities": tf.nn.softmax(logits)}

    @tf.function(input_signature=[images])
    def image_tensor(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return classify(images)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="images")])
    def image_bytes(images: tf.Tensor) -> dict[str, tf.Tensor]:
        return classify(decode_images(images, decode, image_spec))

    @tf.function(input_signature=[])
    def class_names() -> dict[str, tf.Tensor]:
        return {"names": tf.constant(list(names), tf.string)}

    signatures = {BYTES: image_bytes, TENSOR: image_tensor, NAMES: class_names}
    return Serving(signatures=signatures, default=BYTES, labels={"class": list(names)})


def decode_images(
    images: tf.Tensor, decode: Callable[[tf.Tensor], tf.Tensor], spec: tf.TensorSpec
) -> tf.Tensor:
    """Returns the images of files, string [batch], each decoded to the shape and type of `spec`."""

    def decode_image(data: tf.Tensor) -> tf.Tensor:
        return tf.ensure_shape(tf.cast(decode(data), spec.dtype), spec.shape)

    return tf.map_fn(decode_image, images, fn_output_signature=spec)


@dataclasses.dataclass(frozen=True)
class ImageFile:
    """An image to predict for."""

    path: Path

    def read(self) -> bytes | str:
        """Returns the content of the file, or a string with the error."""
        if os.path.isdir(self.path):
            return f"no images in this directory (allowed: {', '.join(SUFFIXES)})"
        try:
            return self.path.read_bytes() or "is empty"
        except OSError as error:
            return f"cannot be read: {error.strerror or error}"
        except ValueError:  # A null character.
            return "cannot be read: no file has this name"


def images_of(path: Path) -> list[ImageFile]:
    """Returns an image, or those of a directory, recursively, in the order of their names.

    Of a directory, they are the files that training reads.
    """
    if not os.path.isdir(path):
        return [ImageFile(path)]
    files = sorted(file for file in path.rglob("*") if not os.path.isdir(file))
    images = [file for file in files if file.suffix.lower() in SUFFIXES]
    # A directory without images is an item itself, so that it is reported in its place.
    return [ImageFile(file) for file in images or [path]]


class ImagePredictor:
    """Labels image files with the signatures of a model in memory or of an exported one.

    `top_k` is the number of labels per image.
    """

    def __init__(
        self, signatures: Mapping[str, tf.types.experimental.Callable], top_k: int | None = None
    ) -> None:
        self._classify = signatures[BYTES]
        self._names = texts_of(signatures[NAMES]()["names"])
        self._top_k = top_k or _TOP_K

    def items(self, arguments: Sequence[str], lines: Iterable[str]) -> Iterator[ImageFile]:
        """Yields images, also those of directories; see `images_of`.

        `lines` has more paths, one per line. It is read if an argument is `-` or there are no
        arguments.
        """
        for argument in arguments or ["-"]:
            # Not `stream_lines`: the name of a file need not be UTF-8.
            piped = (line.removesuffix("\n").removesuffix("\r") for line in lines)
            names = filter(None, piped) if argument == "-" else [argument]
            for path in map(Path, names):
                yield from images_of(path)

    def predict(self, items: Sequence[ImageFile]) -> list[Prediction]:
        """Returns each image's labels with probabilities, the most probable first, or its error."""
        contents = [item.read() for item in items]
        answers = answer_rows(self._probabilities, contents, "cannot be decoded: ")
        return [
            self._prediction(item.path, answer) for item, answer in zip(items, answers, strict=True)
        ]

    def _probabilities(self, images: Sequence[bytes]) -> list[np.ndarray | str]:
        """Returns the probabilities of each image, or a string with the error instead."""
        probabilities = self._classify(images=tf.constant(list(images)))["probabilities"].numpy()
        return [
            "an output of the model is NaN" if np.isnan(row).any() else row for row in probabilities
        ]

    def _prediction(self, path: Path, result: np.ndarray | str) -> Prediction:
        if isinstance(result, str):
            return Prediction(f"{path}  error: {result}", {"image": str(path), "error": result})
        best = [
            {"label": self._names[k], "class": k, "probability": float(f"{result[k]:.6g}")}
            for k in np.argsort(-result, kind="stable")[: self._top_k].tolist()
        ]
        labels = [f"{x['label']} {x['probability']:.4f}" for x in best]
        data = {"image": str(path), "predictions": best}
        return Prediction("  ".join([str(path), *labels]), data)
