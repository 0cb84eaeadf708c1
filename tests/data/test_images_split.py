"""Parts of images: by a hash of their names, by columns, and with the share of each class."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from orbit_runner.data import array_record, hugging_face
from orbit_runner.data.images import csv_labels, files
from orbit_runner.data.images.dataset import ImageArrays, part_of_images
from orbit_runner.data.places import Places, UnknownExample
from orbit_runner.data.source import ArraySource, places_of_arrays
from orbit_runner.data.tables.split import RowSplit
from tests.support.array_records import write_array_file
from tests.support.hugging_face import class_label, image_table, save_to_disk
from tests.support.images import png, write_folder, write_listed
from tests.support.problems import raises
from tests.support.tfrecords import write_set

FRACTIONS = (("train", 0.6), ("validation", 0.3), ("test", 0.1))
PARTS = tuple(name for name, _ in FRACTIONS)
COUNTS = {"ant": 30, "bee": 10, "cat": 21}


pytestmark = pytest.mark.usefixtures("own_cache")


def parts_of(dataset, **settings):
    split = RowSplit(fractions=FRACTIONS, **settings)
    return {part: part_of_images(dataset, split, part) for part in PARTS}


def open_folder(root):
    return files.load(split="train", data_dir=str(root))


def paths_of(source):
    return [source.location(number) for number in range(source.size)]


def names_of(source):
    return {str(Path(path).relative_to(source.root)) for path in paths_of(source)}


def test_new_files_and_another_directory_move_no_image(tmp_path):
    write_folder(tmp_path / "set", COUNTS)
    before = {
        part: names_of(source) for part, source in parts_of(open_folder(tmp_path / "set")).items()
    }
    moved = tmp_path / "moved" / "train"
    shutil.copytree(tmp_path / "set", moved)
    write_folder(moved, {"ant": 40, "dog": 9}, first=500)
    parts = parts_of(open_folder(moved.parent))
    after = {part: names_of(source) for part, source in parts.items()}
    for part in PARTS:
        assert before[part] <= after[part]
    other = parts_of(open_folder(tmp_path / "set"), seed=1)
    assert names_of(other["train"]) != before["train"]


def test_each_part_has_its_share_of_each_class(tmp_path):
    write_folder(tmp_path / "set", COUNTS)
    parts = parts_of(open_folder(tmp_path / "set"), is_stratified=True)
    counts = {part: np.bincount(source.class_numbers()).tolist() for part, source in parts.items()}
    assert counts == {"train": [18, 6, 13], "validation": [9, 3, 6], "test": [3, 1, 2]}


def groups_are_whole(parts, group_of):
    groups = [{group_of(path) for path in paths_of(part)} for part in parts.values()]
    return sum(map(len, groups)) == len(set().union(*groups)) and all(groups)


def test_the_images_of_a_directory_stay_together(tmp_path):
    for number in range(12):
        write_folder(tmp_path / "set", {f"ant/video{number}": 2, f"bee/video{number}": 2})
    parts = parts_of(open_folder(tmp_path / "set"), hash_of=("directory",))
    assert groups_are_whole(parts, lambda path: Path(path).parent)
    with raises("unknown-column") as caught:
        parts_of(open_folder(tmp_path / "set"), hash_of=("folder",))
    assert caught.value.field == "split.hash_of"


def open_listed(path, columns=()):
    return csv_labels.load(
        data_dir=str(path.parent), input_path=("images",), labels_file=path.name,
        split_columns=columns,
    )  # fmt: skip


def test_listed_images_are_split_by_their_columns(tmp_path):
    listed = write_listed(tmp_path / "set", COUNTS)
    person = dict(
        line.split(",")[0::2]
        for line in listed.read_text().splitlines()[1:]  # File and person.
    )
    split = RowSplit(fractions=(("train", 0.5), ("validation", 0.5)), hash_of=("person",))
    source = open_listed(listed, split.columns)
    parts = {part: part_of_images(source, split, part) for part in ("train", "validation")}
    images = tmp_path / "set" / "images"
    assert groups_are_whole(parts, lambda path: person[str(Path(path).relative_to(images))])

    by_column = RowSplit(column="part")
    part = part_of_images(open_listed(listed, by_column.columns), by_column, "validation")
    assert part.size == sum(COUNTS.values()) // 4
    assert part.number_of("labels.csv:4") == 0
    with raises("unknown-column") as caught:
        open_listed(listed, [("persn", "key")])
    assert caught.value.field == "split.hash_of"


def test_a_listed_image_is_in_the_part_of_its_file(tmp_path):
    listed = write_listed(tmp_path / "set", COUNTS)
    of_rows = parts_of(open_listed(listed))
    of_files = parts_of(open_folder(tmp_path / "set" / "images"))
    for part in PARTS:
        assert names_of(of_rows[part]) == names_of(of_files[part])


def test_records_are_selected_by_their_number(tmp_path):
    write_set(tmp_path, write=write_array_file)
    dataset = array_record.load(data_dir=str(tmp_path), input_path=["train-*"])
    rows = np.array([0, 1, 69, 70, 71, 134, 200, 201, 269])
    source = dataset.select(rows)
    assert source.read(range(9)) == dataset.read(rows.tolist())
    assert [source.location(n) for n in range(9)] == [dataset.location(n) for n in rows.tolist()]
    assert source.select(np.array([2, 7])).read([1]) == dataset.read([201])
    file, record = dataset.places.part_and_number(200)
    assert source.number_of(f"{Path(file).name}:{record}") == 6
    with pytest.raises(UnknownExample):
        source.number_of(f"{Path(file).name}:{record + 2}")
    places = Places((("a/x", 3), ("b/x", 3)))
    assert (places.find("b/x:2"), places.select(np.array([4])).find("x:2")) == (4, 0)
    with pytest.raises(UnknownExample, match="is the end of 2 paths"):
        places.find("x:2")


def test_equal_images_in_memory_are_in_the_same_part():
    images = np.random.default_rng(0).integers(0, 256, (50, 4, 4, 1)).astype(np.uint8)
    labels = np.arange(100, dtype=np.int32) % 7
    arrays = {"image": np.concatenate([images, images]), "label": labels}
    source = ArraySource(
        "arrays", arrays, places=places_of_arrays("FILE", [("a.npz", 60), ("b.npz", 40)])
    )
    parts = parts_of(ImageArrays.from_source(source))
    keys = [{image.tobytes() for image in part.arrays["image"]} for part in parts.values()]
    assert sum(part.size for part in parts.values()) == 100
    assert sum(map(len, keys)) == 50
    for part in parts.values():
        assert part.known_classes() == 7
        for number in range(part.size):
            name, index = part.location(number).split(", index ")
            original = int(index) + (60 if name == "b.npz" else 0)
            np.testing.assert_array_equal(part.arrays["image"][number], images[original % 50])
            assert part.arrays["label"][number] == original % 7


def test_saved_datasets_are_split_by_their_columns(tmp_path):
    table = image_table(
        [png(n, 8, 8) for n in range(60)],
        label=[n % 2 for n in range(60)],
        patient=[f"p{n // 4}" for n in range(60)],
        fold=["train" if n % 3 else "test" for n in range(60)],
    )
    save_to_disk(tmp_path / "set", table, {"label": class_label("a", "b")}, sizes=[25, 35])
    source = hugging_face.load(data_dir=str(tmp_path / "set"), image_column="image")
    parts = parts_of(source, hash_of=("patient",))
    patients = [{row // 4 for row in part.places.rows.tolist()} for part in parts.values()]
    assert sum(map(len, patients)) == 15
    by_column = part_of_images(source, RowSplit(column="fold"), "test")
    assert by_column.places.all_rows().tolist() == [*range(0, 60, 3)]
    with raises("unknown-part"):
        part_of_images(source, RowSplit(column="fold"), "tset")
    with raises("unknown-column"):
        parts_of(source, hash_of=("patent",))
    assert tf.io.decode_png(by_column.read([1])[0]).shape == (8, 8, 3)
