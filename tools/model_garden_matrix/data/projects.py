"""Synthetic images as a prepared dataset of TensorFlow Datasets."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.model_garden_matrix.data.vision import noise

# Two boxes per image: ymin, xmin, ymax, xmax as fractions of the side.
_BOXES = ((0.1, 0.2, 0.8, 0.9), (0.3, 0.1, 0.5, 0.4))


def prepare_coco(folder: Path, *, side: int, classes: int) -> str:
    """Prepares `coco/2017` from synthetic images, with the dataset's own writer.

    Nothing is downloaded. Labels are in [0, classes).

    Args:
        folder: The directory for `tfds_data_dir`.
        side: Height and width in pixels.
        classes: The number of classes.

    Returns:
        The path of the directory.
    """
    tfds = _tfds()
    coco: Any = tfds.object_detection.Coco

    # The registry already has this name. The prepared data load as COCO.
    with tfds.core.registered.skip_registration():

        class GeneratedCoco(coco):
            """COCO with generated images in place of the downloaded ones."""

            name = "coco"
            # With a source file, TFDS looks for checksums, using a package that may be missing.
            code_path = None

            def _split_generators(self, dl_manager: Any) -> dict[str, Any]:
                return {
                    "train": self._generate_examples(4),
                    "validation": self._generate_examples(2),
                }

            def _generate_examples(self, count: int) -> Iterator[tuple[int, dict[str, Any]]]:
                return ((i, _example(i, side, classes)) for i in range(count))

    builder = GeneratedCoco(config="2017", data_dir=str(folder))
    builder.download_and_prepare(
        download_config=tfds.download.DownloadConfig(try_download_gcs=False)
    )
    return str(folder)


def _example(number: int, side: int, classes: int) -> dict[str, Any]:
    objects = [
        {
            "id": 2 * number + k,
            "area": int((box[2] - box[0]) * (box[3] - box[1]) * side**2),
            "bbox": _tfds().features.BBox(*box),
            "label": (number + k) % classes,
            "is_crowd": False,
        }
        for k, box in enumerate(_BOXES)
    ]
    return {
        "image": noise(number, side, side, 3),
        "image/filename": f"{number + 1}.jpg",
        "image/id": number + 1,
        "objects": objects,
    }


def _tfds() -> Any:
    # Imported by name because the package has no type hints.
    return importlib.import_module("tensorflow_datasets")
