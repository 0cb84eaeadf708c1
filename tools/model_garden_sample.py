"""Eight experiments of Model Garden, made small: `write("bert/tagging", directory)`.

Each is of another kind of task. Its data are a few made-up examples in the format that it reads,
and its model is small, so that two training steps and an evaluation take seconds on a CPU.
"""

from __future__ import annotations

import json
import random
import string
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import yaml

Tree = dict[str, Any]
CONFIG = "small.yaml"

_TRAINER: Tree = {
    "train_steps": 2,
    "validation_steps": 1,
    "validation_interval": 2,
    "checkpoint_interval": 2,
    "steps_per_loop": 1,
    "summary_interval": 1,
}
_RUNTIME: Tree = {
    "distribution_strategy": "one_device",
    "num_gpus": 0,
    "mixed_precision_dtype": "float32",
}
# With XLA on a CPU, compiling a convolutional network takes longer than everything else.
_WITHOUT_XLA: Tree = {**_RUNTIME, "enable_xla": False}
# The experiments for text do not set the lengths of warm-up and decay.
_POLYNOMIAL: Tree = {
    "learning_rate": {"polynomial": {"decay_steps": 2}},
    "warmup": {"polynomial": {"warmup_steps": 1}},
}
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
_LEXICON = (
    "a the cat dog bird fish house tree river stone red green small large old young sees finds "
    "likes takes gives holds under over near behind and then who what where when slowly quickly"
)
_WORDS = tuple(_LEXICON.split())
_TAGS = ["O", "B-PER", "I-PER", "B-LOC", "I-LOC"]
_ROWS, _BATCH, _LENGTH, _HIDDEN = 8, 4, 32, 16
_IMAGES = 4
# Two boxes per image, one large and one small: ymin, xmin, ymax, xmax as fractions of the side.
_BOXES = ((0.1, 0.2, 0.8, 0.9), (0.3, 0.1, 0.5, 0.4))
_RESNET = {"resnet": {"model_id": 10, "depth_multiplier": 0.25}}


def write(name: str, folder: Path) -> Path:
    """Writes the data of an experiment, and returns the config file that makes it small.

    The file belongs on top of `official/NAME`.
    """
    path = folder / CONFIG
    path.write_text(yaml.safe_dump(EXPERIMENTS[name](folder)), encoding="utf-8")
    return path


def _mock(folder: Path) -> Tree:
    """Trains on the task's own data, with an optimizer, which the registered config lacks."""
    rate = {"type": "constant", "constant": {"learning_rate": 0.1}}
    optimizer = {"optimizer": {"type": "sgd"}, "learning_rate": rate}
    return _short_text_run({}, optimizer)


def _tagging(folder: Path) -> Tree:
    """Tags tokens."""
    vocab = _write_wordpiece(folder / "vocab.txt")
    rows = [
        {**row, "label_ids": np.where(row["input_mask"] > 0, row["input_ids"] % len(_TAGS), -1)}
        for row in _token_rows(vocab)
    ]
    sections = _text_sections(_write_records(folder / "tags.tfrecord", map(_example_of, rows)))
    model = {"encoder": _encoder(vocab)}
    return _short_text_run({"class_names": _TAGS, "model": model, **sections}, _POLYNOMIAL)


def _sentence_prediction(folder: Path) -> Tree:
    """Classifies pairs of tokenized sentences."""
    vocab = _write_wordpiece(folder / "vocab.txt")
    rows = [{**row, "label_ids": number % 2} for number, row in enumerate(_token_rows(vocab))]
    sections = _text_sections(_write_records(folder / "pairs.tfrecord", map(_example_of, rows)))
    model = {"num_classes": 2, "encoder": _encoder(vocab)}
    return _short_text_run({"model": model, **sections}, _POLYNOMIAL)


def _translation(folder: Path) -> Tree:
    """Translates sentences to the same words in reverse order.

    The size of training batches is in tokens.
    """
    pieces = _write_sentencepiece(folder / "pieces.model")
    pairs = [{"en": text, "de": " ".join(reversed(text.split()))} for text in _sentences(_ROWS, 4)]
    path = _write_records(folder / "pairs.tfrecord", map(_example_of, pairs))

    def section(*, training: bool, batch: int) -> Tree:
        names = {"tfds_name": "", "tfds_split": "", "max_seq_length": _LENGTH}
        sizes = {"is_training": training, "global_batch_size": batch}
        return {"input_path": path, **names, **sizes}

    layers = {"num_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    model = {
        "encoder": layers,
        "decoder": layers,
        "embedding_width": 16,
        "decode_max_length": _LENGTH,
        "beam_size": 2,
    }
    return _short_text_run(
        {
            "sentencepiece_model_path": str(pieces),
            "model": model,
            "train_data": section(training=True, batch=4 * _LENGTH),
            "validation_data": section(training=False, batch=_ROWS),
        }
    )


