"""A tiny UCF101 dataset, as TensorFlow Datasets would prepare it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.model_garden_matrix.data.vision import noise

_NAME, _SPLITS = "ucf101", ("train", "test")
_COUNT, _FRAMES, _SIDE = 4, 4, 256


def write_ucf101(folder: Path) -> str:
    """Writes noise with the features of the dataset, and returns the path of the directory.

    `folder` is the directory for `tfds_data_dir`.
    """
    import tensorflow_datasets as tfds

    builder = tfds.builder(_NAME, data_dir=str(folder))
    features, target = builder.info.features, Path(builder.data_dir)
    target.mkdir(parents=True)
    # The builder's own writer requires a package that TensorFlow Datasets does not install.
    tfds.folder_dataset.write_metadata(
        data_dir=str(target),
        features=features,
        split_infos=[_split(target, features, name) for name in _SPLITS],
    )
    return str(folder)


def _split(target: Path, features: Any, name: str) -> Any:
    import tensorflow as tf
    import tensorflow_datasets as tfds

    videos = [features.serialize_example(features.encode_example(_video(i))) for i in range(_COUNT)]
    with tf.io.TFRecordWriter(str(target / f"{_NAME}-{name}.tfrecord-00000-of-00001")) as writer:
        for video in videos:
            writer.write(video)
    return tfds.core.SplitInfo(
        name=name,
        shard_lengths=[_COUNT],
        num_bytes=sum(map(len, videos)),
        filename_template=tfds.core.ShardedFileTemplate(
            dataset_name=_NAME, split=name, filetype_suffix="tfrecord", data_dir=str(target)
        ),
    )


def _video(number: int) -> dict[str, Any]:
    return {"video": noise(number, _FRAMES, _SIDE, _SIDE, 3), "label": number}
