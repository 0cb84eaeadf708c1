"""Images that Hugging Face's `datasets` saved on disk: by index, in order, with their errors."""

import pyarrow
import pytest
import tensorflow as tf
from pyarrow import feather

from orbit_runner.data.hugging_face import load
from orbit_runner.data.images.decode_errors import BadImages
from orbit_runner.data.images.headers import add_survey
from orbit_runner.data.images.pipeline import eval_images
from tests.support.hugging_face import IMAGE_TYPE, class_label, image_table, save_to_disk
from tests.support.images import GARBAGE
from tests.support.problems import raises
from tests.support.tfrecords import SHAPE, pixels

SIZES = (23, 4, 33)
COUNT = sum(SIZES)
NAMES = ("pear", "true", "fig")
FEATURES = {"image": {"_type": "Image"}, "kind": class_label("pear", "True", "fig")}
pytestmark = pytest.mark.usefixtures("own_cache")


def encoded(number):
    return tf.io.encode_png(pixels(number)).numpy()


def kinds_of(count):
    return pyarrow.array([number % 3 for number in range(count)], pyarrow.int64())


@pytest.fixture
def folder(tmp_path):
    table = image_table([encoded(n) for n in range(COUNT)], kind=kinds_of(COUNT))
    save_to_disk(tmp_path / "fruit", table, FEATURES, sizes=SIZES)
    return tmp_path / "fruit"


def open_images(folder, **settings):
    return load(**{"data_dir": str(folder), **settings})


def test_images_are_read_by_index_through_all_files(folder):
    source = open_images(folder)
    assert (source.size, source.image_shape, source.labels) == (COUNT, SHAPE, NAMES)
    numbers = [59, 0, 22, 23, 26, 27, 5, 5]
    assert source.read(numbers) == [encoded(number) for number in numbers]
    survey = add_survey(source).survey
    assert (len(survey.headers), survey.sizes, survey.channels) == (COUNT, [SHAPE[:2]], SHAPE[2])
    assert source.class_numbers().tolist() == [number % 3 for number in range(COUNT)]
    assert source.read(range(source.size)) == [encoded(number) for number in range(COUNT)]


def test_what_the_package_saves_is_read_exactly(tmp_path):
    datasets = pytest.importorskip("datasets", reason="the extra hugging_face is not installed")
    rows = {"image": [{"bytes": encoded(n), "path": None} for n in range(9)], "kind": [1, 0, 2] * 3}
    features = {"image": datasets.Image(), "kind": datasets.ClassLabel(names=[*NAMES])}
    saved = datasets.Dataset.from_dict(rows, features=datasets.Features(features))
    saved.shuffle(seed=1).save_to_disk(tmp_path / "fruit", num_shards=2)
    source = open_images(tmp_path / "fruit")
    loaded = datasets.load_from_disk(tmp_path / "fruit").cast_column(
        "image", datasets.Image(decode=False)
    )
    assert source.read(range(source.size)) == [row["image"]["bytes"] for row in loaded]
    assert (source.labels, source.class_numbers().tolist()) == (NAMES, loaded["kind"][:])


def evaluate(source, most=0):
    batches = eval_images(
        source, shape=SHAPE, resize=False, global_batch_size=8,
        bad=BadImages("validation_data", most),
    )  # fmt: skip
    return [*batches.as_numpy_iterator()]


def test_images_that_cannot_be_decoded_are_named(tmp_path):
    images = [encoded(number) for number in range(6)]
    images[4] = GARBAGE["garbage"]
    save_to_disk(tmp_path / "fruit", image_table(images, kind=kinds_of(6)), FEATURES, sizes=[3, 3])
    source = open_images(tmp_path / "fruit")
    with pytest.raises(tf.errors.InvalidArgumentError) as caught:
        evaluate(source)
    assert "data-00001-of-00002.arrow, row 2: cannot be decoded; set task." in str(caught.value)
    (batch,) = evaluate(source, most=1)
    assert batch["weight"].tolist() == [1, 1, 1, 1, 0, 1, 0, 0]


def test_columns_are_found_or_named(tmp_path):
    images = [encoded(0), encoded(1)]
    table = image_table(images, label=["b", "a"], other=[4, 7])
    save_to_disk(tmp_path / "plain", table)  # No feature is an Image or a ClassLabel.
    source = open_images(tmp_path / "plain", image_column="image")
    assert (source.labels, source.class_numbers().tolist()) == (("a", "b"), [1, 0])
    numbered = open_images(tmp_path / "plain", image_column="image", label_column="other")
    assert (numbered.labels, numbered.class_numbers().tolist(), numbered.known_classes()) == (
        None,
        [4, 7],
        8,
    )
    with raises("unknown-column") as caught:
        open_images(tmp_path / "plain", image_column="image", label_column="kin")
    assert caught.value.field == "label_column"
    two = table.append_column("second", table.column("image"))
    save_to_disk(tmp_path / "two", two)
    with raises("unknown-column") as caught:
        open_images(tmp_path / "two")
    assert caught.value.field == "image_column"
    assert open_images(tmp_path / "two", image_column="second").read([1]) == [images[1]]


@pytest.mark.parametrize(
    ("rows", "labels"),
    [
        ([{"bytes": None, "path": "a.png"}], [0]),
        ([None], [0]),
        ([{"bytes": b"x", "path": None}], [-1]),
        ([{"bytes": b"x", "path": None}], [3]),
    ],
)
def test_rows_without_an_image_or_a_class_are_named(tmp_path, rows, labels):
    values = [{"bytes": encoded(0), "path": "0.png"}, *rows]
    kinds = pyarrow.array([0, *labels], pyarrow.int64())
    table = pyarrow.table({"image": pyarrow.array(values, IMAGE_TYPE), "kind": kinds})
    save_to_disk(tmp_path / "fruit", table, FEATURES)
    with raises("bad-record"):
        open_images(tmp_path / "fruit")


def test_other_arrow_files_are_read_and_other_files_rejected(tmp_path):
    table = image_table([encoded(n) for n in range(9)], label=["a"] * 9)
    for compression in ("zstd", "uncompressed"):
        feather.write_feather(table, tmp_path / "a.arrow", compression=compression)
        source = open_images(tmp_path, input_path=["a.arrow"], image_column="image")
        assert source.read([3, 8]) == [encoded(3), encoded(8)]
    (tmp_path / "a.arrow").write_bytes(b"PAR1" + bytes(99))
    with raises("damaged-file"):
        open_images(tmp_path, input_path=["a.arrow"])
