"""The random draws of the augmentation for the images of a step; no TensorFlow."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.order.epochs import Rows
from orbit_runner.data.order.image_draws import (
    area_crop,
    crop_flips,
    erased_rectangle,
    flips,
    jitters,
    mixtures,
)
from orbit_runner.data.order.policy_draws import auto_augment, rand_augment
from orbit_runner.tasks.image_classification.data_config import ImageDataConfig
from orbit_runner.tasks.image_classification.sources import Size, is_ready

# Maps a row of the batch, and the height and width of its stored image (None if unknown), to the
# draws for it by name.
_DescribeRow = Callable[[int, tuple[int, int] | None], dict[str, Any]]
# Seed, examples and epochs.
_Key = tuple[int, np.ndarray, np.ndarray]
# The function of each policy, and its settings that affect what it draws.
_POLICIES: dict[str, tuple[Callable[..., list[str] | None], tuple[str, ...]]] = {
    "randaug": (rand_augment, ("num_layers", "magnitude", "prob_to_apply", "exclude_ops")),
    "autoaug": (auto_augment, ("augmentation_name",)),
}
_FACTORS = ("brightness", "contrast", "saturation")


class AugmentationDraws:
    """The draws of the augmentation that `train_inputs` applies with these settings."""

    def __init__(self, data: ImageDataConfig, dataset: ImageDataset, input_size: Size) -> None:
        self._data = data
        self._seed = data.seed or 0
        streamed = not is_ready(dataset, data, input_size)
        self._augments_images = streamed and input_size is not None
        self._mixes = data.mixup_and_cutmix if streamed else None
        self._size = dataset.spec(input_size)[0][:2] if streamed else (0, 0)

    def row_describer(self, rows: Rows) -> _DescribeRow:
        """Returns a function that describes the draws for a row: values by name, {} if none."""
        key = self._seed, rows.examples, rows.epochs
        columns = [*self._columns(key, rows)]

        def describe_row(row: int, size: tuple[int, int] | None) -> dict[str, object]:
            values = {
                name: value for column in columns for name, value in column(row, size).items()
            }
            return {"drawn": values} if values else {}

        return describe_row

    def _columns(self, key: _Key, rows: Rows) -> Iterator[_DescribeRow]:
        """Yields the parts of the augmentation in the order in which they are applied."""
        data = self._data
        if self._augments_images:
            yield from self._image_columns(key)
        if data.augment in ("crop", "crop_flip"):
            flip = data.augment == "crop_flip"
            drawn = crop_flips(*key, padding=data.augment_padding, flip=flip)

            def crop(row: int, size: tuple[int, int] | None) -> dict[str, object]:
                values: dict[str, object] = {"crop": [int(drawn.top[row]), int(drawn.left[row])]}
                return values | ({"flip": bool(drawn.flipped[row])} if flip else {})

            yield crop
        if self._mixes:
            settings = self._mixes.as_dict()
            del settings["label_smoothing"]
            mixed = mixtures(*key, size=self._size, **settings)

            def mix(row: int, size: tuple[int, int] | None) -> dict[str, object]:
                if not mixed.mixed[row]:
                    return {}
                kind = "cutmix" if mixed.cut[row] else "mixup"
                partner = {"row": row ^ 1, "example": int(rows.examples[row ^ 1])}
                return {kind: partner | {"own_share": round(float(mixed.share[row]), 4)}}

            yield mix

    def _image_columns(self, key: _Key) -> Iterator[_DescribeRow]:
        data = self._data
        if data.augment == "inception":

            def window(row: int, size: tuple[int, int] | None) -> dict[str, object]:
                if size is None:
                    return {}
                areas = data.crop_area_range
                rectangle = area_crop(*self._example_key(key, row), size=size, areas=areas)
                return {"window": list(rectangle) if rectangle else "center"}

            yield window
            if data.aug_rand_hflip:
                flipped = flips(*key)
                yield lambda row, size: {"flip": bool(flipped[row])}
        if data.color_jitter:
            factors = jitters(*key, strength=data.color_jitter)
            yield lambda row, size: {
                "jitter": dict(zip(_FACTORS, factors[row].round(4).tolist(), strict=True))
            }
        if data.aug_type is not None:
            yield lambda row, size: self._policy(*self._example_key(key, row))
        if data.random_erasing is not None:
            settings = data.random_erasing.as_dict()

            def erase(row: int, size: tuple[int, int] | None) -> dict[str, object]:
                rectangle = erased_rectangle(
                    *self._example_key(key, row), size=self._size, **settings
                )
                return {"erased": list(rectangle)} if rectangle else {}

            yield erase

    def _policy(self, *key: int) -> dict[str, object]:
        choice = self._data.aug_type
        assert choice is not None
        assert choice.type is not None
        draw, names = _POLICIES[choice.type]
        settings = {name: getattr(choice.get(), name) for name in names}
        operations = draw(*key, size=self._size, **settings)
        # Another version of Model Garden may have other operations.
        return (
            {"policy": choice.type} if operations is None else {choice.type: operations or "none"}
        )

    @staticmethod
    def _example_key(key: _Key, row: int) -> tuple[int, int, int]:
        seed, ids, epochs = key
        return seed, int(ids[row]), int(epochs[row])