def _classification(folder: Path) -> Tree:
    side, classes = 32, 10
    examples = [
        _example_of(
            {
                "image/encoded": _jpeg(_noise(number, side, side, 3)),
                "image/class/label": number % classes,
            }
        )
        for number in range(_IMAGES)
    ]
    model = {"num_classes": classes, "input_size": [side, side, 3], "backbone": _RESNET}
    return _short_vision_run({"init_checkpoint": None, "model": model}, folder, examples)


def _detection(folder: Path) -> Tree:
    """Detects boxes; the evaluation is that of COCO."""
    # The coarsest level is the seventh: it halves the side seven times.
    side, classes = 128, 5
    annotations = folder / "validation.json"
    annotations.write_text(json.dumps(_coco_annotations(side, classes)))
    model = {
        "num_classes": classes,
        "input_size": [side, side, 3],
        "backbone": _RESNET,
        "decoder": {"fpn": {"num_filters": 16}},
        "head": {"num_convs": 1, "num_filters": 16},
        # Without a threshold, an untrained network detects something.
        "detection_generator": {
            "pre_nms_top_k": 20,
            "pre_nms_score_threshold": 0.0,
            "max_num_detections": 10,
        },
    }
    task = {"init_checkpoint": None, "annotation_file": str(annotations), "model": model}
    examples = [_boxed_image(number, side, classes) for number in range(_IMAGES)]
    return _short_vision_run(task, folder, examples, parser={"max_num_instances": 10})


def _segmentation(folder: Path) -> Tree:
    """Classifies the points of cubes."""
    side, channels, classes = 8, 2, 2
    one_hot = np.eye(classes, dtype=np.float32)
    examples = [
        _example_of(
            {
                "image/encoded": (
                    _noise(number, side, side, side, channels) / np.float32(255)
                ).tobytes(),
                "image/class/label": one_hot[_noise(number, side, side, side) % classes].tobytes(),
            }
        )
        for number in range(_IMAGES)
    ]
    size = {"input_size": [side, side, side], "num_channels": channels, "num_classes": classes}
    model = {
        **size,
        "backbone": {"unet_3d": {"base_filters": 4}},
        "head": {"num_filters": 4},
    }
    return _short_vision_run({"model": model}, folder, examples, **size)


def _video(folder: Path) -> Tree:
    import tensorflow as tf

    classes = 5
    examples = []
    for number in range(_IMAGES):
        frames = [_feature(_jpeg(image)) for image in _noise(number, 8, 40, 48, 3)]
        label = {"clip/label/index": _feature(number % classes)}
        lists = {"image/encoded": tf.train.FeatureList(feature=frames)}
        examples.append(
            tf.train.SequenceExample(
                context=tf.train.Features(feature=label),
                feature_lists=tf.train.FeatureLists(feature_list=lists),
            )
        )
    shape = {"feature_shape": [4, 32, 32, 3], "min_image_size": 32, "num_classes": classes}
    config = _short_vision_run({"init_checkpoint": None}, folder, examples, **shape)
    # The gradients of noise are so large that a usual rate makes the weights overflow.
    rate = {"type": "constant", "constant": {"learning_rate": 1e-9}}
    optimizer = {"learning_rate": rate, "warmup": {"type": None}}
    return {**config, "trainer": {**_TRAINER, "optimizer_config": optimizer}}


EXPERIMENTS: Mapping[str, Callable[[Path], Tree]] = {
    "mock": _mock,
    "bert/tagging": _tagging,
    "bert/sentence_prediction": _sentence_prediction,
    "wmt_transformer/large": _translation,
    "resnet_imagenet": _classification,
    "retinanet_resnetfpn_coco": _detection,
    "seg_unet3d_test": _segmentation,
    "video_classification_kinetics400": _video,
}


def _short_text_run(task: Tree, optimizer: Tree | None = None) -> Tree:
    trainer = {**_TRAINER, "optimizer_config": optimizer} if optimizer else _TRAINER
    return {"task": task, "trainer": trainer, "runtime": _RUNTIME}


def _text_sections(path: str) -> Tree:
    def section(*, training: bool) -> Tree:
        common = {"input_path": path, "is_training": training, "global_batch_size": _BATCH}
        return {**common, "seq_length": _LENGTH}

    return {"train_data": section(training=True), "validation_data": section(training=False)}


def _short_vision_run(task: Tree, folder: Path, examples: Iterable[Any], **settings: Any) -> Tree:
    """Returns a config that trains and evaluates on the same examples, in two files."""
    serialized = [*examples]
    for part in ("train", "validation"):
        section = {
            "input_path": _write_records(folder / part, serialized),
            "global_batch_size": 2,
            "shuffle_buffer_size": 4,
            "dtype": "float32",
            **settings,
        }
        task = {**task, f"{part}_data": section}
    return {"task": task, "trainer": _TRAINER, "runtime": _WITHOUT_XLA}


def _encoder(vocab: int) -> Tree:
    sizes = {
        "hidden_size": _HIDDEN,
        "num_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 32,
        "max_position_embeddings": _LENGTH,
    }
    return {"type": "bert", "bert": {**sizes, "vocab_size": vocab}}


