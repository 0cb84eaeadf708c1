"""Which images belong to which part, such as `train` and `validation`. No TensorFlow."""

from __future__ import annotations

from orbit_runner.data.images.dataset import ImageDataset
from orbit_runner.data.source_cache import cache_source
from orbit_runner.data.tables.hashing import hash_rows
from orbit_runner.data.tables.split import (
    RowSplit,
    positions,
    ranks,
    rows_of_fraction,
    rows_with_value,
)
from orbit_runner.errors import DataError


@cache_source(maxsize=16)
def part_of_images(dataset: ImageDataset, split: RowSplit, part: str) -> ImageDataset:
    """Returns the images of a part, in order.

    Without columns in `split`, the hash of an image is that of its name; see `split_hashes`. Raises
    `DataError` if the part has no images, or if the dataset cannot be split so.
    """
    columns = []
    for name, kind in split.columns:
        try:
            columns.append(dataset.split_column(name, kind))
        except DataError as error:
            field = "split.column" if split.column else "split.hash_of"
            raise DataError(str(error), field=field, code=error.code) from None
    if split.column:
        return dataset.select(rows_with_value(columns[0], part))
    places = positions(hash_rows(columns) if columns else dataset.split_hashes(), split.seed)
    if split.is_stratified:
        classes = dataset.class_numbers()
        if classes is None:
            raise DataError(
                f"{dataset.name}: the labels are in the records, so classes cannot be counted "
                "before training; remove the setting",
                field="split.stratified",
                code="not-supported",
            )
        places = ranks(places, classes)
    return dataset.select(rows_of_fraction(places, dict(split.fractions), part))
