"""Two workers train on each source of image files like one process, also after a restart."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clusters.members import EXPERIMENT, alone, content, mirrored, run_workers
from tests.support.array_records import write_array_file
from tests.support.images import write_listed, write_records, write_tfds

_STEPS = 8
_CLASSES = ("ant", "bee", "cat")


def _listed(folder: Path) -> dict[str, str]:
    write_listed(folder, {"ant": 15, "bee": 20, "cat": 15})
    return {"data_dir": str(folder), "input_path": "images", "labels_file": "labels.csv"}


def _array_record(folder: Path) -> dict[str, str]:
    write_records(folder, [30, 20], classes=3, write=write_array_file)
    return {"data_dir": str(folder), "input_path": "train-*"}


def _tfds(folder: Path) -> dict[str, str]:
    write_tfds(folder, "toy", {"train": (30, 20)}, _CLASSES, file_format="array_record")
    return {"tfds_data_dir": str(folder), "tfds_name": "toy", "tfds_split": "train"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "write"), [("image_csv", _listed), ("array_record", _array_record), ("tfds", _tfds)]
)
def test_restarted_workers_get_the_weights_of_one_process(
    source: str, write: Callable[[Path], dict[str, str]], tmp_path: Path
) -> None:
    settings = {"source": source, **write(tmp_path / "set")}
    flags = (
        *EXPERIMENT, "--import=tests.clusters.ids_task", "--mode=train",
        "--task.model.input_size=[12,10,3]", "--task.model.num_classes=3",
        *(
            f"--task.{section}.{name}={value}"
            for section in ("train_data", "validation_data")
            for name, value in {**settings, "global_batch_size": 12}.items()
        ),
    )  # fmt: skip
    alone(tmp_path / "one", *flags, *mirrored(2), f"--train_steps={_STEPS}")
    for steps in (_STEPS // 2, _STEPS):
        run_workers(tmp_path / "two", *flags, f"--train_steps={steps}")

    assert content(tmp_path / "two") == content(tmp_path / "one")
    one = _ids(tmp_path / "one", 0)
    two = [_ids(tmp_path / "two", worker) for worker in range(2)]
    # The first process may have made batches that no step used. Those of the restart follow them.
    assert [two[k][step] for step in range(_STEPS // 2) for k in range(2)] == one[:_STEPS]
    rest = one[_STEPS : 2 * _STEPS]
    for worker in range(2):
        mine = rest[worker::2]
        places = [n for n in range(len(two[worker])) if two[worker][n : n + len(mine)] == mine]
        assert places


def _ids(folder: Path, pipeline: int) -> list[str]:
    return (folder / "run" / f"ids-{pipeline}.txt").read_text().splitlines()
