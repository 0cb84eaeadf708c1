"""Remote files of an experiment, copied to this machine."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from orbit_runner.config.resolve import Request, resolve
from orbit_runner.config.schema.base import field
from orbit_runner.config.schema.data import DataConfig
from orbit_runner.config.schema.experiment import ExperimentConfig, TaskConfig
from orbit_runner.storage import staging
from orbit_runner.storage.staging import localize, stage, stage_file
from tests.support.problems import raises

from .conftest import Proxy


@pytest.fixture(autouse=True)
def new_process():
    """Clears the caches of comparisons with the store, as in a new process."""
    for cached in (
        staging._local_directory,
        staging._local_file,
        staging._local_checkpoint,
    ):
        cached.cache_clear()


def downloads(proxy: Proxy) -> list[str]:
    requests, proxy.requests = proxy.requests, []
    return sorted(
        path.rpartition("/")[2] for how, path in requests if how == "GET" and "?" not in path
    )


@pytest.mark.slow
def test_local_copy_is_updated_when_the_store_changes(store, proxy):
    store.write("a", b"1")
    store.write("sub/b", b"2")

    folder = stage(store.url)
    assert downloads(proxy) == ["a", "b"]
    assert (folder / "sub" / "b").read_bytes() == b"2"
    # The copy has the time of the object, so comparing times is the same on every machine.
    assert (folder / "a").stat().st_mtime_ns == store.list()["a"][1]

    assert stage(store.url) == folder
    assert downloads(proxy) == []

    store.write("a", b"3")
    store.delete("sub/b")
    stage(store.url)
    assert downloads(proxy) == ["a"]
    assert (folder / "a").read_bytes() == b"3"
    assert not (folder / "sub" / "b").exists()

    (folder / "a").write_bytes(b"damaged here")
    stage(store.url)
    assert (folder / "a").read_bytes() == b"3"


def test_staging_one_file_downloads_no_others(store, proxy):
    store.write("words.model", b"m")
    store.write("large", b"l")

    assert stage_file(f"{store.url}/words.model").read_bytes() == b"m"
    assert downloads(proxy) == ["words.model"]


def test_missing_objects_are_errors(url):
    with raises("missing-file"):
        stage(url)
    with raises("missing-file"):
        stage_file(f"{url}/a.model")


@pytest.mark.parametrize("data_dir", [True, False])
def test_only_files_that_match_input_path_are_downloaded(data_dir, store, proxy):
    for name in ("train-0.tfrecord", "train-1.tfrecord", "test-0.tfrecord"):
        store.write(name, b"x")
    pattern = "train-*" if data_dir else f"{store.url}/train-*"
    flags = [("x", "task.train_data.input_path", pattern)]
    if data_dir:
        flags.append(("x", "task.train_data.data_dir", store.url))
    config = resolve(Request(experiment="resnet50_imagenet", flags=tuple(flags))).config

    local = localize(config)

    image_pattern = Path(local.task.train_data.data_dir) / local.task.train_data.input_path
    assert sorted(path.name for path in image_pattern.parent.glob(image_pattern.name)) == [
        "train-0.tfrecord",
        "train-1.tfrecord",
    ]
    assert downloads(proxy) == ["train-0.tfrecord", "train-1.tfrecord"]
    assert local.task.validation_data is config.task.validation_data


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CustomData(DataConfig):
    data_dir: str = field("", help="declared again")


@dataclasses.dataclass(frozen=True, kw_only=True)
class _CustomTask(TaskConfig):
    train_data: _CustomData = field(factory=_CustomData, help="data")
    words: str = field("", path="file", help="a file")
    address: str = field("", help="not a path")


def test_custom_task_gets_local_copies_of_the_paths_that_it_declares(store):
    store.write("words.txt", b"w")
    url = f"{store.url}/words.txt"
    data = _CustomData(data_dir=store.url)
    task = _CustomTask(train_data=data, words=url, address=url)

    local = localize(ExperimentConfig(task=task)).task

    assert Path(local.words).read_bytes() == b"w"
    assert (Path(local.train_data.data_dir) / "words.txt").is_file()
    assert local.address == url


def test_images_and_labels_of_a_csv_file_are_downloaded(store):
    names = ("images/a.jpg", "labels.csv", "more/all.csv")
    for name in names:
        store.write(name, b"x")
    settings = {
        "source": "image_csv",
        "data_dir": store.url,
        "input_path": "images",
        "labels_file": "labels.csv",
        "classes_file": f"{store.url}/more/all.csv",
    }
    flags = tuple(("x", f"task.train_data.{name}", value) for name, value in settings.items())
    labeled = ("x", "task.train_data.label_offset", "0")
    config = resolve(Request(experiment="resnet50_imagenet", flags=(*flags, labeled))).config

    data = localize(config).task.train_data

    folder = Path(data.data_dir)
    assert all((folder / name).is_file() for name in names)
    assert (data.input_path, data.labels_file) == ("images", "labels.csv")
    assert Path(data.classes_file).read_bytes() == b"x"


def test_a_config_without_urls_stays_the_same_object():
    config = resolve(Request(experiment="digits")).config

    assert localize(config) is config


@pytest.mark.parametrize(
    ("path", "given", "expected"),
    [
        ("task.init_checkpoint", "~/a", "/home/me/a"),
        ("task.train_data.data_dir", "~/x", "/home/me/x"),
        ("task.train_data.input_path", "~/a-*, ~/b~", "/home/me/a-*,/home/me/b~"),
        ("task.train_data.input_path", "[~/a, c~]", ["/home/me/a", "c~"]),
        ("task.train_data.input_path", "a~b", "a~b"),
    ],
)
def test_the_home_directory_is_expanded(path, given, expected, monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    flags = (("x", path, given),)
    value: Any = localize(resolve(Request(experiment="resnet50_imagenet", flags=flags)).config)

    for name in path.split("."):
        value = getattr(value, name)
    assert value == expected


@pytest.mark.parametrize("given", ["{url}", "{url}/checkpoints/ckpt-7"])
def test_a_checkpoint_is_found_by_its_directory_and_by_its_name(given, store, proxy):
    store.write("checkpoint", b'model_checkpoint_path: "checkpoints/ckpt-7"\n')
    for name in ("ckpt-7.index", "ckpt-7.data-00000-of-00001", "ckpt-70.index", "ckpt-5.index"):
        store.write(f"checkpoints/{name}", b"x")
    config = resolve(
        Request(
            experiment="digits",
            flags=(("x", "task.init_checkpoint", given.format(url=store.url)),),
        )
    ).config

    path = Path(localize(config).task.init_checkpoint)

    assert path.name == "ckpt-7"
    assert sorted(file.name for file in path.parent.iterdir()) == [
        "ckpt-7.data-00000-of-00001",
        "ckpt-7.index",
    ]


def test_missing_dataset_error_names_its_setting(url):
    flags = (("x", "task.train_data.data_dir", url),)
    config = resolve(Request(experiment="mnist", flags=flags)).config

    with raises("missing-file", "task.train_data.data_dir") as raised:
        localize(config)

    assert raised.value.path == "task.train_data.data_dir"


def test_config_files_and_their_bases_are_read_from_a_store(store, here):
    store.write("a.yaml", f"base: [digits, '{store.url}/b.yaml']\n".encode())
    store.write("b.yaml", b"runtime: {seed: 5}\n")
    store.write("c.yaml", b"trainer: {summary_interval: 3}\n")
    store.write("d.gin", b"trainer.train_steps = 7\n")

    resolved = resolve(
        Request(
            experiment=f"{store.url}/a.yaml",
            config_files=(f"{store.url}/c.yaml",),
            gin_files=(f"{store.url}/d.gin",),
        )
    )

    config = resolved.config
    assert (config.name, config.trainer.train_steps, config.runtime.seed) == ("a", 7, 5)
    assert str(resolved.origins["runtime.seed"]) == f"{store.url}/b.yaml:1"
    assert str(resolved.origins["trainer.summary_interval"]) == f"{store.url}/c.yaml:1"
    (here / "missing.yaml").write_text(f"base: {store.url}/none.yaml")
    with raises("missing-file", "base"):
        resolve(Request(experiment="missing.yaml"))
