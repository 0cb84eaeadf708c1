"""Lines of text files that are not UTF-8 are left out up to `max_bad_records`."""

from __future__ import annotations

import gzip
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.tasks.text_classification.task import TextClassificationTask
from tests.support.texts import text_config, write_texts

LIMIT = "task__train_data__max_bad_records"
_RUBBISH = b"\xff\xfe rubbish"


pytestmark = pytest.mark.usefixtures("own_cache")


def _rewrite(path: Path, bad: tuple[int, ...], *, remove: bool) -> None:
    """Replaces lines of a gzipped file by bad ones, or removes them."""
    content = gzip.decompress(path.read_bytes()).split(b"\n")
    for number in sorted(bad, reverse=True):
        content[number : number + 1] = [] if remove else [_RUBBISH]
    path.write_bytes(gzip.compress(b"\n".join(content), mtime=0))


def test_lines_of_text_files_are_left_out_as_if_they_did_not_exist(tmp_path: Path) -> None:
    damaged = write_texts(tmp_path / "damaged")
    clean = tmp_path / "clean"
    shutil.copytree(damaged, clean)
    for language in ("en", "de"):
        _rewrite(damaged / f"train.{language}.gz", (0, 7), remove=False)
        _rewrite(clean / f"train.{language}.gz", (0, 7), remove=True)
    found, expected = text_config(damaged, **{LIMIT: 4}), text_config(clean)

    tasks: list[Any] = [TextClassificationTask(one.task) for one in (found, expected)]  # type: ignore[arg-type]
    one, two = (task.vocabulary for task in tasks)
    assert one.decode(np.arange(one.size)[np.newaxis]) == two.decode(
        np.arange(two.size)[np.newaxis]
    )
    batches = [iter(t.build_inputs(t.task_config.train_data)) for t in tasks]
    for _ in range(12):
        pair = (tf.nest.flatten(next(b)) for b in batches)
        for got, wanted in zip(*pair, strict=True):
            np.testing.assert_array_equal(got, wanted)
