"""Writes datasets in the layout of `dataset.save_to_disk`, with files of any size."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from pyarrow import ipc

IMAGE_TYPE = pyarrow.struct({"bytes": pyarrow.binary(), "path": pyarrow.string()})


def class_label(*names: str) -> dict[str, object]:
    """Returns the description of a feature of classes."""
    return {"names": list(names), "_type": "ClassLabel"}


def write_arrow(
    path: Path, table: pyarrow.Table, rows: int = 10, new: Any = ipc.new_stream
) -> Path:
    """Writes an Arrow file, as a stream unless `new` is `ipc.new_file`, in batches of some rows."""
    with path.open("wb") as file, new(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=rows)
    return path


def save_to_disk(
    directory: Path,
    table: pyarrow.Table,
    features: Mapping[str, Mapping[str, object]] | None = None,
    *,
    sizes: Sequence[int] = (),
    state: Mapping[str, object] | None = None,
) -> list[Path]:
    """Writes a dataset and returns its Arrow files.

    `features` describes the features that are not plain values. `sizes` are the rows of each file,
    by default one file. `state` has more entries of `state.json`. Skips the test if the package
    `datasets`, which reads such datasets, is not installed.
    """
    datasets = pytest.importorskip("datasets", reason="the extra hugging_face is not installed")
    directory.mkdir(parents=True)
    plain = datasets.Features.from_arrow_schema(table.schema).to_dict()
    info = {"features": {**plain, **(features or {})}}
    metadata = {"huggingface": json.dumps({"info": info, "fingerprint": "0123456789abcdef"})}
    table = table.replace_schema_metadata(metadata)
    sizes = sizes or [table.num_rows]
    paths = []
    first = 0
    for number, size in enumerate(sizes):
        path = directory / f"data-{number:05}-of-{len(sizes):05}.arrow"
        paths.append(write_arrow(path, table.slice(first, size)))
        first += size
    content = {
        "_data_files": [{"filename": path.name} for path in paths],
        "_fingerprint": "0123456789abcdef",
        "_format_columns": None,
        "_format_kwargs": {},
        "_format_type": None,
        "_output_all_columns": False,
        "_split": None,
    }
    (directory / "state.json").write_text(json.dumps(content | dict(state or {}), indent=2))
    description = {"citation": "", "description": "", **info, "homepage": "", "license": ""}
    (directory / "dataset_info.json").write_text(json.dumps(description, indent=2))
    return paths


def save_dict(directory: Path, splits: Sequence[str]) -> None:
    """Writes the description of a `DatasetDict`, whose parts are directories."""
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "dataset_dict.json").write_text(json.dumps({"splits": list(splits)}))


def image_table(images: Sequence[bytes | None], **columns: Sequence[object]) -> pyarrow.Table:
    """Returns a table with a column `image` of encoded images, and other columns."""
    structs = [{"bytes": encoded, "path": f"{number}.png"} for number, encoded in enumerate(images)]
    return pyarrow.table({"image": pyarrow.array(structs, IMAGE_TYPE), **columns})