def _sentences(count: int, words: int = 6) -> list[str]:
    """Returns seeded random sentences: lowercase words separated by spaces."""
    draw = random.Random(0)
    return [" ".join(draw.choices(_WORDS, k=words)) for _ in range(count)]


def _write_wordpiece(path: Path) -> int:
    """Writes a WordPiece vocabulary, one token per line, and returns the number of tokens."""
    letters = string.ascii_lowercase + string.digits + "?.,"
    single = [letter for letter in letters if letter not in _WORDS]
    tokens = [*_SPECIAL, *_WORDS, *single, *(f"##{letter}" for letter in letters)]
    path.write_text("\n".join(tokens) + "\n")
    return len(tokens)


def _write_sentencepiece(path: Path) -> Path:
    """Trains a SentencePiece model in which padding, end and unknown are 0, 1 and 2."""
    import sentencepiece

    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(_sentences(200)),
        model_prefix=str(path.with_suffix("")),
        vocab_size=48,
        bos_id=-1,
        pad_id=0,
        eos_id=1,
        unk_id=2,
        minloglevel=2,
    )
    return path


def _token_rows(vocab: int) -> list[Tree]:
    """Returns examples of two padded segments of random tokens: int64 arrays of `_LENGTH`."""
    draw = np.random.default_rng(0)
    rows = []
    for _ in range(_ROWS):
        used = int(draw.integers(_LENGTH // 2, _LENGTH + 1))
        ids = np.zeros(_LENGTH, np.int64)
        ids[:used] = draw.integers(len(_SPECIAL), vocab, used)
        separator = _SPECIAL.index("[SEP]")
        ids[0], ids[used // 2], ids[used - 1] = _SPECIAL.index("[CLS]"), separator, separator
        places = np.arange(_LENGTH)
        mask = (places < used).astype(np.int64)
        segments = ((places > used // 2) & (places < used)).astype(np.int64)
        rows.append({"input_ids": ids, "input_mask": mask, "segment_ids": segments})
    return rows


def _noise(number: int, *shape: int) -> np.ndarray:
    """Returns uint8 noise of the given shape, which depends only on `number`."""
    return np.random.default_rng(number).integers(0, 256, shape, np.uint8)


def _boxed_image(number: int, side: int, classes: int) -> Any:
    ymin, xmin, ymax, xmax = zip(*_BOXES, strict=True)
    return _example_of(
        {
            "image/encoded": _jpeg(_noise(number, side, side, 3)),
            "image/source_id": str(number + 1),
            "image/height": side,
            "image/width": side,
            "image/object/bbox/ymin": ymin,
            "image/object/bbox/xmin": xmin,
            "image/object/bbox/ymax": ymax,
            "image/object/bbox/xmax": xmax,
            "image/object/class/label": [_label(number, k, classes) for k in range(len(_BOXES))],
            "image/object/area": [_outline(box, side)["area"] for box in _BOXES],
            "image/object/is_crowd": [0] * len(_BOXES),
        }
    )


def _coco_annotations(side: int, classes: int) -> Tree:
    """Returns the boxes of all images. `classes` includes class 0, the background."""
    marks = [
        {"id": 2 * i + k + 1, "image_id": i + 1, "category_id": _label(i, k, classes)}
        | _outline(box, side)
        for i in range(_IMAGES)
        for k, box in enumerate(_BOXES)
    ]
    return {
        "images": [{"id": i + 1, "height": side, "width": side} for i in range(_IMAGES)],
        "annotations": marks,
        "categories": [{"id": k, "name": f"class {k}"} for k in range(1, classes)],
    }


def _label(image: int, box: int, classes: int) -> int:
    return 1 + (image + box) % (classes - 1)


def _outline(box: tuple[float, ...], side: int) -> Tree:
    ymin, xmin, ymax, xmax = (part * side for part in box)
    height, width = ymax - ymin, xmax - xmin
    return {"bbox": [xmin, ymin, width, height], "area": height * width, "iscrowd": 0}


def _example_of(values: Mapping[str, Any]) -> Any:
    """Returns a `tf.train.Example`; values are numbers, texts, bytes, or several of one kind."""
    import tensorflow as tf

    features = {name: _feature(value) for name, value in values.items()}
    return tf.train.Example(features=tf.train.Features(feature=features))


def _feature(value: Any) -> Any:
    import tensorflow as tf

    values = [value] if isinstance(value, (bytes, str)) else np.ravel(value).tolist()
    if isinstance(values[0], float):
        return tf.train.Feature(float_list=tf.train.FloatList(value=values))
    if isinstance(values[0], int):
        return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
    texts = [text if isinstance(text, bytes) else text.encode() for text in values]
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=texts))


def _jpeg(image: np.ndarray) -> bytes:
    import tensorflow as tf

    encoded: bytes = tf.io.encode_jpeg(image).numpy()
    return encoded


def _write_records(path: Path, examples: Iterable[Any]) -> str:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for example in examples:
            writer.write(example.SerializeToString())
    return str(path)
